"""The server's side of swaps: it draws which worker gives to which, and checks what arrived."""

from collections.abc import Collection, Mapping
from typing import Any

from mdgan.engine.server.engine import Engine
from mdgan.engine.server.keys_told import tell_keys
from mdgan.families.mdgan import messages
from mdgan.families.mdgan.free_riders import Handovers
from mdgan.families.mdgan.swap import Moves, draw_swap
from mdgan.messages import Message

_WITNESSES = 2


class ServerSwaps:
    """Orders swaps and records whether every bit of every discriminator arrived.

    A host that keeps another one waiting for long gives it no discriminator any more, and gives
    none to any host once two have waited for it. One that lies about that harms itself alone; it
    takes two of them to keep a third from giving.
    """

    def __init__(self, form: str, seed: int) -> None:
        self.num_swaps = 0
        self.handovers = Handovers()
        self._form = form
        self._seed = seed
        self._records: dict[int, _SwapRecord] = {}
        self._waited_for: dict[int, set[int]] = {}

    def order(
        self, iteration: int, engine: Engine, holders: Collection[int] | None = None
    ) -> Moves:
        """Draws a swap among the workers that are free, and tells their hosts.

        Only `holders`, if given, have a discriminator to give. A worker whose last answer could not
        be used gives nothing: what it has may be broken. It is not to blame for what it is given.
        """
        free = engine.peers.free()
        workers = sorted(worker for carried in free.values() for worker in carried)
        moves = draw_swap(self._form, self._seed, self.num_swaps, workers)
        broken = engine.peers.strikes.unusable
        host_of, addresses = engine.peers.host_of(), engine.peers.addresses()
        moves = {
            giver: taker
            for giver, taker in moves.items()
            if giver not in broken and (holders is None or giver in holders)
            if not self._is_too_slow(host_of[giver], host_of[taker])
        }
        engine.peers.strikes.excuse(moves.values())
        self.num_swaps += 1
        self._records[iteration] = _SwapRecord(moves, {n: host_of[n] for n in workers})
        tell_keys(engine.peers, engine.tell, free)
        for host, carried in free.items():
            share = {g: t for g, t in moves.items() if g in carried or t in carried}
            engine.tell(host, messages.swap(iteration, share, host_of, addresses))
        return moves

    def note(self, engine: Engine, host: int, message: Message) -> None:
        """Takes in a host's SWAPPED message."""
        record = self._records.get(message.iteration)
        if record is None:
            return
        slow = set(message.fields["slow"])
        record.note(host, message)
        for giver in record.givers_of(host) & slow & engine.peers.hosts().keys():
            self._waited_for.setdefault(giver, set()).add(host)
            others = "other hosts" if self._is_too_slow(giver) else f"host {host}"
            engine.note(
                f"host {giver} kept host {host} waiting in the swap of iteration "
                f"{message.iteration}; it gives no discriminators to {others} any more"
            )
        self._write_complete(engine)

    def _is_too_slow(self, giver: int, taker: int | None = None) -> bool:
        """Whether a host gives nothing to another host, or to none."""
        waited = self._waited_for.get(giver, set()) - {giver}
        return taker in waited or len(waited) >= _WITNESSES

    def on_lost(self, engine: Engine) -> None:
        """Hosts are gone and will not report."""
        live = engine.peers.workers()
        for record in self._records.values():
            record.keep_waiting_for(live)
        self._write_complete(engine)

    def _write_complete(self, engine: Engine) -> None:
        for iteration, record in list(self._records.items()):
            if not record.silent:
                engine.event("swap", iteration, **record.content())
                self.handovers.note(record.moves, record.given, record.taken, record.host_of)
                del self._records[iteration]


class _SwapRecord:
    """The digests that hosts report of one swap; `silent` are the workers of which none has."""

    def __init__(self, moves: Moves, host_of: Mapping[int, int]) -> None:
        self.moves = moves
        self.host_of = host_of
        self.given: dict[int, str] = {}
        self.taken: dict[int, str] = {}
        self.silent = moves.keys() | set(moves.values())
        self._lost: set[int] = set()

    def note(self, host: int, message: Message) -> None:
        for known, name in (self.given, "given"), (self.taken, "taken"):
            digests = {int(n): str(digest) for n, digest in message.fields[name].items()}
            known.update({n: d for n, d in digests.items() if self.host_of.get(n) == host})
        self.silent = {worker for worker in self.silent if self.host_of[worker] != host}

    def givers_of(self, host: int) -> set[int]:
        """The hosts that a host was to fetch from."""
        pairs = {(self.host_of[g], self.host_of[t]) for g, t in self.moves.items()}
        return {giver for giver, taker in pairs if taker == host != giver}

    def keep_waiting_for(self, workers: Collection[int]) -> None:
        self._lost |= self.silent - set(workers)
        self.silent -= self._lost

    def content(self) -> dict[str, Any]:
        arrived = (
            giver in self.given and self.taken.get(taker) == self.given[giver]
            for giver, taker in self.moves.items()
        )
        return {
            "moves": sorted(self.moves.items()),
            "sits_out": sorted(self.host_of.keys() - self.moves.keys()),
            "given": self.given,
            "taken": self.taken,
            "lost": sorted(self._lost),
            "exact": all(arrived),
        }
