"""Whom the server blames for what swaps hand on: discriminators as they came, or spoilt ones."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping

import torch
from torch import Tensor

_NEWEST = 40  # swaps of which it counts what was refused, so that chance does not add up
_NUM_HOLDERS = 2
"""Workers before its giver that may have spoilt a discriminator; others have healed it since."""
_NEARLY_ALL = 0.8
_ENOUGH = 4  # hosts that have refused what a worker has held; from then on it gives nothing


class Handovers:
    """Counts, for each worker, the hosts that took from it what is no discriminator that learns.

    A worker that trains gives away something else than it took in its swap before. What it took is
    what its giver says, and what it gave is what its taker says: a free rider's own word is not
    needed. One host could say anything, so the others are counted that tell the same of a worker.

    What a taker has tried and refuses may have been spoilt by any of those who held it last. The
    one that nearly all that was refused has in common alone is to blame.
    """

    def __init__(self) -> None:
        self._took: dict[int, str] = {}
        self._witnesses: defaultdict[int, set[Hashable]] = defaultdict(set)
        # By worker, who held its discriminator before, the last one first.
        self._holders: dict[int, tuple[int, ...]] = {}
        # By giver and the host that took from it last: who may have spoilt what that refused, and
        # after how many swaps.
        self._refusals: dict[tuple[int, Hashable], tuple[tuple[int, ...], int]] = {}
        self._num_swaps = 0
        self.spoilers: dict[int, int] = {}
        """By worker that has spoilt discriminators, how many hosts refused them."""

    def note(
        self,
        moves: Mapping[int, int],
        given: Mapping[int, str],
        taken: Mapping[int, str],
        owner_of: Mapping[int, Hashable],
        refused: Collection[int] = (),
    ) -> None:
        """Takes in one swap: its moves, what givers and takers report, each worker's owner.

        Where most workers hand on what they took, or most refuse it, none is blamed.
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
        self._holders |= {taker: own for taker, own in held.items() if taker not in refused}
        self._look_for_spoiler(owner_of)

    def state(self) -> dict[str, Tensor]:
        """Who has spoilt discriminators, and how many hosts refused them."""
        return {".spoilers": torch.tensor([*self.spoilers.items()])} if self.spoilers else {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Those of `state` give no more."""
        self.spoilers = dict(state[".spoilers"].tolist()) if state else {}

    def forget(self, workers: Collection[int]) -> None:
        """Others have these ranks now: what the ranks have held says nothing of them."""
        for n in workers:
            for known in (self._took, self._witnesses, self._holders, self.spoilers):
                known.pop(n, None)
        for taker, holders in self._holders.items():
            self._holders[taker] = tuple(n for n in holders if n not in workers)
        open_ = self._refusals.items()
        self._refusals = {key: v for key, v in open_ if not {key[0], *v[0]} & set(workers)}

    def num_witnesses(self, worker: int) -> int:
        """How many other hosts took from a worker what it had just been given."""
        return len(self._witnesses.get(worker, ()))

    def accused(self) -> set[int]:
        """The workers of which any host has told such a thing."""
        return self._witnesses.keys() | self.spoilers.keys()

    def _look_for_spoiler(self, owner_of: Mapping[int, Hashable]) -> None:
        """Looks for what refused discriminators have in common that no known spoiler has had."""
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
        # What a suspect says against another one does not clear it.
        is_first = all(
            len(hosts - {owner_of[n]}) > len(found) for n, found in witnesses.items() if n != first
        )
        if is_first and len(hosts) >= _ENOUGH and share >= _NEARLY_ALL:
            self.spoilers[first] = len(hosts)
