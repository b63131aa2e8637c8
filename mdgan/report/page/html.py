"""HTML in pieces."""

from collections.abc import Sequence
from html import escape

from mdgan.report.numbers.table import Table

_MOST_ROWS = 400


def text(value: object) -> str:
    """A value as it may stand between tags and in quoted attributes."""
    return escape(str(value), quote=True)


def tag(name: str, *content: str, **attributes: str | bool) -> str:
    """An element.

    Args:
        name: of the element.
        content: HTML, already escaped.
        attributes: texts, escaped here; True for one without a value, False for none. A trailing
            underscore is dropped and others become hyphens: `class_`, `aria_label`.
    """
    written = ""
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            written += f" {key}"
        elif value is not False:
            written += f' {key}="{text(value)}"'
    return f"<{name}{written}>{''.join(content)}</{name}>"


def table(rows: Table) -> str:
    """A table that scrolls in its own box if it is wide."""
    shown = rows.rows[:_MOST_ROWS]
    head = tag("tr", *(tag("th", text(cell), scope="col") for cell in rows.header))
    body = "".join(
        tag("tr", tag("th", text(row[0]), scope="row"), *(tag("td", text(c)) for c in row[1:]))
        for row in shown
    )
    left_out = len(rows.rows) - len(shown)
    more = tag("p", f"{left_out:,} more rows are left out.", class_="note") if left_out else ""
    whole = tag("table", tag("thead", head), tag("tbody", body))
    return tag("div", whole, class_="scroll", tabindex="0") + more


def folded(title: str, *content: str, open_: bool = False) -> str:
    """Content that opens when its title is clicked."""
    return tag("details", tag("summary", text(title)), *content, open_=open_)


def bullets(items: Sequence[str], class_: str = "") -> str:
    """A list of texts; nothing for no texts."""
    if not items:
        return ""
    return tag("ul", *(tag("li", text(item)) for item in items), class_=class_ or False)
