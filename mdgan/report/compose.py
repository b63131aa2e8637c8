"""Draws the figures of a report and puts them into its page."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from mdgan.records.recorded_run import RecordedRun
from mdgan.report.catalogue import SECTIONS
from mdgan.report.entry import Entry
from mdgan.report.figures.export import inline_svg, write_files
from mdgan.report.figures.picture import Picture
from mdgan.report.figures.style import styled
from mdgan.report.numbers.groups import groups
from mdgan.report.numbers.subject import MOST_RUNS, Subject, subjects
from mdgan.report.numbers.units import words
from mdgan.report.page.html import tag, text
from mdgan.report.page.page import Block, Chapter, page
from mdgan.report.page.strips import film_strips, side_by_side

_COUNTED = re.compile(r"\{\w*unit", re.IGNORECASE)
"""In the words of a figure whose unit is an iteration or a round."""

_STRIPS = {"samples": film_strips, "samples-compared": side_by_side}
"""What stands in the page instead of the drawing: pictures that can be enlarged."""


def compose(
    runs: Sequence[RecordedRun], written: datetime, figures: Path | None
) -> tuple[str, int, dict[str, str]]:
    """The page of some runs.

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
            Chapter(
                section.name,
                section.title,
                [_block(entry, named, figures) for entry in section.entries],
            )
            for section in SECTIONS
        ]
    blocks = [block for chapter in chapters for block in chapter.blocks]
    missing = {block.name: block.missing for block in blocks if block.missing}
    return page(named, chapters, written), len(blocks) - len(missing), missing


def _block(entry: Entry, every: Sequence[Subject], figures: Path | None) -> Block:
    named = every if entry.grouped else _one_a_configuration(every)
    entry = _worded(entry, named)
    picture = entry.draw(named)
    if isinstance(picture, str):
        return Block(
            entry.name, entry.title, entry.caption, entry.paper, "", picture, None, entry.wide
        )
    if figures is not None:
        for panel in picture.panels:
            name = f"{entry.name}-{_file_name(panel.label)}" if panel.label else entry.name
            write_files(panel.figure, figures, name)
    strips = _STRIPS.get(entry.name)
    content = strips(named) if strips else _drawings(entry, picture)
    seen = picture.seen[:1].upper() + picture.seen[1:]
    caption = " ".join(filter(None, (entry.caption, seen, _said_shown(every, named))))
    return Block(
        entry.name, entry.title, caption, entry.paper, content, "", picture.table, entry.wide
    )


def _worded(entry: Entry, subjects: Sequence[Subject]) -> Entry:
    """With the words for what these runs are counted in; of rounds, the paper has no figures."""
    said = words(subjects)
    of_rounds = entry.of_rounds if any(subject.in_rounds for subject in subjects) else ""
    all_rounds = all(subject.in_rounds for subject in subjects)
    return replace(
        entry,
        title=entry.title.format(**said),
        caption=" ".join(filter(None, (entry.caption.format(**said), of_rounds))),
        paper="" if all_rounds and _is_counted(entry) else entry.paper,
    )


def _is_counted(entry: Entry) -> bool:
    """Whether a figure is another one where there are rounds."""
    return bool(entry.of_rounds or _COUNTED.search(entry.title + entry.caption))


def _one_a_configuration(subjects: Sequence[Subject]) -> Sequence[Subject]:
    """All runs, or where these are more than can be told apart the first of each configuration."""
    if len(subjects) <= MOST_RUNS:
        return subjects
    return [group.first for group in groups(subjects)]


def _said_shown(subjects: Sequence[Subject], named: Sequence[Subject]) -> str:
    if len(named) == len(subjects):
        return ""
    return f"Of {len(subjects)} runs this shows the first of each configuration."


def _drawings(entry: Entry, picture: Picture) -> str:
    drawn = []
    for number, panel in enumerate(picture.panels):
        name = f"{entry.name}-{number}" if panel.label else entry.name
        about = f"{entry.title}, {panel.label}" if panel.label else entry.title
        svg = inline_svg(panel.figure, name, f"{about}. {entry.caption} {picture.seen}".strip())
        note = tag("small", text(panel.note)) if panel.note else ""
        title = tag("h4", text(panel.label), note) if panel.label else ""
        drawn.append(tag("div", title, tag("div", svg, class_="plot"), class_="panel"))
    return tag("div", *drawn, class_="panels")


def _file_name(label: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "run"
