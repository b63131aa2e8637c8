"""Draws the figures of a report and renders its page: `compose` is called by `write_report`."""

import base64
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.release_figures import default_verdicts
from mdgan.records.rows import presentable
from mdgan.records.values import a, shown
from mdgan.report.catalogue import HEADINGS, SECTIONS
from mdgan.report.figures.charts import styled
from mdgan.report.figures.export import drawn_numbers, inline_svg, write_csv, write_files
from mdgan.report.figures.picture import Entry, GroupedView, Picture, Table, View, by_run
from mdgan.report.figures.samples import result
from mdgan.report.glance import facts, measured, notices
from mdgan.report.numbers.subject import MOST_RUNS, Subject, differing_settings, groups, subjects
from mdgan.report.palette import css_variables
from mdgan.storage.whole_file import write_whole
from mdgan.version import __version__

_ABOUT_THE_RUN = ("version", "dataset_file", "dataset_sha256", "paper_scale", "machine")


class Drawn(NamedTuple):
    """One drawn view of a figure; `paper` has the numbers of the paper's figures like it."""

    name: str
    caption: str
    paper: str
    picture: Picture


class Block(NamedTuple):
    """One figure of the page, with the views that could be drawn."""

    name: str
    title: str
    views: Sequence[Drawn]
    missing: str

    @property
    def is_drawn(self) -> bool:
        """Whether the figure has a drawing or pictures, and not only a table."""
        return any(view.picture.panels or view.picture.strips for view in self.views)

    @property
    def wide(self) -> bool:
        """Whether the figure takes the whole width of the page."""
        first = self.views[0].picture.panels
        has_strips = any(view.picture.strips for view in self.views)
        return len(first) > 1 or has_strips or any(panel.wide for panel in first)


def compose(
    runs: Sequence[RecordedRun],
    written: datetime,
    figures: Path | None = None,
    refresh_seconds: float | None = None,
    *,
    all_files: bool = False,
) -> tuple[str, int, dict[str, str]]:
    """Renders the page of some runs: one HTML document that loads nothing from elsewhere.

    Args:
        all_files: whether `figures` gets every view and format, not only PDF and CSV.

    Returns:
        The HTML, the number of figures in it, and name → reason of missing figures.
    """
    named = subjects(runs)
    with styled():
        sections = [
            (section, [block for entry in section.entries for block in _blocks(entry, named)])
            for section in SECTIONS
        ]
        all_blocks = [block for _, blocks in sections for block in blocks]
        if figures is not None:
            for block in all_blocks:
                _write_figures(block, figures, all_files=all_files)
        chapters = [(section, blocks) for section, blocks in sections if blocks]
        page = _page(named, chapters, written, refresh_seconds=refresh_seconds)
    missing = {block.name: block.missing for block in all_blocks if block.missing}
    return page, sum(block.is_drawn for block in all_blocks), missing


def _blocks(entry: Entry, named: Sequence[Subject]) -> Iterator[Block]:
    """The figure of an entry, or two: one of runs in iterations, one of runs in rounds."""
    units = list(dict.fromkeys(subject.unit for subject in named))
    apart = entry.counted and len(units) > 1
    for unit in units if apart else units[:1]:
        chosen = [subject for subject in named if subject.unit == unit] if apart else named
        words = {"unit": unit, "Unit": unit.capitalize(), "a_unit": a(unit)}
        title = entry.title.format(**words)
        if apart and unit not in title.lower():
            title += f" of runs in {unit}s"
        views = [drawn for view in entry.views if (drawn := _drawn(view, chosen, words))]
        reasons = (view.missing for view in entry.views if any(map(view.fits, chosen)))
        reason = "" if views else next(filter(None, reasons), "").format(**words)
        if views or reason:
            name = entry.name if unit == units[0] else f"{entry.name}-{unit}s"
            yield Block(name, title, views, missing=reason)


