import re
from xml.etree import ElementTree

from mdgan.report.figures.charts import legend, new_axes, operation_style, styled
from mdgan.report.figures.export import inline_svg


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
