"""What the server knows of one host, and of what it has answered."""

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mdgan.engine.server.standing import Standing
from mdgan.messages import Message

Hosts = Mapping[int, Collection[int]]  # hosts, each with the workers that a question is for


def workers_of(hosts: Hosts) -> list[int]:
    """The workers of some hosts, in increasing order."""
    return sorted(worker for carried in hosts.values() for worker in carried)


class HostAnswer(NamedTuple):
    """A host has answered a question."""

    host: int
    workers: list[int]  # those that were asked and may take part
    message: Message
    num_bytes: int


@dataclass
class Member:
    """One host that takes part."""

    workers: list[int]  # in increasing order; those that were shut out are left out
    # Where other hosts fetch discriminators from it; None if they need not know.
    address: str | None
    arriving: bool = True  # it has joined, but some worker still lacks a state to go on with
    since: float = 0.0  # when it had all that it needs to take part, by the monotonic clock
    # What the host said of its workers when it arrived, for the algorithm.
    told: Mapping[str, Any] = field(default_factory=dict)
    # With which other hosts agree on secrets with it (`SignedKey`); empty if it has none.
    key: Mapping[str, Any] = field(default_factory=dict)
    # Of the certificate that has signed it, if that tells it from other hosts.
    fingerprint: str = ""
    knows: dict[int, str] = field(default_factory=dict)  # by host, the key that it was told last
    # By iteration, the questions that it has not answered, in order: the workers asked.
    owes: dict[int, list[list[int]]] = field(default_factory=dict)
    awaited_since: float = 0.0  # it has owed an answer since then, if it owes one

    def owe(self, iteration: int, workers: Iterable[int]) -> None:
        """Some of its workers were asked for something."""
        if not self.owes:
            self.awaited_since = time.monotonic()
        self.owes.setdefault(iteration, []).append(list(workers))

    def paid(self, iteration: int) -> list[int]:
        """It has answered a question, of which it owes one; the workers that were asked."""
        asked = self.owes[iteration].pop(0)  # a host answers in the order of the questions
        if not self.owes[iteration]:
            del self.owes[iteration]
        self.awaited_since = time.monotonic()
        return asked


class Strikes:
    """Strikes, so many of which put a worker out; `standing` has them, by host."""

    def __init__(self, limit: int, standing: Standing | None = None) -> None:
        self.unusable: set[int] = set()
        self.limit = limit
        self._counts = standing or Standing(dict)
        self.excused: set[int] = set()

    def accept(self, worker: int) -> None:
        """A worker's answer can be used."""
        self.unusable.discard(worker)
        self.excused.discard(worker)

    def refuse(self, worker: int) -> None:
        """A worker's answer cannot be used: a strike, unless the worker is excused."""
        self.unusable.add(worker)
        if worker not in self.excused:
            self._counts.strike(worker)

    def blame(self, workers: Collection[int]) -> None:
        """A strike for some workers, excused or not: what their host said makes no sense."""
        self._counts.blame(workers, self.limit)

    def excuse(self, workers: Iterable[int]) -> None:
        """Refusals of workers without a strike count for nothing until one answers well."""
        self.excused.update(worker for worker in workers if not self.strikes_of(worker))

    def strikes_of(self, worker: int) -> int:
        """How many strikes a worker has."""
        return self._counts.strikes_of(worker)

    def is_out(self, worker: int) -> bool:
        """Whether a worker has used up its strikes."""
        return self.strikes_of(worker) >= self.limit
