"""The real half of a local step on a batch drawn by Poisson sampling, private or not.

DP-SGD (Abadi et al. 2016, Algorithm 1) on the half of D's gradient that needs real samples. All
that a worker tells follows from the sums made here, from generated samples, and from what it was
told; see docs/privacy.md.
"""

from collections.abc import Collection, Mapping
from math import isinf
from typing import Protocol

import torch
from torch import Tensor

from mdgan.gan.augmentation import Augmentation
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.discriminator_learner import Rules
from mdgan.gan.labels import Samples, call
from mdgan.gan.losses import as_verdict
from mdgan.gan.regularizers import r1_penalty
from mdgan.privacy.canaries import Canaries
from mdgan.privacy.per_sample import clipped_sum
from mdgan.privacy.planted import Planted, flat
from mdgan.privacy.random_stream import bound_to, normal, random_state, step_key, uniform


class Owned(Protocol):
    """The samples of a worker."""

    def __len__(self) -> int: ...

    def taken(self, positions: Tensor) -> Samples:
        """The samples at some positions, without those that cannot be read."""


class Steps(Protocol):
    """Counts a worker's steps, and has random numbers for each."""

    @property
    def over(self) -> bool:
        """Whether no step may be taken any more."""

    def key(self, use: str) -> bytes:
        """The key of one use of random numbers in the step that comes next, 32 bytes."""

    def advance(self) -> None:
        """The step has been taken: what follows from it may leave the worker."""

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint has to know."""

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues where `state` was taken.

        Raises:
            KeyError, RuntimeError: the state is malformed; nothing changed.
        """


