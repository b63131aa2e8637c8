"""What the server knows of one host: its workers, its unanswered questions, its strikes."""

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
    """A host's answer to a question."""

    host: int
    workers: list[int]  # those of the asked workers that may take part
    message: Message
    num_bytes: int


@dataclass
class Member:
    """One host that takes part."""

    workers: list[int]  # in increasing order, without workers that were shut out
    # Where other hosts fetch discriminators from this host; None if they need not know.
    address: str | None
    arriving: bool = True  # it has joined, but one of its workers still lacks a state
    since: float = 0.0  # when all its workers had states, by the monotonic clock
    # What the host's READY message says of its workers, for the algorithm.
    told: Mapping[str, Any] = field(default_factory=dict)
    # The `SignedKey` by which other hosts encrypt for it; empty if it has none.
    key: Mapping[str, Any] = field(default_factory=dict)
    # The fingerprint of the certificate that signed `key`, if no other host has that certificate.
    fingerprint: str = ""
    knows: dict[int, str] = field(default_factory=dict)  # other host → its key, as last sent
    # Iteration → unanswered questions in the order asked, each the list of its workers.
    owes: dict[int, list[list[int]]] = field(default_factory=dict)
    awaited_since: float = 0.0  # since when it has owed an answer, if it owes one

    def owe(self, iteration: int, workers: Iterable[int]) -> None:
        """Notes a question to some of the host's workers."""
        if not self.owes:
            self.awaited_since = time.monotonic()
        self.owes.setdefault(iteration, []).append(list(workers))

    def paid(self, iteration: int) -> list[int]:
        """Notes an answer to a question of an iteration; returns the workers that were asked."""
        asked_workers = self.owes[iteration].pop(0)  # a host answers questions in their order
        if not self.owes[iteration]:
            del self.owes[iteration]
        self.awaited_since = time.monotonic()
        return asked_workers


class Strikes:
    """Decides when a worker has too many strikes; `standing` holds the strikes of each host."""

    def __init__(self, limit: int, standing: Standing | None = None) -> None:
        self.unusable: set[int] = set()
        self.limit = limit
        self._counts = standing or Standing(dict)
        self.excused: set[int] = set()

    def accept(self, worker: int) -> None:
        """Notes that a worker's answer can be used."""
        self.unusable.discard(worker)
        self.excused.discard(worker)

    def refuse(self, worker: int) -> None:
        """Notes that a worker's answer cannot be used: a strike, unless the worker is excused."""
        self.unusable.add(worker)
        if worker not in self.excused:
            self._counts.strike(worker)

    def blame(self, workers: Collection[int]) -> None:
        """Gives workers a strike, excused or not, because their host sent a malformed message."""
        self._counts.blame(workers, self.limit)

    def excuse(self, workers: Iterable[int]) -> None:
        """Excuses workers without strikes: each gets none until it has answered well once."""
        self.excused.update(worker for worker in workers if not self.strikes_of(worker))

    def strikes_of(self, worker: int) -> int:
        """How many strikes a worker has."""
        return self._counts.strikes_of(worker)

    def is_out(self, worker: int) -> bool:
        """Whether a worker has used up its strikes."""
        return self.strikes_of(worker) >= self.limit
