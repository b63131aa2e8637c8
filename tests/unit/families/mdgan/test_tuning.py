"""What is fastest is kept; groups and the clock are played."""

from collections.abc import Mapping

import pytest
import torch

from mdgan.families.mdgan.algorithm import Assignment
from mdgan.families.mdgan.grouping import Candidate, Tuning
from mdgan.families.mdgan.worker import Answers
from mdgan.gan.labels import Samples

WORKERS = {1: Assignment(0, 1), 2: Assignment(0, 1)}


class Machine:
    """A clock that only played work moves, and what was done in which way."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.looks = 0
        self.threads: list[int] = []
        self.did: list[str] = []
        self.told: list[str] = []
        self.groups: list[Played] = []

    def clock(self) -> float:
        self.looks += 1
        return self.seconds

    def tuning(self, *candidates: tuple[str, float, int], tries: int = 3) -> Tuning:
        """Candidates by name, seconds a worker and number of threads."""
        self.groups = [Played(self, name, cost) for name, cost, _ in candidates]
        made = [
            Candidate(name, group, num_threads)
            for (name, _, num_threads), group in zip(candidates, self.groups, strict=True)
        ]
        return Tuning(made, self.threads.append, self.clock, self.told.append, tries)


class Played:
    """A group that takes as long as it is told, and ten times as long at first."""

    def __init__(self, machine: Machine, name: str, cost: float) -> None:
        self._machine = machine
        self._name = name
        self.cost = cost
        self._is_cold = True

    def learn_real_halves(self) -> None:
        self._machine.did.append(f"{self._name} real")
        self._machine.seconds += len(WORKERS) * self.cost / 4

    def answer(self, generated: Samples, assignment: Mapping[int, Assignment]) -> Answers:
        self._machine.did.append(self._name)
        self._machine.seconds += len(assignment) * self.cost * (7.5 if self._is_cold else 0.75)
        self._is_cold = False
        return Answers(dict.fromkeys(assignment, generated.images), {}, {})

    def catch_up(self) -> None:
        self._machine.did.append(f"{self._name} late")


def iterate(tuning: Tuning, num: int, workers: Mapping[int, Assignment] = WORKERS) -> None:
    for _ in range(num):
        tuning.learn_real_halves()
        answers = tuning.answer(Samples(torch.zeros(1)), workers)
        assert answers.feedbacks.keys() == workers.keys()


def test_every_candidate_is_tried_and_the_fastest_kept() -> None:
    machine = Machine()
    tuning = machine.tuning(("a", 0.045, 2), ("b", 0.040, 1), ("c", 0.050, 2))
    iterate(tuning, 12)
    work = [name for name in machine.did if "real" not in name]
    assert work == ["a"] * 4 + ["b"] * 4 + ["c"] * 4
    assert machine.threads == [2, 1, 2, 1]
    assert machine.told == ["b: 40 ms a worker (a: 45 ms, c: 50 ms)"]
    machine.did.clear()
    looks = machine.looks
    iterate(tuning, 3)
    assert machine.did == ["b real", "b"] * 3
    assert machine.looks == looks  # to look may mean to wait for a GPU
    assert len(machine.threads) == 4


def test_before_it_knows_it_says_nothing() -> None:
    machine = Machine()
    iterate(machine.tuning(("a", 0.1, 1), ("b", 0.2, 1)), 7)
    assert machine.told == []


def test_the_first_wins_a_tie() -> None:
    machine = Machine()
    tuning = machine.tuning(("a", 0.1, 2), ("b", 0.1, 1))
    iterate(tuning, 8)
    assert machine.threads[-1] == 2


def test_one_slow_iteration_decides_nothing() -> None:
    machine = Machine()
    tuning = machine.tuning(("a", 0.1, 1), ("b", 0.2, 1))
    iterate(tuning, 2)
    machine.groups[0].cost = 9.0
    iterate(tuning, 1)
    machine.groups[0].cost = 0.1
    iterate(tuning, 5)
    assert machine.told == ["a: 100 ms a worker (b: 200 ms)"]


@pytest.mark.parametrize("asked", [{1: Assignment(0, 1)}, WORKERS])
def test_time_counts_by_worker(asked: Mapping[int, Assignment]) -> None:
    """Answers of one worker are not called fast because there is only one."""
    machine = Machine()
    tuning = machine.tuning(("a", 0.1, 1), ("b", 0.1, 1))
    for _ in range(4):
        tuning.answer(Samples(torch.zeros(1)), WORKERS)
    for _ in range(4):
        tuning.answer(Samples(torch.zeros(1)), asked)
    assert machine.told == ["a: 75 ms a worker (b: 75 ms)"]


def test_asking_nobody_is_no_iteration() -> None:
    machine = Machine()
    tuning = machine.tuning(("a", 0.1, 1), ("b", 0.1, 1))
    iterate(tuning, 50, {})
    assert set(machine.did) == {"a real", "a"}


def test_a_single_candidate_is_kept() -> None:
    machine = Machine()
    tuning = machine.tuning(("a", 0.1, 1))
    iterate(tuning, 5)
    assert machine.told == ["a: 100 ms a worker"]
