"""The settings of all runs, and in which they differ."""

from collections.abc import Sequence

from mdgan.report.numbers.subject import Subject, differing_settings, shown
from mdgan.report.numbers.table import Table
from mdgan.report.page.html import folded, table, tag, text

_ABOUT_THE_RUN = ("version", "dataset_file", "dataset_sha256")


def settings(subjects: Sequence[Subject]) -> str:
    """A table of what differs, and one of everything."""
    configs = [subject.run.config for subject in subjects]
    labels = [subject.label for subject in subjects]
    content = ""
    if len(subjects) > 1:
        differing = differing_settings(configs)
        rows = [(name, *(shown(config.get(name)) for config in configs)) for name in differing]
        if rows:
            content = tag("h3", "What differs") + table(Table(("setting", *labels), rows))
        else:
            content = tag("p", text("These runs have the same settings."), class_="note")
    names = list(dict.fromkeys(name for config in configs for name in config))
    rows = [(name, *(shown(config.get(name)) for config in configs)) for name in names]
    for name in _ABOUT_THE_RUN:
        if any(name in subject.run.status for subject in subjects):
            rows.append((name, *(shown(subject.run.status.get(name)) for subject in subjects)))
    everything = table(Table(("setting", *labels), rows))
    content += folded("All settings", everything, open_=len(subjects) == 1)
    return tag("div", content, class_="card plain")
