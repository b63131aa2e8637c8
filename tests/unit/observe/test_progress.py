import sys

import pytest

from mdgan.observe.progress import Progress, duration
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
        "iteration 300/1000 | 15.0 it/s | loss G nan D inf | 47 s left\n"
        "iteration 1000/1000 | 33.3 it/s | 0 s left\n",
    )


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


def test_a_run_that_goes_on_is_not_faster_for_what_was_done_before(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Progress(1000)
    shown.show(0, (0.5, 0.5))
    assert "| 0.0 it/s | loss G 0.500 D 0.500 | unknown time left" in capsys.readouterr().err
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
