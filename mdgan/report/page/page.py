"""The whole page."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files

from mdgan import __version__
from mdgan.report.numbers.subject import Subject, shown
from mdgan.report.numbers.table import Table
from mdgan.report.page.headline import headline
from mdgan.report.page.html import folded, table, tag, text
from mdgan.report.page.settings import settings
from mdgan.report.palette import css_variables

PAPER = "Darmanger and Gombas (2024)"


@dataclass(frozen=True)
class Block:
    """One figure as it stands in the page.

    Attributes:
        name: `fig-<name>` is its id.
        title: a few words.
        caption: what it shows and what is seen.
        paper: the numbers of the same figures in the paper; empty for none.
        content: HTML of the drawing; empty if there is none.
        missing: why there is none.
        numbers: the numbers behind it.
        wide: whether it takes the whole width.
    """

    name: str
    title: str
    caption: str
    paper: str
    content: str
    missing: str
    numbers: Table | None
    wide: bool


@dataclass(frozen=True)
class Chapter:
    """Figures under one heading.

    Attributes:
        name: its id.
        title: its heading.
        blocks: the figures.
    """

    name: str
    title: str
    blocks: Sequence[Block]


def page(subjects: Sequence[Subject], chapters: Sequence[Chapter], written: datetime) -> str:
    """The report as one HTML document that loads nothing.

    Args:
        subjects: the runs.
        chapters: the figures.
        written: when.
    """
    style = css_variables()
    css = f":root{{{style}}}\n" + _resource("page.css")
    script = _resource("page.js")
    title = _title(subjects)
    body = [
        _header(subjects, title, written),
        _navigation(chapters),
        tag(
            "main",
            tag("section", tag("h2", "At a glance"), headline(subjects), id="glance"),
            *(_chapter(chapter) for chapter in chapters),
            tag("section", tag("h2", "Settings"), settings(subjects), id="settings"),
        ),
        tag("footer", tag("p", text(f"mdgan {__version__}"))),
        tag("dialog", id="viewer", aria_label="Samples, enlarged"),
    ]
    head = [
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">',
        tag("title", text(title)),
        f"<style>{css}</style>",
    ]
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{"".join(head)}</head>\n'
        f"<body>{''.join(body)}\n<script>{script}</script></body></html>\n"
    )


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Nothing is loaded, and no script runs but ours."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'"
    )


def _title(subjects: Sequence[Subject]) -> str:
    datasets = list(dict.fromkeys(shown(s.run.config.get("dataset")) for s in subjects))
    what = subjects[0].label if len(subjects) == 1 else f"{len(subjects)} runs"
    return f"{', '.join(datasets)}: {what}"


def _header(subjects: Sequence[Subject], title: str, written: datetime) -> str:
    running = any(subject.run.status.get("state") == "running" for subject in subjects)
    state = " while training was going on" if running else ""
    return tag(
        "header",
        tag(
            "div",
            tag("p", "mdgan report", class_="kicker"),
            tag("h1", text(title)),
            tag("p", text(f"Written {written:%d %B %Y, %H:%M}{state}"), class_="note"),
        ),
        tag("button", "Dark", id="theme", type="button", hidden=True),
        class_="top",
    )


def _navigation(chapters: Sequence[Chapter]) -> str:
    entries = [("glance", "At a glance"), *((c.name, c.title) for c in chapters)]
    links = [
        tag("a", text(title), href=f"#{name}")
        for name, title in [*entries, ("settings", "Settings")]
    ]
    return tag("nav", *links, aria_label="Sections")


def _chapter(chapter: Chapter) -> str:
    shown_blocks = [_figure(block) for block in chapter.blocks if not block.missing]
    missing = [_figure(block) for block in chapter.blocks if block.missing]
    gone = tag("div", *missing, class_="missing") if missing else ""
    grid = tag("div", *shown_blocks, class_="grid") if shown_blocks else ""
    return tag("section", tag("h2", text(chapter.title)), grid, gone, id=chapter.name)


def _figure(block: Block) -> str:
    several = "," in block.paper or " " in block.paper
    figures = f"{'Figures' if several else 'Figure'} {block.paper} in {PAPER}."
    paper = tag("span", text(figures), class_="paper") if block.paper else ""
    if block.missing:
        caption = tag(
            "figcaption", tag("b", text(block.title)), text(f": {block.missing}. "), paper
        )
        return tag("figure", caption, id=f"fig-{block.name}")
    numbers = folded("Numbers", table(block.numbers)) if block.numbers else ""
    return tag(
        "figure",
        tag("h3", text(block.title)),
        block.content,
        tag("figcaption", text(block.caption), " ", paper),
        numbers,
        id=f"fig-{block.name}",
        class_="card wide" if block.wide else "card",
    )
