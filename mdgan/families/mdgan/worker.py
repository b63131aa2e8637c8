"""Workers of MD-GAN as they live in a host: what of theirs moves, and what can be undone.

Their share of an iteration is `WorkerSide` in `algorithm.py`. Shapes are written [b, C, H, W].
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from mdgan.families.mdgan.algorithm import WorkerSide
from mdgan.gan.labels import Samples
from mdgan.gan.model_state import is_finite, part_of, under

_TINY = 1e-12


class Worker(WorkerSide):
    """A worker whose discriminator moves, and that does not wait for the server.

    The half of a gradient that needs only real data may be learnt while the worker waits for X^(d).
    It can be undone, since a swap or a checkpoint may come first.
    """

    _before_real_half: Mapping[str, Tensor] = {}
    """How everything was before a real half that was learnt early, by the names of `state`."""

    def learn_real_half(self) -> None:
        """The half of the next gradient that needs only real data, unless that is already there."""
        over = self.real_half is not None and self.real_half.over
        if not self.has_real_half and not self.rules.merges_halves and not over:
            self.remember()
            self._learn_real_half()

    def remember(self) -> None:
        """Keeps what a real half changes besides gradients, so that it can be undone."""
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

    def state(self) -> dict[str, Tensor]:
        """See `DiscriminatorLearner`; as before a real half that is already learnt.

        The gradient of a single batch tells much of its samples and must not leave.
        """
        before = self._before_real_half
        return {
            name: before[name].clone() if name in before else now
            for name, now in super().state().items()
        }

    def told_apart(self, generated: Samples) -> float:
        """How far above generated samples, [b, C, H, W], D rates real ones, in standard errors.

        There are as many real ones, those that it learns from next; nothing changes but buffers of
        D. Under differential privacy it is 0, since all that real samples are used for is counted.
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

        A real half that is already learnt is undone, with its batch and random numbers, so that it
        does not matter whether it was learnt early. With `mean` it goes on with the mean of its own
        and of the other one, of the same bits for both workers of a pair; if its own is broken,
        with the other one.

        Raises:
            KeyError, RuntimeError: it does not fit, or is not `is_finite`; nothing changed.
        """
        if not is_finite(given):
            raise RuntimeError("a discriminator with NaN or Inf, or that soon has them")
        own = self.discriminator.moving() if mean else {}
        self.discriminator.load_moving(given)  # checks it; a sum would stretch other shapes
        if mean and is_finite(own):
            other = self.discriminator.moving()
            both = [n for n in own.keys() & other.keys() if own[n].is_floating_point()]
            means = {name: (own[name] + other[name]) / 2 for name in both}
            self.discriminator.load_moving({**other, **own, **means})
        self._undo_real_half()

    def undo_real_half(self) -> None:
        """Forgets a real half that is already learnt; everything is as it was before."""
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
