"""Workers of MD-GAN in a host: they learn real halves early, undo these, and take discriminators.

Their share of an iteration is `WorkerSide` in `algorithm.py`.
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
    """A worker whose discriminator moves, and that does not wait for the server.

    It may learn the half of a gradient that needs only real data while it waits for X^(d). It can
    undo that, since a swap or a checkpoint may come first.
    """

    _before_real_half: Mapping[str, Tensor] = {}
    """What a real half that was learnt early has changed, as it was, by the names of `state`."""

    def learn_real_half(self) -> None:
        """Learns the half of the next gradient that needs only real data, unless it already has."""
        is_over = self.real_half is not None and self.real_half.over
        if not (self.has_real_half or self.rules.merges_halves or is_over):
            self.remember()
            self._learn_real_half()

    def remember(self) -> None:
        """Keeps what a real half changes besides gradients, so that the worker can undo it."""
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
        # The state before a real half that was learnt early: the gradient of a single batch tells
        # much of its samples and must not leave the host.
        before = self._before_real_half
        return {
            name: before[name].clone() if name in before else now
            for name, now in super().state().items()
        }

    def told_apart(self, generated: Samples) -> float:
        """How far above generated samples, [b, C, H, W], D rates real ones, in standard errors.

        The real ones are as many, those that D learns from next. Only buffers of D change. Under
        differential privacy, which counts each use of real samples, it uses none and returns 0.
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

        Undoes a real half that was learnt early, with its batch and random numbers. With `mean` the
        worker goes on with the mean of both discriminators, the same bits for both workers of a
        pair; or with `given` if its own is broken.

        Raises:
            KeyError, RuntimeError: `given` does not fit, or is not `is_finite`; nothing changed.
        """
        if not is_finite(given):
            raise RuntimeError("a discriminator with NaN or Inf, or that soon has them")
        own = self.discriminator.moving() if mean else {}
        self.discriminator.load_moving(given)  # checks shapes, which a sum would broadcast
        if mean and is_finite(own):
            other = self.discriminator.moving()
            both = [n for n in own.keys() & other.keys() if own[n].is_floating_point()]
            means = {name: (own[name] + other[name]) / 2 for name in both}
            self.discriminator.load_moving({**other, **own, **means})
        self._undo_real_half()

    def undo_real_half(self) -> None:
        """Undoes a real half that was learnt early; everything is as it was before."""
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
