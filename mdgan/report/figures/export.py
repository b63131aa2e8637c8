"""Drawings as text for the page, and as files for papers."""

import io
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import PolyCollection
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from mdgan.report.palette import VARIABLE_OF
from mdgan.storage.csv_file import csv_bytes
from mdgan.storage.whole_file import write_whole

_COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}(?:e-\d+)?")
_REFERENCE = re.compile(r"(?<=url\(#)[^)]+")
_PIXELS_PER_POINT = 96 / 72
_PNG_DOTS_PER_INCH = 200
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def inline_svg(figure: Figure, name: str, said: str) -> str:
    """A drawing to be put into the page, in the page's fonts and colours."""
    root = ElementTree.fromstring(_saved(figure, "svg"))
    width, height = (float(number) for number in root.attrib["viewBox"].split()[2:])
    for parent in list(root.iter()):
        for child in list(parent):
            if _plain(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _plain(element.tag)
        element.text, element.tail = (element.text or "").strip(), ""
        element.attrib = _rewritten(element.attrib, name)
    root.attrib = {
        "viewBox": f"0 0 {width:g} {height:g}",
        "width": f"{width * _PIXELS_PER_POINT:.0f}",
        "height": f"{height * _PIXELS_PER_POINT:.0f}",
        "role": "img",
        "aria-label": said,
    }
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def write_files(figure: Figure, name: Path, endings: Iterable[str]) -> None:
    """Writes `<name>.<ending>` for each ending of png, svg and pdf, on white."""
    for ending in endings:
        undated = {"metadata": {"CreationDate": None}} if ending == "pdf" else {}
        write_whole(Path(f"{name}.{ending}"), _saved(figure, ending, facecolor="white", **undated))


def write_csv(path: Path, rows: Iterable[Sequence[str]]) -> None:
    """Writes a table; numbers lose the commas between their thousands."""
    write_whole(path, csv_bytes([_THOUSANDS.sub("", cell) for cell in row] for row in rows))


def drawn_numbers(figure: Figure) -> list[Sequence[str]]:
    """The ends of bars and the points of lines as a table with a heading; empty without any."""
    across = next((label for axes in figure.axes[::-1] if (label := axes.get_xlabel())), "x")
    rows = [row for axes in figure.axes for row in (*_bars(axes), *_lines(axes))]
    lying = any(box.orientation == "horizontal" for axes in figure.axes for box in _boxes(axes))
    x, value = ("of", across) if lying else (across, "value")
    return [("drawing", "series", x, value, "least", "greatest"), *rows] if rows else []


def _boxes(axes: Axes) -> list[BarContainer]:
    return [one for one in axes.containers if isinstance(one, BarContainer)]


def _bars(axes: Axes) -> Iterator[Sequence[str]]:
    for boxes in _boxes(axes):
        values = np.asarray(boxes.datavalues, float)
        for place, (bar, value) in enumerate(zip(boxes.patches, values, strict=True)):
            label = str(bar.get_label())
            of = str(place) if label == "_nolegend_" else label.removeprefix("_")
            yield _name(axes), str(boxes.get_label()), of, f"{value:.10g}", "", ""


def _lines(axes: Axes) -> Iterator[Sequence[str]]:
    bands = {one.get_label(): one for one in axes.collections if isinstance(one, PolyCollection)}
    for line in axes.lines:
        label = str(line.get_label())
        if label.startswith("_child"):  # a mark that belongs to no series
            continue
        x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
        ends: list[tuple[float, float]] = []
        if band := bands.get(f"_{label}"):
            # There along the least values, back along the greatest.
            heights = np.asarray(band.get_paths()[0].vertices, float)[:, 1]
            if len(heights) == 2 * len(x) + 3:  # not broken by values that are not finite
                ends = [*zip(heights[1 : len(x) + 1], heights[-2 : -len(x) - 2 : -1], strict=True)]
        for n, point in enumerate(zip(x, y, strict=True)):
            numbers = [f"{number:.10g}" for number in (*point, *(ends[n] if ends else ()))]
            yield _name(axes), label.removeprefix("_"), *numbers, *([] if ends else ["", ""])


def _name(axes: Axes) -> str:
    return str(axes.get_title(loc="left") or axes.get_ylabel())


def _saved(figure: Figure, file_format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.execute(figure)
        figure.set_layout_engine("none")
    with warnings.catch_warnings():
        # A label may hold signs that matplotlib's own font lacks; browsers find another font.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        if options:
            figure.savefig(buffer, format=file_format, dpi=_PNG_DOTS_PER_INCH, **options)
        else:  # savefig would draw everything twice
            figure.set_dpi(72)
            figure.patch.set_visible(False)
            FigureCanvasSVG(figure).print_svg(  # type: ignore[no-untyped-call] # has no types
                buffer, metadata=_NO_METADATA
            )
    return buffer.getvalue()


def _plain(tag: str) -> str:
    return tag.rpartition("}")[2]


def _rewritten(attributes: dict[str, str], name: str) -> dict[str, str]:
    """Attributes with the ids and the colours of the page."""
    style = attributes.get("style", "")
    kept: dict[str, str] = {}
    for key, value in attributes.items():
        if key in ("fill", "stroke"):  # variables count in styles only
            style += f"; {key}: {value}"
        elif _plain(key) == "href":
            kept["href"] = f"#{name}-{value[1:]}" if value.startswith("#") else value
        elif key == "id":
            kept[key] = f"{name}-{value}"
        elif key != "style":
            # The same drawing to a hundredth of a point, in fewer bytes.
            short = _LONG_NUMBER.sub(lambda n: f"{float(n[0]):.2f}".rstrip("0").rstrip("."), value)
            kept[key] = " ".join(short.split())
    if style:
        kept["style"] = _COLOUR.sub(
            lambda match: VARIABLE_OF.get(match[0].lower(), match[0]), style.strip("; ")
        )
    return {key: _REFERENCE.sub(rf"{name}-\g<0>", value) for key, value in kept.items()}
