"""Drawings as text for the page, and as files for papers."""

import io
import re
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from mdgan.report.palette import VARIABLE_OF
from mdgan.storage.whole_file import write_whole

_COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}(?:e-\d+)?")
_REFERENCE = re.compile(r"(?<=url\(#)[^)]+")
_PIXELS_PER_POINT = 96 / 72
_PNG_DOTS_PER_INCH = 200
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


def write_files(figure: Figure, name: Path) -> None:
    """Writes `<name>.png` and `<name>.svg`, on white."""
    for ending in ("png", "svg"):
        write_whole(Path(f"{name}.{ending}"), _saved(figure, ending, facecolor="white"))


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
            kept[key] = _shortened(value)
    if style:
        kept["style"] = _COLOUR.sub(
            lambda match: VARIABLE_OF.get(match[0].lower(), match[0]), style.strip("; ")
        )
    return {key: _REFERENCE.sub(rf"{name}-\g<0>", value) for key, value in kept.items()}


def _shortened(text: str) -> str:
    """The same drawing to a hundredth of a point, in fewer bytes."""
    text = _LONG_NUMBER.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), text)
    return " ".join(text.split())
