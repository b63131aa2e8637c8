"""What a worker does beside its iteration (`WorkerSide` in `algorithm.py`): swaps and real halves.

The *real half* of a local step is the half of its gradient that needs only real samples. A worker
learns it early, while it waits for the server, and undoes it if a swap or a checkpoint comes first.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from typing_extensions import override

from mdgan.families.mdgan.algorithm import WorkerSide
from mdgan.gan.labels import Samples
from mdgan.gan.model_state import is_finite, part_of, under

_TINY = 1e-12


class Worker(WorkerSide):
    """A worker whose discriminator moves, and that learns real halves early."""

    _before_real_half: Mapping[str, Tensor] = {}
    """The values from before an early real half of what it changed, by the names of `state`."""

    def learn_real_half(self) -> None:
        """Learns the real half of the next local step, unless it already has."""
        is_over = self.real_half is not None and self.real_half.over
        if not (self.has_real_half or self.rules.merges_halves or is_over):
            self.remember()
            self._learn_real_half()

    def remember(self) -> None:
        """Copies what a real half changes besides gradients, so that the worker can undo it."""
        buffers = self.discriminator.model.named_buffers(remove_duplicate=False)
        self._before_real_half = {
            **{f"discriminator.model.{name}": buffer.clone() for name, buffer in buffers},
            **under("random.", self.random_state.tensors()),
            **under("shard.", self.batches.state()),
        }

    def end_local_step(self, fake_loss: Tensor) -> Tensor:
        self._before_real_half = {}
        return super().end_local_step(fake_loss)

    def drop_real_half(self) -> None:
        self._before_real_half = {}
        super().drop_real_half()

    @override
    def state(self) -> dict[str, Tensor]:
        # The state before an early real half: the gradient of a single batch shows much of its
        # samples and must not leave the host.
        before = self._before_real_half
        return {
            name: before[name].clone() if name in before else now
            for name, now in super().state().items()
        }

    def told_apart(self, generated: Samples) -> float:
        """How far above b generated samples, [b, C, H, W], D rates b real ones, in standard errors.

        The real samples are those that D learns from next. Only buffers of D change. Under
        differential privacy, which counts each use of real samples, this uses none and returns 0.
        """
        if self.real_half is not None:
            return 0.0
        batches, random = self.batches.state(), self.random_state.tensors()
        real = self.batches.next_batch(len(generated)).to(self.discriminator.device)
        real = real if self.discriminator.is_conditional else real.without_labels()
        self.batches.load_state(batches)
        with torch.no_grad(), self.random_state.in_place():
            halves = [real.and_then(generated)] if self.rules.merges_halves else [real, generated]
            ratings = [self.judge(half).logits.flatten() for half in halves]
        self.random_state.restore(random)
        both = torch.cat(ratings)
        of_real, of_generated = both[: len(real)], both[len(real) :]
        error = of_real.var() / len(of_real) + of_generated.var() / len(of_generated)
        return float((of_real.mean() - of_generated.mean()) / (error.sqrt() + _TINY))

    def take(self, given: Mapping[str, Tensor], *, mean: bool = False) -> None:
        """Takes over a discriminator, as in a swap; data, random state and counts stay.

        This undoes an early real half, with its batch and random numbers. With `mean` the worker
        goes on with the mean of both discriminators, the same bits for both workers of a pair; if
        its present one is broken, with `given`.

        Raises:
            KeyError, RuntimeError: `given` does not fit, or is not `is_finite`; nothing changed.
        """
        if not is_finite(given):
            raise RuntimeError("a discriminator with NaN or Inf, or that soon has them")
        present = self.discriminator.moving() if mean else {}
        self.discriminator.load_moving(given)  # checks shapes, which a sum would broadcast
        if mean and is_finite(present):
            taken = self.discriminator.moving()
            both = [n for n in present.keys() & taken.keys() if present[n].is_floating_point()]
            means = {name: (present[name] + taken[name]) / 2 for name in both}
            self.discriminator.load_moving({**taken, **present, **means})
        self._undo_real_half()

    def undo_real_half(self) -> None:
        """Undoes an early real half, also its changes to the buffers of D."""
        before = part_of(self._before_real_half, "discriminator.model.")
        for name, buffer in self.discriminator.model.named_buffers(remove_duplicate=False):
            if name in before:
                buffer.copy_(before[name])
        self._undo_real_half()

    def _undo_real_half(self) -> None:
        if self.has_real_half:
            self.random_state.restore(part_of(self._before_real_half, "random."))
            self.batches.load_state(part_of(self._before_real_half, "shard."))
        self.drop_real_half()