class SeededSteps:
    """Steps whose numbers may be known to all, such as those of a run's seed.

    Args:
        secret: that the keys are made of.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.count = 0
        self.over = False

    def key(self, use: str) -> bytes:
        """See `Steps`."""
        return step_key(self._secret, self.count, use)

    def advance(self) -> None:
        """See `Steps`."""
        self.count += 1

    def state(self) -> dict[str, Tensor]:
        """`steps`, int64 []."""
        return {"steps": torch.tensor(self.count)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """See `Steps`; begins anew if the state counts none."""
        steps = state.get("steps", torch.tensor(0))
        if steps.dtype != torch.int64 or steps.shape != () or steps < 0:
            raise RuntimeError("no state of steps: their number is none")
        self.count = int(steps)


class PoissonHalf:
    """A worker's samples, and what each local step learns from them.

    With a bound it adds up gradients of single samples, each cut to the norm C, and adds noise of
    N(0, σ²C²); without, it takes the gradient of the batch. Both are divided by the expected size
    of a batch.

    Args:
        owned: the samples.
        steps: have the random numbers.
        batch_size: b; the expected size of a batch is that, or all samples if there are fewer.
        clip: C; infinite for no bound.
        noise: σ.
        tells_loss: whether Ã of the batch may be told.
        canaries: are drawn as samples are, and watch what is released.
    """

    def __init__(
        self,
        owned: Owned,
        steps: Steps,
        batch_size: int,
        *,
        clip: float,
        noise: float,
        tells_loss: bool,
        canaries: Canaries | None = None,
    ) -> None:
        self._owned = owned
        self._steps = steps
        self._expected = min(batch_size, len(owned))
        self._rate = rate_of(batch_size, len(owned))
        self._clip = clip
        self._noise = noise
        self._tells_loss = tells_loss
        self._canaries = canaries

    def next_batch(self, batch_size: int) -> Samples:
        """Each sample with probability q, whatever size is asked for; none of them, too."""
        del batch_size  # of the server's choice in some algorithms; q is what was accounted for
        chosen = uniform(self._steps.key("batch"), len(self._owned)) <= self._rate
        return self._owned.taken(chosen.nonzero().squeeze(1))

    def learn(
        self, discriminator: Discriminator, rules: Rules, augmentation: Augmentation
    ) -> Tensor:
        """Puts the real half of a local step's gradient in place.

        Returns:
            Ã of the batch, a scalar; 0 if it may not be told.
        """
        real = self.next_batch(rules.batch_size).to(discriminator.device)
        if not discriminator.is_conditional:
            real = real.without_labels()
        discriminator.zero_grad()
        # Numbers of their own: the worker's other ones must not tell how large the batch was.
        with random_state(self._steps.key("forward"), discriminator.device).in_place():
            if isinf(self._clip):
                loss = self._learn_batch(discriminator, rules, augmentation, real)
            else:
                loss = self._learn_samples(discriminator, rules, augmentation, real)
        return loss if self._tells_loss else torch.zeros_like(loss)

    @property
    def over(self) -> bool:
        """See `RealHalf`."""
        return self._steps.over

    def taken(self) -> None:
        """See `RealHalf`."""
        if self._canaries is not None:
            self._canaries.taken()
        self._steps.advance()

    def state(self) -> dict[str, Tensor]:
        """What the next batches depend on: `size`, int64 [], and what steps keep."""
        return {"size": torch.tensor(len(self._owned)), **self._steps.state()}

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """See `Batches`."""
        size = state["size"]
        if size.shape != ():
            raise RuntimeError("no state of a shard: its size has another shape")
        if int(size) != len(self._owned):
            return False
        self._steps.load_state(state)
        return True

    def _learn_batch(
        self,
        discriminator: Discriminator,
        rules: Rules,
        augmentation: Augmentation,
        real: Samples,
    ) -> Tensor:
        """The gradient of Σ Ã / b by one pass over the batch."""
        if not len(real):
            return torch.zeros((), device=discriminator.device)
        if rules.r1:
            real = real.of(real.images.detach().requires_grad_())
        seen = augmentation(real.images)
        verdict = as_verdict(call(discriminator.model, seen, real.labels))
        loss = rules.loss(rules.discriminator_loss.real, verdict, real.labels)
        penalty = r1_penalty(verdict.logits, real.images, rules.r1) if rules.r1 else 0.0
        share = len(real) / self._expected
        ((loss + penalty) * share).backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        return loss.detach() * share

    def _learn_samples(
        self,
        discriminator: Discriminator,
        rules: Rules,
        augmentation: Augmentation,
        real: Samples,
    ) -> Tensor:
        """The gradients of single samples, each cut, added up, and noise."""
        model = discriminator.model
        seen = real.of(augmentation(real.images)) if len(real) else real
        total, losses = clipped_sum(model, rules, seen, self._clip)
        weights = dict(model.named_parameters())
        if self._canaries is not None:
            planted = Planted(model, rules, augmentation, real, self._clip)
            others = self._add_canaries(self._canaries, total, planted)
        scale = self._noise * self._clip
        drawn = self._noises(total.values()) if scale else None
        first = 0
        for name, summed in total.items():
            if drawn is not None:
                own = drawn[first : first + summed.numel()].view_as(summed)
                summed.add_(own.to(summed.device, summed.dtype), alpha=scale)
                first += summed.numel()
            weights[name].grad = summed.div_(self._expected)
        if self._canaries is not None:
            self._canaries.watch(flat(total.values()) * self._expected, others, planted)
        return losses / self._expected

    def _add_canaries(
        self, canaries: Canaries, total: Mapping[str, Tensor], planted: Planted
    ) -> Tensor:
        """Adds those that are drawn; returns the sum without them, float64 [d]."""
        others = flat(total.values())
        changed = others.clone()
        canaries.add_to(changed, self._steps.key("canaries"), planted)
        pieces = torch.split(changed, [each.numel() for each in total.values()])
        for each, piece in zip(total.values(), pieces, strict=True):
            each.copy_(piece.view_as(each))
        return others

    def _noises(self, addends: Collection[Tensor]) -> Tensor:
        key = bound_to(self._steps.key("noise"), addends)
        return normal(key, sum(addend.numel() for addend in addends))


def rate_of(batch_size: int, num_samples: int) -> float:
    """q, the probability with which each sample is in a batch."""
    return min(1.0, batch_size / num_samples)
