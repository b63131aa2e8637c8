import sys

import pytest

from mdgan.observe.text_table import text_table

LONG = "a long reason " * 40


def test_columns_are_aligned_and_nothing_is_cut_where_there_is_no_terminal() -> None:
    table = text_table([("lost", "7", LONG), ("swap", "1234", "")], ("what", "i", "why"), right=[1])
    assert table.splitlines() == ["what     i  why", f"lost     7  {LONG.rstrip()}", "swap  1234"]


def test_without_headings_there_are_only_rows() -> None:
    assert text_table([("a", "1"), ("bcd", "2")], indent=2) == "  a    1\n  bcd  2"


def test_cells_are_no_markup() -> None:
    cell = "[red]x[/red] [/] :smile:"
    assert text_table([(cell,)]) == cell


def test_a_terminal_gets_lines_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = text_table([("lost", LONG)], indent=2).splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 40
    assert " ".join(" ".join(lines).split()) == f"lost {LONG}".strip()
    assert not any("\x1b" in line for line in lines)
