"""Swaps at the server: how often, which pairs, the orders to hosts, and what hosts report back.

Hardy et al. let every worker choose a partner (Algorithm 1, SWAP); Darmanger and Gombas draw
non-overlapping pairs at the server (section 5.3), which is our default.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from mdgan.engine.server.engine import Engine
from mdgan.engine.stages.handovers import Handovers
from mdgan.families.contract import ClassCounts
from mdgan.families.mdgan import messages
from mdgan.families.mdgan.settings import MEANS, MDGANSettings
from mdgan.gan.randomness import derive_seed, generator_for
from mdgan.messages import Message
from mdgan.records.values import in_words

_WITNESSES = 2  # hosts that a giver keeps waiting before it may give to none
_MOST_APART = 25
"""After more iterations apart, the mean of two discriminators is worse than either."""
_UNEVEN = 0.5  # the part of the largest distance of classes from which workers are uneven
_WEIGHTS_AN_ITERATION = 1 << 16  # with Adam's two moments, 0.75 MiB of each worker in an iteration

Moves = dict[int, int]  # giver → taker. Workers that are not in it keep their discriminator.


def swap_every(
    settings: MDGANSettings,
    mean_shard_size: float,
    class_counts: ClassCounts = (),
    num_weights: int = 0,
) -> int:
    """The number of iterations between two swaps, `--swap-interval` or mE/b; 0 for never.

    See Hardy et al. 2019, Algorithm 1, line 11. If the user sets neither, workers swap once an
    epoch; with `--swap means` after 25 iterations at the latest; and where they hold different
    classes, after `interval_for` iterations at the latest.
    """
    swaps, iterations_of = settings.swaps, settings.training.iterations_of
    if swaps.swap_interval is not None:
        return swaps.swap_interval
    if swaps.swap_epochs is not None:
        return iterations_of(swaps.swap_epochs, mean_shard_size)
    usual = iterations_of(1.0, mean_shard_size)
    if swaps.swap == MEANS:
        usual = min(usual, _MOST_APART)
    return min(usual, interval_for(num_weights)) if are_uneven(class_counts) else usual


def are_uneven(class_counts: Sequence[Sequence[float]]) -> bool:
    """Whether workers hold such different classes that a discriminator should soon move on.

    A discriminator that stays calls only the classes of its worker real, and the generator unlearns
    the others. The measure is the total variation distance between a worker's mix of classes and
    that of all workers together, in the mean over workers. Workers are uneven if this is more than
    half of what it would be if each worker held a single class: Σ p (1 − p).
    """
    held = [counts for counts in class_counts if sum(counts)]
    num_classes = max(map(len, held), default=0)
    padded = [[*counts, *[0] * (num_classes - len(counts))] for counts in held]
    of_all = shares([sum(of_class) for of_class in zip(*padded, strict=True)])
    distances = [
        sum(abs(p - q) for p, q in zip(shares(counts), of_all, strict=True)) / 2
        for counts in padded
    ]
    most = sum(share * (1 - share) for share in of_all)
    return bool(held) and sum(distances) / len(held) > _UNEVEN * most


def shares(counts: Sequence[float]) -> list[float]:
    """Each count as a part of their sum; empty if that is 0."""
    total = sum(counts)
    return [count / total for count in counts] if total else []


def interval_for(num_weights: int) -> int:
    """The iterations between two swaps that links can bear: 1 for every 65,536 weights of D."""
    return max(1, -(-num_weights // _WEIGHTS_AN_ITERATION))


def draw_swap(form: str, seed: int, number: int, workers: Sequence[int]) -> Moves:
    """Draws swap `number` of a run, counted from 0; fewer than two workers make no moves."""
    ordered = sorted(workers)
    if len(ordered) < 2:
        return {}
    draw = _derangement if form == "derangement" else _pairs
    return draw(seed, number, ordered)


def _pairs(seed: int, number: int, workers: list[int]) -> Moves:
    """Draws pairs that do not overlap; each member gives to the other."""
    active = list(workers)
    if len(active) % 2:
        active.remove(_sits_out(seed, number, workers))
    order = _shuffled(active, derive_seed(seed, "pairs", number))
    moves: Moves = {}
    for first, second in zip(order[::2], order[1::2], strict=True):
        moves[first], moves[second] = second, first
    return moves


def _derangement(seed: int, number: int, workers: list[int]) -> Moves:
    """Draws a uniformly random permutation in which no worker keeps its own discriminator."""
    attempt = 0
    while True:  # a random permutation has no fixed point with probability ≥ 1/3 (N ≥ 2)
        takers = _shuffled(workers, derive_seed(seed, "derangement", number, attempt))
        if all(giver != taker for giver, taker in zip(workers, takers, strict=True)):
            return dict(zip(workers, takers, strict=True))
        attempt += 1


def _sits_out(seed: int, number: int, workers: list[int]) -> int:
    """The worker without a partner in swap `number`, for an odd count of at least 3."""
    round_number, turn = divmod(number, len(workers))
    order = _shuffled(workers, derive_seed(seed, "sits-out", round_number))
    if round_number:
        before = _shuffled(workers, derive_seed(seed, "sits-out", round_number - 1))
        if before[-1] == order[0]:  # the only way to sit out twice in a row
            order[0], order[1] = order[1], order[0]
    return order[turn]


def _shuffled(workers: list[int], seed: int) -> list[int]:
    order = torch.randperm(len(workers), generator=generator_for(seed))
    return [workers[index] for index in order.tolist()]


class ServerSwaps:
    """Orders swaps, and records whether every bit of every discriminator arrived.

    If a host reports that another host kept it waiting, the server orders no more moves from that
    one to it. Once two hosts have reported the same host, it gives to none. So a host that lies
    about its waiting harms itself alone: only two hosts together can exclude a third.

    Attributes:
        agree: whether honest discriminators should agree on which samples are real.
    """

    agree = True

    def __init__(self, form: str, seed: int, handovers: Handovers) -> None:
        self.num_swaps = 0
        self.handovers = handovers
        self._form = form
        self._seed = seed
        self._records: dict[int, _SwapRecord] = {}
        self._waited_for: dict[int, dict[int, str]] = {}  # giver → host that waited → identity
        self._num_failed = 0

    def order(self, i: int, engine: Engine, holders: Collection[int] | None = None) -> Moves:
        """Draws a swap after iteration i among the free workers, and sends SWAP to their hosts.

        Only `holders`, if not None, have a discriminator to give. A worker gives none if the server
        could not use its last answer, since its discriminator may be broken, or if it has spoilt
        others. A taker gets no strike for bad answers until it has given a good one: the
        discriminator that it took may be to blame.
        """
        free = engine.peers.free()
        workers = sorted(worker for carried in free.values() for worker in carried)
        moves = draw_swap(self._form, self._seed, self.num_swaps, workers=workers)
        broken = engine.peers.strikes.unusable | self.handovers.spoilers.keys()
        host_of, addresses = engine.peers.host_of(), engine.peers.addresses()
        moves = {
            giver: taker
            for giver, taker in moves.items()
            if giver not in broken and (holders is None or giver in holders)
            if not self._is_too_slow(host_of[giver], host_of[taker])
        }
        engine.peers.strikes.excuse(moves.values())
        self.num_swaps += 1
        record = _SwapRecord(moves, {n: host_of[n] for n in workers}, means=self._form == MEANS)
        self._records[i] = record
        pairs = sorted({(host_of[giver], host_of[taker]) for giver, taker in moves.items()})
        tickets = engine.transport.order_exchange(i, pairs)
        engine.peers.tell_keys(free)
        for host, carried in free.items():
            order = messages.swap(
                i,
                host,
                {g: t for g, t in moves.items() if g in carried or t in carried},
                host_of,
                addresses,
                tickets,
                means=record.means,
                agree=self.agree,
            )
            engine.tell(host, order)
        return moves

    def note(self, engine: Engine, host: int, message: Message) -> None:
        """Takes in a host's SWAPPED message."""
        record = self._records.get(message.iteration)
        if record is None:
            return
        slow = set(message.fields["slow"])
        record.note(host, message)
        for giver in record.givers_of(host) & slow & engine.peers.hosts().keys():
            self._waited_for.setdefault(giver, {})[host] = engine.peers.identity(host)
            others = "other hosts" if self._is_too_slow(giver) else f"host {host}"
            engine.note(
                f"host {giver} kept host {host} waiting in the swap of iteration "
                f"{message.iteration}; it gives no discriminators to {others} any more"
            )
        self._write_complete(engine)

    def _is_too_slow(self, giver: int, taker: int | None = None) -> bool:
        """Whether a giver may not give to a taker, both hosts; without `taker`, to any host."""
        waited = self._waited_for.get(giver, {})
        return taker in waited or len(set(waited.values())) >= _WITNESSES

    def on_lost(self, engine: Engine) -> None:
        """Removes lost workers from the swaps whose reports are outstanding."""
        live = engine.peers.workers()
        for record in self._records.values():
            record.lost |= record.silent - set(live)
            record.silent -= record.lost
        self._write_complete(engine)

    def _write_complete(self, engine: Engine) -> None:
        for iteration, record in list(self._records.items()):
            if not record.silent:
                engine.event("swap", iteration, **record.content())
                self._log_failed(engine, iteration, record)
                owner_of = {n: engine.peers.identity(host) for n, host in record.host_of.items()}
                self.handovers.note_swap(
                    record.moves, record.given, record.taken, owner_of, record.refused
                )
                del self._records[iteration]

    def _log_failed(self, engine: Engine, iteration: int, record: "_SwapRecord") -> None:
        """Logs the 1st, 2nd, 4th, 8th, … swap in which a live worker got no discriminator."""
        if not (failed := record.failed()):
            return
        self._num_failed += 1
        if self._num_failed.bit_count() == 1:
            engine.note(
                f"rank(s) {in_words(failed)} got no discriminator that can be used in the swap of "
                f"iteration {iteration}, and keep their own; that was so in {self._num_failed} "
                f"swap(s) of {self.num_swaps}"
            )