def _drawn(
    view: View[Any, Any], named: Sequence[Subject], words: Mapping[str, str]
) -> Drawn | None:
    """Draws a view of some runs; None if no run recorded its numbers."""
    fitting = [subject for subject in named if view.fits(subject)]
    candidates: Sequence[Any] = fitting
    if isinstance(view, GroupedView):
        candidates = groups(fitting)
    elif len(fitting) > MOST_RUNS:  # more than readers can tell apart
        candidates = [group.first for group in groups(fitting)]
    recorded = [(one, numbers) for one in candidates if (numbers := view.of(one))]
    if not recorded:
        return None
    picture: Picture = (view.draw or by_run)(recorded)
    in_rounds = all(subject.has_rounds() for subject in named)
    few = not isinstance(view, GroupedView) and len(named) > MOST_RUNS
    caption = (
        view.caption.format(**words),
        view.of_rounds if in_rounds else "",
        picture.seen[:1].upper() + picture.seen[1:],
        f"Of {len(named)} runs this shows the first of each configuration." if few else "",
    )
    is_counted = view.of_rounds or "unit}" in view.name + view.caption
    paper = "" if in_rounds and is_counted else view.paper  # the paper has no figures of rounds
    return Drawn(view.name.format(**words), " ".join(filter(None, caption)), paper, picture=picture)


def _write_figures(block: Block, figures: Path, *, all_files: bool) -> None:
    """Writes a figure's drawings (PDF, perhaps PNG and SVG), pictures (PNG) and numbers (CSV)."""
    endings = ("png", "svg", "pdf") if all_files else ("pdf",)
    for place, view in enumerate(block.views if all_files else block.views[:1]):
        shown_as = view.name if place else ""
        has_numbers = False
        for panel in view.picture.panels:
            name = _file_name(block.name, shown_as, panel.label)
            write_files(panel.figure, figures / name, endings)
            if numbers := drawn_numbers(panel.figure):
                write_csv(figures / f"{name}.csv", numbers)
                has_numbers = True
        if not has_numbers:
            name = _file_name(block.name, shown_as)
            write_csv(
                figures / f"{name}.csv", [view.picture.table.header, *view.picture.table.rows]
            )
        for strip in view.picture.strips:
            label = strip.subject.label if len(view.picture.strips) > 1 else ""
            for file, _, beneath in strip.stills:
                name = _file_name(block.name, shown_as, label, beneath)
                write_whole(figures / f"{name}.png", file.png)


def _file_name(*parts: str) -> str:
    plain = (re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") or "run" for part in parts if part)
    return "-".join(plain)


def _page(
    named: Sequence[Subject],
    chapters: Sequence[Any],
    written: datetime,
    refresh_seconds: float | None,
) -> str:
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
    environment.globals.update(release_verdicts=default_verdicts)
    environment.globals.update(result=result, svg=inline_svg, headings=defaultdict(str, HEADINGS))
    datasets = dict.fromkeys(shown(subject.run.config.get("dataset")) for subject in named)
    what = named[0].label if len(named) == 1 else f"{len(named)} runs"
    running = any(subject.run.under_way for subject in named)
    page = environment.get_template("page.html").render(
        title=f"{', '.join(datasets)}: {what}",
        written=f"{written.day} {written:%B %Y, %H:%M}",
        running=running,
        refresh=refresh_seconds if running else None,
        css=f":root{{{css_variables()}}}\n{css}",
        script=script,
        script_hash=hashlib.sha256(script.encode()).digest(),
        runs=named,
        several=len(named) > 1,
        chapters=chapters,
        version=__version__,
        **_settings(named),
    )
    return str(presentable(page))  # names of folders in it may hold characters that are no text


def _settings(named: Sequence[Subject]) -> Mapping[str, Table]:
    """Tables of all settings, of settings that differ or are no defaults, and of machines."""
    configs = [subject.run.config for subject in named]
    all_settings = [
        {**s.run.config, **{n: v for n, v in s.run.status.items() if n in _ABOUT_THE_RUN}}
        for s in named
    ]
    defaults = {
        name: value
        for subject in named
        for name, value in subject.run.status.get("other_defaults", {}).items()
    }
    header = tuple(subject.label for subject in named)

    def table(of: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None) -> Table:
        chosen = dict.fromkeys(name for values in of for name in values) if names is None else names
        rows = [(name, *(shown(values.get(name)) for values in of)) for name in chosen]
        return Table(("setting", *header), rows)

    changed = table([*configs, defaults], list(defaults))
    return {
        "differing": table(configs, differing_settings(configs)),
        "changed": changed._replace(header=("setting", *header, "default")),
        "system": table([subject.run.status.get("system", {}) for subject in named]),
        "settings": table(all_settings),
    }
