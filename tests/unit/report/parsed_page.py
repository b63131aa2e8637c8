"""Parses a page as a browser does, as far as tests need."""

from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path

from mdgan.records.recorded_run import RecordedRun
from mdgan.report.compose import compose
from mdgan.report.numbers.subject import Subject, subjects


class ParsedPage(HTMLParser):
    """Collects what there is in a page.

    Attributes:
        loads: what the page would fetch.
        references: ids that something within the page refers to.
        drawn: the ids of the figures with a drawing or pictures in them.
        text: all text outside styles and scripts.
        unclosed: elements that were closed out of order or never.
    """

    _VOID = frozenset({"meta", "img", "br", "link", "input"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.loads: list[str] = []
        self.references: list[str] = []
        self.figures: list[str] = []
        self.drawn: set[str] = set()
        self.text = ""
        self.styles: list[str] = []
        self.scripts = 0
        self.unclosed: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.unclosed += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self._VOID:
            self._open.append(tag)
        self.scripts += tag == "script"
        for key, value in attrs:
            value = value or ""
            if key == "id":
                self.ids.append(value)
                if tag == "figure":
                    self.figures.append(value)
            elif key in ("src", "href", "srcset", "data", "poster", "action"):
                (self.references if value.startswith("#") else self.loads).append(value.lstrip("#"))
            elif key == "style":
                self.styles.append(value)
            if "url(#" in value:
                self.references.append(value.split("url(#")[1].split(")")[0])
        if tag in ("svg", "img") and "figure" in self._open and self.figures:
            self.drawn.add(self.figures[-1])

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()
        else:
            self.unclosed.append(tag)

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "script"):
            self.text += data


def subject_of(path: Path) -> Subject:
    """The only run of a report."""
    return subjects([RecordedRun.read(path)])[0]


def html_of(*paths: Path) -> tuple[str, dict[str, str]]:
    """The page of some runs, and what is missing in it."""
    html, _, missing = compose([RecordedRun.read(path) for path in paths], datetime.now())
    return html, missing


def page_of(*paths: Path) -> tuple[ParsedPage, dict[str, str]]:
    """The same, read."""
    html, missing = html_of(*paths)
    return ParsedPage(html), missing
