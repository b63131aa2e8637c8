import sys

import pytest

from mdgan.observe import progress
from mdgan.observe.progress import Progress, duration


class Clock:
    """A clock that goes only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def test_a_log_gets_a_line_each_time(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress(1000)
    clock.now += 10
    shown.show(100, (0.6931, 1.38629))
    clock.now += 10
    shown.show(300, (-0.5, 12.0))
    assert capsys.readouterr() == (
        "",
        "iteration 100/1000 | 10.0 it/s | loss G 0.693 D 1.386 | 1 min 30 s left\n"
        "iteration 300/1000 | 15.0 it/s | loss G -0.500 D 12.000 | 47 s left\n",
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
    clock.now += 100
    shown.begin(900)
    clock.now += 5
    shown.show(910, (0.5, 0.5))
    line = capsys.readouterr().err
    assert "iteration 910/1000 | 2.0 it/s" in line
    assert line.endswith("| 45 s left\n")


def test_without_a_rate_the_time_left_is_unknown(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    Progress(1000).show(0, (0.5, 0.5))
    line = capsys.readouterr().err
    assert "| 0.0 it/s |" in line
    assert "| unknown time left" in line


def test_at_the_end_nothing_is_left(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress(50)
    clock.now += 2
    shown.show(50, (0.5, 0.5))
    line = capsys.readouterr().err
    assert "iteration 50/50 | 25.0 it/s" in line
    assert line.endswith("| 0 s left\n")


def test_losses_that_are_no_numbers_are_shown(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    Progress(50).show(1, (float("nan"), float("inf")))
    assert "loss G nan D inf" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (42, "42 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (60, "1 min 00 s"),
        (185, "3 min 05 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (3600, "1 h 00 min"),
        (7620, "2 h 07 min"),
        (100 * 3600, "100 h 00 min"),
        (float("inf"), "unknown time"),
    ],
)
def test_durations_are_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