@dataclass
class _SwapRecord:
    """The digests that hosts report of one swap; reports on `silent` workers are outstanding."""

    moves: Moves
    host_of: Mapping[int, int]
    means: bool
    given: dict[int, str] = field(default_factory=dict)
    taken: dict[int, str] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.silent = self.moves.keys() | set(self.moves.values())

    def note(self, host: int, message: Message) -> None:
        for digest_of, name in (self.given, "given"), (self.taken, "taken"):
            digests = {int(n): str(digest) for n, digest in message.fields[name].items()}
            digest_of.update({n: d for n, d in digests.items() if self.host_of.get(n) == host})
        refused = {int(n) for n in message.fields["refused"]} & set(self.moves.values())
        self.refused |= {n for n in refused if self.host_of.get(n) == host}
        self.silent = {worker for worker in self.silent if self.host_of[worker] != host}

    def givers_of(self, host: int) -> set[int]:
        pairs = {(self.host_of[g], self.host_of[t]) for g, t in self.moves.items()}
        return {giver for giver, taker in pairs if taker == host != giver}

    def failed(self) -> list[int]:
        takers = {taker for giver, taker in self.moves.items() if giver in self.given}
        return sorted(takers - self.taken.keys() - self.lost)

    def content(self) -> dict[str, Any]:
        arrived = (
            giver in self.given and self.taken.get(taker) == self.given[giver]
            for giver, taker in self.moves.items()
        )
        return {
            "moves": sorted(self.moves.items()),
            "means": self.means,
            "sits_out": sorted(self.host_of.keys() - self.moves.keys()),
            "given": self.given,
            "taken": self.taken,
            "refused": sorted(self.refused),
            "lost": sorted(self.lost),
            "exact": all(arrived),
        }
