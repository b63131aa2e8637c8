"""Drawings as text for the page, and as files for papers."""

import io
import re
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from matplotlib.figure import Figure

from mdgan.report.palette import VARIABLE_OF
from mdgan.storage.whole_file import write_whole

_COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}(?:e-\d+)?")
_REFERENCE = re.compile(r"(?<=url\(#)[^)]+")
_PIXELS_PER_POINT = 96 / 72
_PNG_DOTS_PER_INCH = 200


def inline_svg(figure: Figure, name: str, said: str) -> str:
    """A drawing to be put into the page, in the page's fonts and colours.

    Args:
        figure: the drawing.
        name: starts every id in it, since ids must differ within a page.
        said: what it shows, for those who cannot see it.
    """
    root = ElementTree.fromstring(_saved(figure, "svg", transparent=True))
    width, height = (float(number) for number in root.attrib["viewBox"].split()[2:])
    for parent in list(root.iter()):
        for child in list(parent):
            if _plain(child.tag) in ("metadata", "style"):
                parent.remove(child)
    referenced = {
        found
        for element in root.iter()
        for key, value in element.attrib.items()
        for found in (_REFERENCE.findall(value) or [_plain(key) == "href" and value[1:]])
    }
    for element in root.iter():
        element.tag = _plain(element.tag)
        element.text, element.tail = (element.text or "").strip(), ""
        if element.tag == "text":
            element.attrib["style"] = _without_font_family(element.attrib.get("style", ""))
        element.attrib = _rewritten(element.attrib, name, referenced)
    root.attrib = {
        "viewBox": f"0 0 {width:g} {height:g}",
        "width": f"{width * _PIXELS_PER_POINT:.0f}",
        "height": f"{height * _PIXELS_PER_POINT:.0f}",
        "role": "img",
        "aria-label": said,
    }
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def write_files(figure: Figure, folder: Path, name: str) -> None:
    """Writes `<name>.png` and `<name>.svg`, on white."""
    for file_format in ("png", "svg"):
        path = folder / f"{name}.{file_format}"
        write_whole(path, _saved(figure, file_format, facecolor="white"))


def _saved(figure: Figure, file_format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    layout = figure.get_layout_engine()
    if layout is not None:  # savefig would draw everything twice to lay it out
        layout.execute(figure)
        figure.set_layout_engine("none")
    if file_format == "svg":
        options["metadata"] = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with warnings.catch_warnings():
        # A label may hold signs that matplotlib's own font lacks; browsers find another font.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(buffer, format=file_format, dpi=_PNG_DOTS_PER_INCH, **options)
    return buffer.getvalue()


def _plain(tag: str) -> str:
    return tag.rpartition("}")[2]


def _rewritten(
    attributes: dict[str, str], name: str, referenced: Collection[str | bool]
) -> dict[str, str]:
    """Attributes with the ids and the colours of the page."""
    style = attributes.get("style", "")
    kept: dict[str, str] = {}
    for key, value in attributes.items():
        if key in ("fill", "stroke"):  # variables count in styles only
            style += f"; {key}: {value}"
        elif _plain(key) == "href":
            kept["href"] = f"#{name}-{value[1:]}" if value.startswith("#") else value
        elif key == "id" and value in referenced:
            kept[key] = f"{name}-{value}"
        elif key not in ("id", "style"):
            kept[key] = _shortened(value)
    if style:
        kept["style"] = _COLOUR.sub(
            lambda match: VARIABLE_OF.get(match[0].lower(), match[0]), style.strip("; ")
        )
    return {key: _REFERENCE.sub(rf"{name}-\g<0>", value) for key, value in kept.items()}


def _without_font_family(style: str) -> str:
    """Older versions of matplotlib write `font: 8px 'A', 'B'`, newer ones two declarations."""
    kept = []
    for declaration in style.split(";"):
        key, _, value = declaration.strip().partition(": ")
        if key == "font":
            size = re.search(r"[\d.]+px", value)
            kept.append(f"font-size: {size[0] if size else '8px'}")
        elif key and key != "font-family":
            kept.append(f"{key}: {value}")
    return "; ".join(kept)


def _shortened(text: str) -> str:
    """The same drawing to a hundredth of a point, in fewer bytes."""
    text = _LONG_NUMBER.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), text)
    return " ".join(text.split())
