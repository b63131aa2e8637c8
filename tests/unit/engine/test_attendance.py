from collections.abc import Callable
from typing import Any

import pytest
from mdgan.engine.server.attendance import Attendance

from mdgan import messages
from mdgan.engine.server import attendance as module
from mdgan.families.mdgan.messages import BATCHES
from tests.unit.engine.played import answer_of
from tests.unit.engine.stage import Stage

MakeStage = Callable[..., Stage]


class Clock:
    """A clock that goes only when told to."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def counts(made: Stage) -> dict[str, Any]:
    (event,) = made.events("attendance")
    workers: dict[str, Any] = event["workers"]
    return workers


def test_everything_is_counted_by_worker(stage: MakeStage) -> None:
    made = stage()
    attendance = Attendance(made.members, made.observer)
    attendance.answered([1, 2])
    attendance.answered([2])
    attendance.late(3, [1])
    attendance.refused(4, 2, "NaN or Inf", 1)
    attendance.lost([1, 9])
    attendance.tell(5)
    assert counts(made) == {
        "1": {"answered": 1, "late": 1, "lost": 1},
        "2": {"answered": 2, "refused": 1},
        "9": {"lost": 1},
    }
    (refused,) = made.events("refused")
    assert (refused["iteration"], refused["worker"], refused["strikes"]) == (4, 2, 1)


def test_refusals_that_are_no_strikes_are_told_less_and_less_often(
    stage: MakeStage,
) -> None:
    made = stage()
    attendance = Attendance(made.members, made.observer)
    for i in range(1, 101):
        attendance.refused(i, 2, "NaN or Inf", 0)
    attendance.refused(101, 1, "NaN or Inf", 1)
    attendance.tell(101)
    assert counts(made) == {"1": {"refused": 1}, "2": {"refused": 100}}
    told = [event["iteration"] for event in made.events("refused")]
    assert told == [1, 2, 4, 8, 16, 32, 64, 101]


def test_a_short_delay_is_recorded_and_not_told(
    stage: MakeStage, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    made = stage()
    attendance = Attendance(made.members, made.observer)
    attendance.late(3, [1, 2])
    clock.now += 0.5
    attendance.tell_of_absent()
    attendance.back(5, [1])
    assert capsys.readouterr().err == ""
    (back,) = made.events("back")
    assert (back["workers"], back["missed"], back["late_seconds"]) == ([1], 2, 0.5)


def test_a_long_delay_is_told_once_and_so_is_its_end(
    stage: MakeStage, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    made = stage()
    attendance = Attendance(made.members, made.observer)
    attendance.late(3, [1])
    clock.now += 1.5
    attendance.tell_of_absent()
    attendance.tell_of_absent()
    attendance.back(40, [1])
    attendance.tell_of_absent()
    attendance.late(41, [1])
    clock.now += 0.5
    attendance.back(42, [1])
    assert capsys.readouterr().err == (
        "rank 1 has not answered since iteration 3; training goes on without it\n"
        "rank 1 answers again; it missed 37 iterations\n"
    )


@pytest.mark.parametrize("how", ["lost", "left"])
def test_a_late_worker_that_goes_is_no_longer_missed(
    stage: MakeStage, clock: Clock, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    made = stage(num_workers=3, iterations=3, deadline=(0.05, 0.0), quorum=0.6)
    one, two, late = made.begin_with((1,), (2,), (3,))
    for i in (1, 2):
        one.answer(i)
        two.answer(i)
    one.take(BATCHES, 3)
    if how == "left":
        late.send(messages.leave(1))
    late.die()
    made.wait_for_event(how)
    clock.now += 60
    one.send(answer_of(1, 3))
    made.finished(one, two)
    said = capsys.readouterr().err
    assert "rank 3 has not answered" not in said
    assert "rank(s) 3" in said


def test_a_worker_that_is_gone_is_not_said_to_be_late(
    stage: MakeStage, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    made = stage()
    for host in (made.play(1), made.play(2)):
        made.members.joined(host.number, host.hello)
    attendance = Attendance(made.members, made.observer)
    attendance.late(3, [1, 2])
    made.members.lose(1)
    attendance.settle()
    clock.now += 1.5
    attendance.tell_of_absent()
    assert "rank 1 " not in (said := capsys.readouterr().err)
    assert "rank 2 has not answered" in said
