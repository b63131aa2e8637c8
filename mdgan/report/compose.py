"""Draws the figures of a report and puts them into its page."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from mdgan import __version__
from mdgan.records.recorded_run import RecordedRun
from mdgan.report.catalogue import SECTIONS
from mdgan.report.entry import Entry, GroupedEntry
from mdgan.report.figures.export import inline_svg, write_files
from mdgan.report.figures.picture import Panel, Picture
from mdgan.report.figures.style import styled
from mdgan.report.glance import facts, measured, notices
from mdgan.report.numbers.groups import groups
from mdgan.report.numbers.subject import (
    MOST_RUNS,
    Subject,
    differing_settings,
    shown,
    subjects,
)
from mdgan.report.numbers.table import Table
from mdgan.report.numbers.units import words
from mdgan.report.palette import css_variables

_COUNTED = re.compile(r"\{\w*unit", re.IGNORECASE)
"""In the words of a figure whose unit is an iteration or a round."""

_ABOUT_THE_RUN = ("version", "dataset_file", "dataset_sha256")


class Block(NamedTuple):
    """One figure as it stands in the page.

    Attributes:
        name: `fig-<name>` is its id.
        title: a few words.
        caption: what it shows and what is seen.
        paper: the numbers of the same figures in the paper; empty for none.
        picture: what was drawn, or in one line why nothing was.
        drawings: every panel and its SVG; none where the picture has strips.
    """

    name: str
    title: str
    caption: str
    paper: str
    picture: Picture | str
    drawings: Sequence[tuple[Panel, str]] = ()


def compose(
    runs: Sequence[RecordedRun], written: datetime, figures: Path | None
) -> tuple[str, int, dict[str, str]]:
    """The page of some runs: one HTML document that loads nothing.

    Args:
        runs: at least one.
        written: when.
        figures: where to write every drawing as PNG and SVG, if anywhere.

    Returns:
        The HTML, the number of figures in it, and name → reason for those that are not.

    Raises:
        OSError: a drawing cannot be written.
    """
    named = subjects(runs)
    with styled():
        chapters = [
            (section, [_block(entry, named, figures) for entry in section.entries])
            for section in SECTIONS
        ]
    blocks = [block for _, of_section in chapters for block in of_section]
    missing = {block.name: block.picture for block in blocks if isinstance(block.picture, str)}
    return _page(named, chapters, written), len(blocks) - len(missing), missing


def _block(entry: Entry[Any, Any], every: Sequence[Subject], figures: Path | None) -> Block:
    """Draws one figure, or says why there is none."""
    grouped = isinstance(entry, GroupedEntry)
    named = every if grouped else _one_a_configuration(every)
    said = words(named)
    in_rounds = [subject.in_rounds for subject in named]
    of_rounds = entry.of_rounds if any(in_rounds) else ""
    is_counted = entry.of_rounds or _COUNTED.search(entry.title + entry.caption)
    title = entry.title.format(**said)
    caption = _joined(entry.caption.format(**said), of_rounds)
    paper = "" if all(in_rounds) and is_counted else entry.paper  # it has no figures of rounds
    picture = _draw(entry, groups(every) if grouped else named)
    if isinstance(picture, str):
        return Block(entry.name, title, caption, paper, picture.format(**said))
    if figures is not None:
        for panel in picture.panels:
            label = re.sub(r"[^a-z0-9]+", "-", panel.label.lower()).strip("-") or "run"
            name = f"{entry.name}-{label}" if panel.label else entry.name
            write_files(panel.figure, figures, name)
    drawings = []
    for number, panel in enumerate(() if picture.strips else picture.panels):
        name = f"{entry.name}-{number}" if panel.label else entry.name
        about = f"{title}, {panel.label}" if panel.label else title
        about = _joined(f"{about}.", caption, picture.seen)
        drawings.append((panel, inline_svg(panel.figure, name, about)))
    seen = picture.seen[:1].upper() + picture.seen[1:]
    few = f"Of {len(every)} runs this shows the first of each configuration."
    caption = _joined(caption, seen, few if len(named) < len(every) else "")
    return Block(entry.name, title, caption, paper, picture, drawings)


def _draw(entry: Entry[Any, Any], candidates: Sequence[Any]) -> Picture | str:
    fits = entry.runs.fits
    fitting = [one for one in candidates if fits(one if isinstance(one, Subject) else one.first)]
    if len(fitting) < entry.runs.at_least:
        return entry.runs.otherwise
    found = [(one, numbers) for one in fitting if (numbers := entry.of(one))]
    return entry.draw(found) if found else entry.missing


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _one_a_configuration(every: Sequence[Subject]) -> Sequence[Subject]:
    """All runs, or where these are more than can be told apart the first of each configuration."""
    return every if len(every) <= MOST_RUNS else [group.first for group in groups(every)]


def _page(named: Sequence[Subject], chapters: Sequence[Any], written: datetime) -> str:
    environment = Environment(
        loader=PackageLoader("mdgan.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    assert environment.loader is not None
    css, script = (
        environment.loader.get_source(environment, name)[0] for name in ("page.css", "page.js")
    )
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode()
    environment.globals.update(facts=facts, measured=measured, notices=notices, shown=shown)
    datasets = dict.fromkeys(shown(subject.run.config.get("dataset")) for subject in named)
    what = named[0].label if len(named) == 1 else f"{len(named)} runs"
    return environment.get_template("page.html").render(
        title=f"{', '.join(datasets)}: {what}",
        written=f"{written:%d %B %Y, %H:%M}",
        running=any(subject.run.status.get("state") == "running" for subject in named),
        css=f":root{{{css_variables()}}}\n{css}",
        script=script,
        script_hash=hashlib.sha256(script.encode()).digest(),
        runs=named,
        several=len(named) > 1,
        chapters=chapters,
        version=__version__,
        **_settings(named),
    )


def _settings(named: Sequence[Subject]) -> Mapping[str, Table]:
    """All settings, and those in which the runs differ."""
    configs = [subject.run.config for subject in named]
    header = ("setting", *(subject.label for subject in named))

    def rows(names: Sequence[str]) -> list[tuple[str, ...]]:
        return [(name, *(shown(config.get(name)) for config in configs)) for name in names]

    about = [
        (name, *(shown(subject.run.status.get(name)) for subject in named))
        for name in _ABOUT_THE_RUN
        if any(name in subject.run.status for subject in named)
    ]
    every = rows(list(dict.fromkeys(name for config in configs for name in config)))
    return {
        "differing": Table(header, rows(differing_settings(configs))),
        "settings": Table(header, every + about),
    }
