"""What a user sees during a run: lines of progress, tables and grids."""

import io
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from mdgan.observe.progress import Progress, duration
from mdgan.observe.text_table import text_table
from mdgan.samples.kinds import grid_png
from tests.unit.observe.conftest import Clock


def test_a_log_gets_a_line_each_time(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress(1000)
    clock.now += 10
    shown.show(100, (0.6931, 1.38629))
    clock.now += 10
    shown.show(300, (float("nan"), float("inf")))
    clock.now += 10
    shown.show(1000)
    assert capsys.readouterr() == (
        "",
        "iteration 100/1000 | 10.0 it/s | loss G 0.693 D 1.386 | 1 min 30 s left\n"
        "iteration 300/1000 | 20.0 it/s | loss G nan D inf | 35 s left\n"
        "iteration 1000/1000 | 45.0 it/s | 0 s left\n",
    )


def test_a_loss_that_there_is_not_is_left_out(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Progress(1000)
    clock.now += 10
    shown.show(100, (0.5, float("nan")))
    assert "| loss G 0.500 |" in capsys.readouterr().err


def test_a_terminal_gets_one_line_that_is_rewritten(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    shown = Progress(1000)
    for iteration in (100, 300):
        clock.now += 10
        shown.show(iteration, (0.5, 1.5))
    lines = capsys.readouterr().err
    assert "\n" not in lines
    shown_lines = [line.split(" | ")[0] for line in lines.split("\r") if line.strip()]
    assert shown_lines == ["iteration 100/1000", "iteration 300/1000"]


@pytest.mark.parametrize(("terminal", "early", "late"), [(True, 0.05, 0.15), (False, 5.0, 10.0)])
def test_a_line_is_due_now_and_then(
    clock: Clock, terminal: bool, early: float, late: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    shown = Progress(1000)
    assert shown.due()
    shown.show(1, (0.5, 0.5))
    assert not shown.due()
    clock.now += early
    assert not shown.due()
    clock.now += late - early
    assert shown.due()


def test_the_rate_is_of_late(clock: Clock) -> None:
    shown = Progress(10_000)
    assert shown.rate() == 0.0
    for iteration in range(1, 31):
        clock.now += 1
        shown.show(iteration, (0.5, 0.5))
    assert shown.rate() == pytest.approx(1.0)
    for step in range(1, 31):
        clock.now += 1
        shown.show(30 + 50 * step, (0.5, 0.5))
    assert shown.rate() == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("iteration", "seconds", "is_told"), [(9, 1.9, False), (10, 0.1, True), (1, 600.0, False)]
)
def test_the_time_left_is_told_once_it_can_be_known(
    clock: Clock, capsys: pytest.CaptureFixture[str], iteration: int, seconds: float, is_told: bool
) -> None:
    shown = Progress(1000)
    shown.begin(100)
    clock.now += seconds
    shown.show(100 + iteration)
    assert (" left" in capsys.readouterr().err) == is_told


def test_a_run_that_goes_on_is_not_faster_for_what_was_done_before(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Progress(1000)
    shown.show(0, (0.5, 0.5))
    assert capsys.readouterr().err.endswith("| 0.0 it/s | loss G 0.500 D 0.500\n")
    clock.now += 100
    shown.begin(900)
    clock.now += 5
    shown.show(910, (0.5, 0.5))
    line = capsys.readouterr().err
    assert "iteration 910/1000 | 2.0 it/s" in line
    assert line.endswith("| 45 s left\n")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (185, "3 min 05 s")),
        *((3599.4, "59 min 59 s"), (3599.6, "1 h 00 min"), (7620, "2 h 07 min")),
        *((100 * 3600, "100 h 00 min"), (float("inf"), "unknown time")),
    ],
)
def test_durations_are_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


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


def decoded(png: bytes) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    assert png.startswith(b"\x89PNG")
    with Image.open(io.BytesIO(png)) as image:
        return np.asarray(image.convert("RGB"))


def shades(num: int, channels: int, side: int) -> Tensor:
    """Image i is of one grey, i steps of 10/127.5 above black."""
    values = torch.arange(num) * 10 / 127.5 - 1
    return values.view(-1, 1, 1, 1).expand(num, channels, side, side).contiguous()


@pytest.mark.parametrize(("num", "columns", "rows"), [(2, 2, 1), (5, 3, 2), (9, 3, 3)])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("side", "shown"), [(8, 48), (28, 56), (48, 48), (64, 64)])
def test_a_grid_is_as_square_as_can_be_and_large_enough_to_see(
    num: int, columns: int, rows: int, channels: int, side: int, shown: int
) -> None:
    pixels = decoded(grid_png(shades(num, channels, side)))
    cell = shown + 2
    assert pixels.shape == (rows * cell + 2, columns * cell + 2, 3)
    for n in range(num):
        top, left = n // columns * cell + 2, n % columns * cell + 2
        assert (pixels[top : top + shown, left : left + shown] == 10 * n).all()
    assert (pixels[:2] == 32).all()
    assert (pixels[:, :2] == 32).all()
    assert (pixels[-2:] == 32).all()
    assert (pixels[:, -2:] == 32).all()


def test_pixels_keep_their_places_and_colours() -> None:
    image = torch.tensor(
        [[[-1.0, 1.0], [0.0, -1.0]], [[-1.0, 0.0], [1.0, -1.0]], [[1.0, -1.0], [0.5, -1.0]]]
    )
    pixels = decoded(grid_png(torch.stack([image, torch.zeros(3, 2, 2)])))
    assert pixels.shape == (52, 102, 3)
    shown = pixels[2:50, 2:50]
    for row, column, colour in [
        (0, 0, (0, 0, 255)),
        (0, 1, (255, 128, 0)),
        (1, 0, (128, 255, 191)),
        (1, 1, (0, 0, 0)),
    ]:
        quarter = shown[24 * row : 24 * row + 24, 24 * column : 24 * column + 24]
        assert (np.abs(quarter.astype(int) - colour) <= 1).all()


def test_values_outside_are_clamped() -> None:
    pixels = decoded(grid_png(torch.stack([torch.full((1, 48, 48), v) for v in (-7.0, 7.0)])))
    assert (pixels[2:50, 2:50] == 0).all()
    assert (pixels[2:50, 52:100] == 255).all()


def test_the_time_left_does_not_count_how_long_machines_were_awaited(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Progress(101)
    clock.now += 600  # until all are there
    for iteration in (1, 2):
        shown.show(iteration)
        clock.now += 2
    assert capsys.readouterr().err.splitlines() == [
        "iteration 1/101 | 0.0 it/s",
        "iteration 2/101 | 0.5 it/s | 3 min 18 s left",
    ]
