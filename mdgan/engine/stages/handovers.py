"""Finds workers that give discriminators away unchanged, and workers that spoil them."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping

import torch
from torch import Tensor

_NEWEST = 40  # swaps whose refusals count: more would add up refusals by chance
_NUM_HOLDERS = 2
"""How many of the last holders of a discriminator may have spoilt it; learning heals older harm."""
_NEARLY_ALL = 0.8
_ENOUGH = 4  # hosts that refuse discriminators of one worker before it may give none


class Handovers:
    """Counts, for each worker, the hosts that witness against it.

    A worker that trains gives away another discriminator than it took in its last swap. Its giver
    reports the digest of the one, and its taker that of the other, so that the worker cannot lie.
    One host could report anything: several hosts must report the same of a worker.

    If a taker tries and refuses a discriminator, each of its last holders may have spoilt it. The
    spoiler is the single worker that has held nearly all of the refused discriminators.
    """

    def __init__(self) -> None:
        self._took: dict[int, str] = {}
        self._witnesses: defaultdict[int, set[Hashable]] = defaultdict(set)
        # By worker, the earlier holders of its discriminator, the last holder first.
        self._holders: dict[int, tuple[int, ...]] = {}
        # By giver and by owner of the taker that refused: the workers that may have spoilt the
        # discriminator, and the number of the swap.
        self._refusals: dict[tuple[int, Hashable], tuple[tuple[int, ...], int]] = {}
        self._num_swaps = 0
        self.spoilers: dict[int, int] = {}
        """Workers that have spoilt discriminators, and how many hosts refused these."""

    def note_swap(
        self,
        moves: Mapping[int, int],
        given: Mapping[int, str],
        taken: Mapping[int, str],
        owner_of: Mapping[int, Hashable],
        refused: Collection[int] = (),
    ) -> None:
        """Records a swap: its moves, the digests that givers and takers report, and owners.

        Blames none if most workers give unchanged discriminators, or if most takers refuse.
        """
        others = {g: t for g, t in moves.items() if owner_of[g] != owner_of[t]}
        handed_on = {
            giver: owner_of[taker]
            for giver, taker in others.items()
            if giver in self._took and taken.get(taker) == self._took[giver]
        }
        if 2 * len(handed_on) < len(moves):
            for giver, witness in handed_on.items():
                self._witnesses[giver].add(witness)
        self._took |= {taker: given[giver] for giver, taker in moves.items() if giver in given}

        self._num_swaps += 1
        holders = {giver: (giver, *self._holders.get(giver, ())) for giver in moves}
        is_usual = 2 * len(refused) > len(moves)
        for giver, taker in others.items():
            if taker in refused and not is_usual:
                self._refusals[giver, owner_of[taker]] = holders[giver], self._num_swaps
            elif taker in taken and taker not in refused:
                self._refusals.pop((giver, owner_of[taker]), None)
        held = {taker: holders[giver][:_NUM_HOLDERS] for giver, taker in moves.items()}
        self._holders |= {taker: past for taker, past in held.items() if taker not in refused}
        self._look_for_spoiler(owner_of)

    def state(self) -> dict[str, Tensor]:
        """The spoilers; see `spoilers`."""
        return {".spoilers": torch.tensor([*self.spoilers.items()])} if self.spoilers else {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores the spoilers, from which workers take no discriminator."""
        self.spoilers = dict(state[".spoilers"].tolist()) if state else {}

    def forget(self, workers: Collection[int]) -> None:
        """Forgets ranks that now belong to other owners."""
        for n in workers:
            for by_worker in (self._took, self._witnesses, self._holders, self.spoilers):
                by_worker.pop(n, None)
        for taker, holders in self._holders.items():
            self._holders[taker] = tuple(n for n in holders if n not in workers)
        open_ = self._refusals.items()
        self._refusals = {key: v for key, v in open_ if not {key[0], *v[0]} & set(workers)}

    def num_witnesses(self, worker: int) -> int:
        """How many other hosts got from a worker the discriminator that it had just taken."""
        return len(self._witnesses.get(worker, ()))

    def accused(self) -> set[int]:
        """The workers that a host witnesses against, and the spoilers."""
        return self._witnesses.keys() | self.spoilers.keys()

    def _look_for_spoiler(self, owner_of: Mapping[int, Hashable]) -> None:
        """Adds a spoiler if one worker held nearly all refused discriminators of no known one."""
        if len(owner_of) < _ENOUGH:
            return
        open_ = {
            key: holders
            for key, (holders, number) in self._refusals.items()
            if not self.spoilers.keys() & set(holders) and number > self._num_swaps - _NEWEST
        }
        witnesses = {
            worker: {host for (_, host), v in open_.items() if worker in v} - {owner_of[worker]}
            for worker in owner_of
        }
        first = min(witnesses, key=lambda n: (-len(witnesses[n]), n))
        hosts = witnesses[first]
        others = [v for (_, host), v in open_.items() if host != owner_of[first]]
        share = sum(first in v for v in others) / max(1, len(others))
        # A suspect does not clear itself by refusing discriminators of another worker.
        is_first = all(
            len(hosts - {owner_of[n]}) > len(its) for n, its in witnesses.items() if n != first
        )
        if is_first and len(hosts) >= _ENOUGH and share >= _NEARLY_ALL:
            self.spoilers[first] = len(hosts)
