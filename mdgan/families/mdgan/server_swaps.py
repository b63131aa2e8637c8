"""Swaps, as the server sees them: it draws who gives to whom and checks what arrived."""

from collections.abc import Collection, Mapping
from typing import Any

from mdgan import messages
from mdgan.engine.server.membership import Roster
from mdgan.families.mdgan.swap import Moves, draw_swap
from mdgan.messages import Message
from mdgan.observe.run_observer import RunObserver
from mdgan.settings.experiment import Experiment
from mdgan.transport.base import ServerTransport


class Swapping:
    """Orders swaps and records whether every bit of every discriminator arrived.

    Args:
        experiment: what is computed.
        transport: the server's end.
        roster: who takes part.
        observer: is told of every swap.

    Attributes:
        num_swaps: how many were ordered so far.
    """

    def __init__(
        self,
        experiment: Experiment,
        transport: ServerTransport,
        roster: Roster,
        observer: RunObserver,
    ) -> None:
        self.num_swaps = 0
        self._experiment = experiment
        self._transport = transport
        self._roster = roster
        self._observer = observer
        self._records: dict[int, _SwapRecord] = {}

    def order(self, iteration: int, holders: Collection[int] | None = None) -> Moves:
        """Draws a swap among the workers that are free, and tells their hosts.

        Args:
            iteration: i.
            holders: the workers that have a discriminator to give; everybody if None.

        Returns:
            The moves.
        """
        free = self._roster.free()
        workers = sorted(worker for carried in free.values() for worker in carried)
        moves = draw_swap(self._experiment.swap, self._experiment.seed, self.num_swaps, workers)
        if holders is not None:
            moves = {giver: taker for giver, taker in moves.items() if giver in holders}
        self.num_swaps += 1
        host_of, addresses = self._roster.host_of(), self._roster.addresses()
        self._records[iteration] = _SwapRecord(moves, {n: host_of[n] for n in workers})
        for host, carried in free.items():
            share = {
                giver: taker
                for giver, taker in moves.items()
                if giver in carried or taker in carried
            }
            self._transport.send(host, messages.swap(iteration, share, host_of, addresses))
        return moves

    def note(self, host: int, message: Message) -> None:
        """Takes in a host's SWAPPED message."""
        if message.iteration in self._records:
            self._records[message.iteration].note(host, message)
            self._write_complete()

    def lose(self, workers: Collection[int]) -> None:
        """Workers are gone and will not report."""
        for record in self._records.values():
            record.lose(workers)
        self._write_complete()

    def _write_complete(self) -> None:
        for iteration, record in list(self._records.items()):
            if record.complete():
                self._observer.event("swap", iteration, **record.content())
                del self._records[iteration]


class _SwapRecord:
    """The digests that hosts report of one swap."""

    def __init__(self, moves: Moves, host_of: Mapping[int, int]) -> None:
        self._moves = moves
        self._host_of = host_of
        self._sits_out = sorted(host_of.keys() - moves.keys())
        self._given: dict[int, str] = {}
        self._taken: dict[int, str] = {}
        self._lost: set[int] = set()
        self._silent = moves.keys() | set(moves.values())

    def note(self, host: int, message: Message) -> None:
        self._given.update({int(n): digest for n, digest in message.fields["given"].items()})
        self._taken.update({int(n): digest for n, digest in message.fields["taken"].items()})
        self._silent = {worker for worker in self._silent if self._host_of[worker] != host}

    def lose(self, workers: Collection[int]) -> None:
        self._lost |= self._silent & set(workers)
        self._silent -= self._lost

    def complete(self) -> bool:
        return not self._silent

    def content(self) -> dict[str, Any]:
        arrived = (
            giver in self._given and self._taken.get(taker) == self._given[giver]
            for giver, taker in self._moves.items()
        )
        return {
            "moves": sorted(self._moves.items()),
            "sits_out": self._sits_out,
            "given": self._given,
            "taken": self._taken,
            "lost": sorted(self._lost),
            "exact": all(arrived),
        }
