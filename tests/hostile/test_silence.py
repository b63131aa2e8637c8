"""A host that answers nothing, and joins again as soon as the server has dropped it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mdgan.engine.server.collecting import Deadline
from mdgan.errors import BadInput
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Lost
from mdgan.transport.memory import MemoryNetwork
from tests.processes import wait_until
from tests.unit.engine.alone import Notes, hello, joined, welcomed
from tests.unit.engine.hand_clock import HandClock
from tests.unit.engine.played import LONG, Played, generator_after
from tests.unit.engine.stage import Stage

SILENT = 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    return HandClock(monkeypatch)


@contextmanager
def staged(folder: Path, **how: Any) -> Iterator[Stage]:
    """A run that is cleared away."""
    made = Stage(folder / "run", **how)
    try:
        yield made
    finally:
        made.close()


class Silent(threading.Thread):
    """Joins, says that it can go on, and nothing more; joins again when its link has ended."""

    def __init__(self, network: MemoryNetwork, *, cuts: bool = False) -> None:
        super().__init__(daemon=True)
        self._cuts = cuts
        self.refusals: list[str] = []
        self._network = network
        self._over = threading.Event()
        self._said = hello(SILENT)
        self._said["identity"] = {"version": "1.2", "seed": 0}
        self._link = Played(network, SILENT, **self._said).ready().link

    def run(self) -> None:
        while not self._over.wait(0.005):
            event = self._link.receive(0.01)
            if self._cuts and event is not None:  # it was asked
                self._over.wait(0.1)
                self._link.close()
                self._come_again()
            elif isinstance(event, Lost):
                self._come_again()

    def _come_again(self) -> None:
        while not self._over.wait(0.005):
            try:
                self._link = Played(self._network, SILENT, **self._said).ready().link
                return
            except BadInput as error:
                self.refusals.append(str(error))

    def end(self) -> None:
        self._over.set()
        self.join(LONG)


def test_it_stops_the_others_a_few_times_and_later_each_time(
    tmp_path: Path, clock: HandClock
) -> None:
    with staged(tmp_path, iterations=40, answer=0.4) as made:
        one, silent = made.play(1), Silent(made.network)
        silent.start()
        made.begin(one)
        while clock.after_answer(made, one, SILENT, 0.5) < 40:
            pass
        made.finished(one)
        silent.end()
        lost = made.events("lost")
        assert [event["workers"] for event in lost] in ([[SILENT]], [[SILENT]] * 2)
        assert lost[0]["reason"] == "no answer in 0.4 s; strike 1"
        assert any(
            f"rank {SILENT} did not answer; it may come back in" in s for s in silent.refusals
        )
        assert made.has_learnt(generator_after([[1]] * 40))


def test_cutting_its_own_link_is_no_way_around_it(tmp_path: Path) -> None:
    with staged(tmp_path, iterations=4000) as made:
        one, silent = made.play(1), Silent(made.network, cuts=True)
        silent.start()
        made.begin(one)
        while not silent.refusals:
            one.answer()
        silent.end()
        assert f"rank {SILENT} did not answer; it may come back in" in silent.refusals[0]
        assert len(made.events("lost")) < 20


def test_at_last_it_is_shut_out(tmp_path: Path, clock: HandClock) -> None:
    with staged(tmp_path, iterations=4000, answer=0.2, strikes=2, swap_seconds=0.1) as made:
        one, silent = made.play(1), Silent(made.network)
        silent.start()
        made.begin(one)
        while not made.events("shut out"):
            clock.after_answer(made, one, SILENT, 0.25)
        message = f"rank {SILENT} was shut out"
        wait_until(lambda: any(text.endswith(message) for text in silent.refusals), message)
        silent.end()
        (out,) = made.events("shut out")
        assert out["workers"] == [SILENT]
        assert out["reason"] == "strike 2: no answer in 0.2 s"


def test_once_it_is_known_what_is_usual_it_is_not_waited_for_so_long(
    tmp_path: Path, clock: HandClock
) -> None:
    with staged(tmp_path, iterations=30, answer=100 * LONG, swap_seconds=0.2) as made:
        one, two = made.begin_with((1,), (SILENT,))
        for i in range(1, 21):
            one.answer(i)
            two.answer(i)
        clock.after_answer(made, one, SILENT, 0.45)
        made.finished(one)
        (lost,) = made.events("lost")
        assert (lost["workers"], lost["reason"]) == ([SILENT], "no answer in 0.4 s; strike 1")


def test_a_slow_machine_has_a_long_time() -> None:
    limits = Timeouts()
    deadline = Deadline(None, 0.5, limits)
    assert deadline.patience_seconds() == limits.answer, "nothing is known yet"
    deadline.times.extend([0.01] * 20)
    assert deadline.patience_seconds() == 2 * limits.swap
    deadline.times.extend([20.0] * 200)
    assert deadline.patience_seconds() == 400.0
    deadline.times.extend([300.0] * 200)
    assert deadline.patience_seconds() == limits.answer


def test_who_takes_part_for_long_is_forgiven() -> None:
    peers, hellos = joined(4, 1, 2, 3)
    admission = peers.admission
    assert admission.give_up(2, 0.0, 0.0) == 1
    assert admission.give_up(2, 0.0, 0.0) == 2
    assert admission.give_up(2, 10.0, 199.0) == 3
    assert admission.give_up(2, 10.0, 201.0) == 1
    peers.lose(2, "gone")
    refusal = admission.admit(hellos[2])
    assert refusal == "rank 2 did not answer; it may come back in 10 s"


def test_no_host_stays_away_while_training_waits_for_it() -> None:
    peers, hellos = joined(4, 1, 2, 3)
    for host in (1, 2, 3):
        peers.give_up_on(host, 600.0)
        if host == 1:
            assert peers.admission.admit(hellos[1]) == (
                "rank 1 did not answer; it may come back in 60 s"
            )
            with peers.admission.awaiting(None, lambda rank: rank == 1):
                welcomed(peers.admission.admit(hellos[1]))
                peers.admission.lost(1)
    welcomed(peers.admission.admit(hellos[2]))


def test_another_rank_is_no_way_around_it() -> None:
    notes = Notes()
    peers, _ = joined(4, 1, 3, notes=notes)
    own_hello = {**hello(2), "certificate": "mallory's"}
    welcomed(peers.admission.admit(own_hello))
    peers.joined(2, own_hello)
    peers.arrived(2)
    peers.give_up_on(2, 600.0)
    other = {**hello(7), "certificate": "mallory's"}
    assert "rank 7 did not answer" in str(peers.admission.admit(other))
    welcomed(peers.admission.admit({**hello(8), "certificate": "bob's"}))


@pytest.mark.parametrize("times", [1, 2, 3, 20])
def test_it_stays_away_twice_as_long_each_time(times: int) -> None:
    peers, hellos = joined(4, 1, 2, 3)
    for _ in range(times - 1):
        peers.admission.give_up(2, 0.0, 0.0)
    peers.admission.give_up(2, 600.0, 0.0)
    peers.lose(2, "gone")
    away = 60 * 2 ** min(times - 1, 10)
    refusal = str(peers.admission.admit(hellos[2]))
    assert refusal == f"rank 2 did not answer; it may come back in {away} s"
