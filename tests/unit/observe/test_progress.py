import io

import pytest

from mdgan.observe import progress
from mdgan.observe.progress import Progress, duration


class Terminal(io.StringIO):
    """A stream that says it is a terminal, and what a reader would see on its screen."""

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        lines = [""]
        column = 0
        for character in self.getvalue():
            if character == "\n":
                lines.append("")
                column = 0
            elif character == "\r":
                column = 0
            else:
                line = lines[-1].ljust(column)
                lines[-1] = line[:column] + character + line[column + 1 :]
                column += 1
        return [line.rstrip() for line in lines]


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


def test_a_log_gets_a_line_each_time(clock: Clock) -> None:
    stream = io.StringIO()
    shown = Progress(1000, stream)
    clock.now += 10
    shown.show(100, 0.6931, 1.38629)
    clock.now += 10
    shown.show(300, -0.5, 12.0)
    assert stream.getvalue() == (
        "iteration 100/1000 | 10.0 it/s | loss G 0.693 D 1.386 | 1 min 30 s left\n"
        "iteration 300/1000 | 15.0 it/s | loss G -0.500 D 12.000 | 47 s left\n"
    )


def test_a_terminal_gets_one_line_that_is_rewritten(clock: Clock) -> None:
    stream = Terminal()
    shown = Progress(1000, stream)
    for iteration in (100, 300):
        clock.now += 10
        shown.show(iteration, 0.5, 1.5)
    assert "\n" not in stream.getvalue()
    assert stream.getvalue().count("\r") == 2
    assert stream.screen() == ["iteration 300/1000 | 15.0 it/s | loss G 0.500 D 1.500 | 47 s left"]


def test_a_shorter_line_leaves_nothing_of_the_longer_one(clock: Clock) -> None:
    stream = Terminal()
    shown = Progress(1000, stream)
    clock.now += 10
    shown.show(1, 123456.0, 123456.0)
    clock.now += 10
    shown.show(999, 0.5, 0.5)
    (line,) = stream.screen()
    assert line.startswith("iteration 999/1000")
    assert line.endswith(" left")
    assert line.count("left") == 1


def test_a_note_takes_the_place_of_the_live_line(clock: Clock) -> None:
    stream = Terminal()
    shown = Progress(1000, stream)
    clock.now += 10
    shown.show(100, 0.5, 0.5)
    shown.note("lost rank(s) 3")
    shown.show(100, 0.5, 0.5)
    note, line = stream.screen()
    assert note == "lost rank(s) 3"
    assert line.startswith("iteration 100/1000")


def test_a_note_in_a_log_is_a_line() -> None:
    stream = io.StringIO()
    Progress(10, stream).note("waiting")
    assert stream.getvalue() == "waiting\n"


def test_clearing_removes_the_live_line_and_nothing_else(clock: Clock) -> None:
    stream = Terminal()
    shown = Progress(1000, stream)
    shown.note("before")
    clock.now += 10
    shown.show(100, 0.5, 0.5)
    shown.clear()
    assert stream.screen() == ["before", ""]
    written = stream.getvalue()
    shown.clear()
    assert stream.getvalue() == written


def test_clearing_a_log_writes_nothing(clock: Clock) -> None:
    stream = io.StringIO()
    shown = Progress(1000, stream)
    shown.show(1, 0.5, 0.5)
    written = stream.getvalue()
    shown.clear()
    assert stream.getvalue() == written


@pytest.mark.parametrize(
    ("stream", "early", "late"), [(Terminal(), 0.05, 0.15), (io.StringIO(), 5.0, 10.0)]
)
def test_a_line_is_due_now_and_then(
    clock: Clock, stream: io.StringIO, early: float, late: float
) -> None:
    shown = Progress(1000, stream)
    assert shown.due()
    shown.show(1, 0.5, 0.5)
    assert not shown.due()
    clock.now += early
    assert not shown.due()
    clock.now += late - early
    assert shown.due()


def test_the_rate_is_of_late(clock: Clock) -> None:
    shown = Progress(10_000, io.StringIO())
    assert shown.rate() == 0.0
    for iteration in range(1, 31):
        clock.now += 1
        shown.show(iteration, 0.5, 0.5)
    assert shown.rate() == pytest.approx(1.0)
    for step in range(1, 31):
        clock.now += 1
        shown.show(30 + 50 * step, 0.5, 0.5)
    assert shown.rate() == pytest.approx(50.0)


def test_a_run_that_goes_on_is_not_faster_for_what_was_done_before(clock: Clock) -> None:
    stream = io.StringIO()
    shown = Progress(1000, stream)
    clock.now += 100
    shown.begin(900)
    clock.now += 5
    shown.show(910, 0.5, 0.5)
    assert "iteration 910/1000 | 2.0 it/s" in stream.getvalue()
    assert stream.getvalue().endswith("| 45 s left\n")


def test_without_a_rate_the_time_left_is_unknown(clock: Clock) -> None:
    stream = io.StringIO()
    Progress(1000, stream).show(0, 0.5, 0.5)
    assert "| 0.0 it/s |" in stream.getvalue()
    assert "| unknown time left" in stream.getvalue()


def test_at_the_end_nothing_is_left(clock: Clock) -> None:
    stream = io.StringIO()
    shown = Progress(50, stream)
    clock.now += 2
    shown.show(50, 0.5, 0.5)
    assert "iteration 50/50 | 25.0 it/s" in stream.getvalue()
    assert stream.getvalue().endswith("| 0 s left\n")


def test_losses_that_are_no_numbers_are_shown(clock: Clock) -> None:
    stream = io.StringIO()
    Progress(50, stream).show(1, float("nan"), float("inf"))
    assert "loss G nan D inf" in stream.getvalue()


def test_the_standard_error_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    Progress(50).note("here")
    assert capsys.readouterr() == ("", "here\n")


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
