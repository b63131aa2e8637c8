"""`--participation C`: only a fraction of the workers hold a discriminator at a time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mdgan.engine.settings import num_participants
from mdgan.gan.randomness import generator_for


@dataclass
class Holders:
    """Which workers hold a discriminator: `now`, a fraction C, or None for all if C is 1.

    The server draws swaps among all workers, so that discriminators wander over all shards (Hardy
    et al. 2019, section VII.4). A worker that gives to one without a discriminator, and gets none,
    has nothing to do until a swap brings it one.
    """

    fraction: float
    seed: int
    now: set[int] | None = None
    _num_drawn: int = 0
    _too_many: bool = False  # after --resume with a smaller C, until the next choice

    def among(self, workers: Iterable[int]) -> set[int] | None:
        """The holders among live workers that are free; None for all of them.

        Another worker replaces a lost holder, with the discriminator that it had last itself.
        """
        if self.fraction == 1:
            return None
        live = sorted(workers)
        holders = set(live) & (self.now or set())
        wanted = num_participants(self.fraction, len(live))
        missing = wanted - len(holders)
        if missing > 0:
            holders |= self._draw([n for n in live if n not in holders], missing)
        elif self._too_many:
            holders = self._draw(sorted(holders), wanted)
        self._too_many = False
        self.now = holders
        return holders

    def move(self, moves: Mapping[int, int]) -> None:
        """Records a swap: the moves of discriminators, giver → taker."""
        if self.now is not None:
            self.now = {moves.get(worker, worker) for worker in self.now}

    def state(self) -> dict[str, Tensor]:
        """What the next choice depends on; empty if all workers are holders."""
        if self.now is None:
            return {}
        return {
            ".now": torch.tensor(sorted(self.now), dtype=torch.int64),
            ".drawn": torch.tensor(self._num_drawn),
            ".fraction": torch.tensor(self.fraction, dtype=torch.float64),
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned; if C is smaller now, `among` drops some holders."""
        if state and state.keys() != {".now", ".drawn", ".fraction"}:
            raise KeyError(f"no state of holders: {sorted(state)}")
        if state and self.fraction < 1:
            self.now = set(state[".now"].tolist())
            self._num_drawn = int(state[".drawn"])
            self._too_many = self.fraction < float(state[".fraction"])

    def _draw(self, workers: list[int], count: int) -> set[int]:
        random = generator_for(self.seed, "holders", self._num_drawn)
        self._num_drawn += 1
        order = torch.randperm(len(workers), generator=random)[:count]
        return {workers[place] for place in order.tolist()}
