"""Colours that people can see, and drawings that use them."""

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest

from mdgan.report.figures.charts import (
    draw_each,
    heat_map,
    legend,
    new_axes,
    operation_style,
    styled,
)
from mdgan.report.figures.export import inline_svg
from mdgan.report.palette import (
    HEAT,
    INKS,
    LINES,
    OPERATIONS,
    OTHER,
    PALETTE,
    PRESENCE,
    RUNS,
    SURFACES,
    VARIABLE_OF,
)

GRAPHICS = {**RUNS, **OPERATIONS, **PRESENCE, "other": OTHER, "heat": HEAT}


def luminance(colour: str) -> float:
    """By WCAG 2.2."""
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", INKS)
@pytest.mark.parametrize("surface", SURFACES)
def test_text_can_be_read(name: str, surface: str) -> None:
    for ink, ground in zip(INKS[name], SURFACES[surface], strict=True):
        assert contrast(ink, ground) >= 4.5


@pytest.mark.parametrize("name", sorted(GRAPHICS.keys() - {"wait", "receive"}))
def test_graphics_stand_out_on_cards(name: str) -> None:
    colour, card = GRAPHICS[name], SURFACES["card"]
    assert contrast(colour.dark, card.dark) >= 3
    assert contrast(colour.light, card.light) >= (3 if name not in LIGHT_ON_LIGHT else 2.2)


@pytest.mark.parametrize("name", ["wait", "receive"])
def test_waiting_is_paler_than_work_but_not_idle(name: str) -> None:
    idle, card = LINES["idle"], SURFACES["card"]
    for own, theirs, ground in zip(GRAPHICS[name], idle, card, strict=True):
        assert contrast(own, theirs) > 1.3
        assert contrast(theirs, ground) < contrast(own, ground) < 3


def test_numbers_can_be_read_in_the_strongest_cell_of_a_heat_map() -> None:
    _, axes = new_axes()
    heat_map(axes, [[7.0]])
    strongest = axes.patches[0].get_alpha() or 1
    for heat, ink, card in zip(HEAT, INKS["ink"], SURFACES["card"], strict=True):
        parts = [[int(colour[k : k + 2], 16) for k in (1, 3, 5)] for colour in (heat, card)]
        mixed = [round(strongest * a + (1 - strongest) * b) for a, b in zip(*parts, strict=True)]
        assert contrast("#" + "".join(f"{channel:02x}" for channel in mixed), ink) >= 4.5


def test_lines_of_few_workers_differ_in_more_than_colour() -> None:
    with styled():
        figure, axes = new_axes()
        draw_each(axes, {f"worker {n}": {0: 1.0, 1: 2.0 + n} for n in range(4)})
        svg = inline_svg(figure, "each", "workers")
    lines = re.findall(r'<path[^>]*style="([^"]*--c\d[^"]*)"', svg)
    dashes = [re.findall("dasharray: ([^;]*)", line) for line in lines]
    assert len(lines) == len({*map(str, dashes)}) == 4


LIGHT_ON_LIGHT = {"generate", "send"}
"""Wide areas with their names beside them; darker ones would look like their neighbours."""


def test_every_light_colour_stands_for_one_variable() -> None:
    assert len(VARIABLE_OF) == len(PALETTE)
    assert all(colour.light == colour.light.lower() for colour in PALETTE.values())


def test_runs_that_are_drawn_together_look_different() -> None:
    first_four = list(RUNS.values())[:4]
    for one, other in combinations(first_four, 2):
        for a, b in zip(one, other, strict=True):
            distance = sum((int(a[k : k + 2], 16) - int(b[k : k + 2], 16)) ** 2 for k in (1, 3, 5))
            assert distance > 60**2


def test_waiting_and_receiving_are_told_apart() -> None:
    for wait, receive in zip(OPERATIONS["wait"], OPERATIONS["receive"], strict=True):
        channels = [(int(wait[k : k + 2], 16), int(receive[k : k + 2], 16)) for k in (1, 3, 5)]
        assert sum((a - b) ** 2 for a, b in channels) > 40**2


def drawing(name: str) -> str:
    with styled():
        figure, axes = new_axes(2)
        axes.plot([1, 2, 3], [1.123456, 2, 3], label="a & b", marker="o", color="#0072b2")
        axes.barh([1], [2], **operation_style("send"))
        axes.set_title('id="x" #0072b2 url(#y)')
        legend(figure)
        return inline_svg(figure, name, 'what "it" shows')


def test_a_drawing_has_the_text_and_the_colours_of_the_page() -> None:
    root = ElementTree.fromstring(drawing("one"))
    assert root.tag == "svg"
    assert (root.attrib["role"], root.attrib["width"]) == ("img", "384")
    assert root.attrib["aria-label"] == 'what "it" shows'
    styles = " ".join(element.attrib.get("style", "") for element in root.iter())
    assert "var(--c1)" in styles
    assert "var(--op-send)" in styles
    assert not re.search(r"#[0-9a-f]{6}", styles)
    assert not [element for element in root.iter() if "fill" in element.attrib]
    texts = list(root.iter("text"))
    assert {"a & b", 'id="x" #0072b2 url(#y)'} <= {element.text for element in texts}
    assert all("px" in element.attrib["style"] for element in texts)
    assert not re.search(r"\d\.\d{3}", "".join(re.findall(r' d="([^"]*)"', drawing("one"))))


def test_ids_differ_between_drawings() -> None:
    first, second = (set(re.findall(r'<[^>]* id="([^"]+)"', drawing(n))) for n in ("one", "two"))
    assert first
    assert not first & second
    assert all(name.startswith("one-") for name in first)
