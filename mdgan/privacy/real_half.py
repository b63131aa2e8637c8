"""The real half of a local step on a batch drawn by Poisson sampling, private or not.

This is DP-SGD (Abadi et al. 2016, Algorithm 1) on the half of D's gradient that needs real samples.
All answers of a worker follow from the sums made here, from generated samples, and from messages to
it; see docs/privacy.md.
"""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from math import ceil, isinf, sqrt
from typing import Protocol

import torch
from torch import Tensor
from typing_extensions import override

from mdgan.gan.discriminator import Discriminator
from mdgan.gan.discriminator_learner import Batches, LearningRules, RealHalf
from mdgan.gan.labels import Samples, call
from mdgan.gan.losses import as_output
from mdgan.gan.regularizers.contract import REAL, Regularizers
from mdgan.privacy.canaries import Canaries, Planted
from mdgan.privacy.contents import Units
from mdgan.privacy.direct import Draw
from mdgan.privacy.noise import with_noise
from mdgan.privacy.per_sample import clipped_sum
from mdgan.privacy.random_stream import random_state, step_key, uniform

_DEVIATIONS = 1.0  # a batch is filled up to its mean size and this many standard deviations


class Owned(Protocol):
    """The samples of a worker."""

    def __len__(self) -> int: ...

    def taken(self, positions: Tensor) -> Samples:
        """The samples at some positions, without those that cannot be read."""


class Steps(Protocol):
    """Counts a worker's steps, and gives keys for the random numbers of each."""

    @property
    def over(self) -> bool:
        """Whether the worker may take no further step."""

    def key(self, use: str) -> bytes:
        """The key of one use of random numbers in the next step, 32 bytes."""

    def advance(self) -> None:
        """Counts a step, after which its results may leave the worker."""

    def state(self) -> dict[str, Tensor]:
        """The tensors that a checkpoint needs."""

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continues from a `state`; at KeyError or RuntimeError nothing has changed."""


class SeededSteps(Steps):
    """Steps whose random numbers need not be secret, such as those of a run's seed."""

    over = False

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.count = 0

    def key(self, use: str) -> bytes:
        return step_key(self._secret, self.count, use)

    def advance(self) -> None:
        self.count += 1

    def state(self) -> dict[str, Tensor]:
        """`steps`, int64 []."""
        return {"steps": torch.tensor(self.count)}

    @override
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        steps = state.get("steps", torch.tensor(0))
        if steps.dtype != torch.int64 or steps.shape != () or steps < 0:
            raise RuntimeError("no state of steps: their number is none")
        self.count = int(steps)


class DrawnUnits:
    """A worker's units, such as persons: a step uses one random sample of each unit that it draws.

    So a unit adds one gradient to a sum, however many samples it has.
    """

    def __init__(self, owned: Owned, units: Units, steps: Steps) -> None:
        self._owned, self._units, self._steps = owned, units, steps

    def __len__(self) -> int:
        return len(self._units)

    def taken(self, positions: Tensor) -> Samples:
        """A random sample of each unit at these positions, without those that cannot be read."""
        uniform_numbers = uniform(self._steps.key("samples"), len(self))
        return self._owned.taken(self._units.drawn(positions, uniform_numbers[positions]))


class PoissonHalf(RealHalf, Batches):
    """A worker's samples, and the real half of each local step on them.

    With a bound C, a step adds up gradients of single samples, each cut to the norm C, and adds
    noise of N(0, σ²C²). Without a bound, it takes the gradient of the batch. Either is divided by
    the expected batch size.

    With a bound, all steps compute with the same number of samples: drawn samples, and others that
    count as 0. So the duration does not tell how many were drawn. If more are drawn than that
    number, the step draws again. That costs no privacy: whatever the other samples of a batch are,
    a sample is in it with probability q, or 0 if it would be one too many.

    Args:
        batch_size: b; the expected batch size is b, or the number of samples if that is smaller.
        clip: C; infinite for no bound.
        num_public: n̂, the stated number of samples, not below the true one; None: the true one.
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
        num_public: int | None = None,
        canaries: Canaries | None = None,
    ) -> None:
        self._owned = owned
        self._steps = steps
        self.size = num_public or len(owned)  # n̂, the stated number of samples, or units
        self._expected = min(batch_size, self.size)
        self._rate = rate_of(batch_size, self.size)
        self._clip = clip
        self._noise = noise
        self._tells_loss = tells_loss
        self._canaries = canaries
        self._memory: Tensor | None = None
        deviation = sqrt(self._expected * (1 - self._rate))
        self._physical = ceil(self._expected + _DEVIATIONS * deviation)

    def next_batch(self, batch_size: int) -> Samples:
        """Draws each sample with probability q, whatever `batch_size` is; may be empty."""
        del batch_size  # in some algorithms the server chooses it, but the account has charged q
        chosen = uniform(self._steps.key("batch"), len(self._owned)) <= self._rate
        return self._owned.taken(chosen.nonzero().squeeze(1))

    def _next_padded(self) -> tuple[Samples, Draw]:
        """A batch of drawn samples followed by padding, and how many were drawn."""
        numbers = list[int]()
        while not numbers or numbers[-1] > self._physical:
            use = f"batch {len(numbers)}" if numbers else "batch"
            drawn = uniform(self._steps.key(use), len(self._owned))
            numbers.append(int((drawn <= self._rate).sum()))
        number = numbers[-1]
        order = drawn.topk(min(self._physical, len(drawn)), largest=False).indices
        padded = self._owned.taken(order)
        if len(padded) < len(order):  # some samples could not be read
            padded = self._owned.taken(order[:number])
            number = len(padded)
        return padded.padded(self._physical), Draw(number, numbers[0], len(drawn))

    def learn(
        self, discriminator: Discriminator, rules: LearningRules, regularizers: Regularizers
    ) -> Tensor:
        """Computes the real half of D's gradient; returns its Ã, a scalar, or 0 if it is secret."""
        learn = self._learn_batch if isinf(self._clip) else self._learn_samples
        discriminator.zero_grad()
        loss = learn(discriminator, rules, regularizers)
        return loss if self._tells_loss else torch.zeros_like(loss)

    def _ready(self, real: Samples, discriminator: Discriminator) -> Samples:
        """Samples on D's device, with labels only if D takes labels."""
        real = real.to(discriminator.device)
        return real if discriminator.is_conditional else real.without_labels()

    def _random_state(self, discriminator: Discriminator) -> AbstractContextManager[None]:
        """Separate random numbers, so that other ones do not tell the size of the batch."""
        return random_state(self._steps.key("forward"), discriminator.device).in_place()

    @property
    def over(self) -> bool:
        return self._steps.over

    def taken(self) -> None:
        if self._canaries is not None:
            self._canaries.taken()
        self._steps.advance()

    def state(self) -> dict[str, Tensor]:
        """The state of the next batches: `size`, int64 [], and the state of the steps."""
        return {"size": torch.tensor(self.size), **self._steps.state()}

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        size = state["size"]
        if size.shape != ():
            raise RuntimeError("no state of a shard: its size has another shape")
        if int(size) != self.size:
            return False
        self._steps.load_state(state)
        return True

    def _learn_batch(
        self, discriminator: Discriminator, rules: LearningRules, regularizers: Regularizers
    ) -> Tensor:
        """Sets the gradient of Σ Ã / b by one pass over the batch; returns Σ Ã / b."""
        real = self._ready(self.next_batch(rules.batch_size), discriminator)
        if not len(real):
            return torch.zeros((), device=discriminator.device)
        if regularizers.at(REAL):
            real = real.of(real.images.detach().requires_grad_())
        with self._random_state(discriminator):
            seen = regularizers.see(real.images)
            verdict = as_output(call(discriminator.model, seen, real.labels))
            loss = rules.loss(rules.discriminator_loss.real, verdict, real.labels)
            logits = verdict.logits.flatten()
            whole = regularizers.penalized(REAL, loss, logits, real.images)
            share = len(real) / self._expected
            (whole * share).backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        return loss.detach() * share

    def _learn_samples(
        self, discriminator: Discriminator, rules: LearningRules, regularizers: Regularizers
    ) -> Tensor:
        """Sets the noisy sum of cut gradients of single samples, divided by b; returns Σ Ã / b."""
        padded, draw = self._next_padded()
        model, real = discriminator.model, self._ready(padded, discriminator)
        with self._random_state(discriminator):
            seen, penalties = real.of(regularizers.see(real.images)), regularizers.at(REAL)
            total, losses = clipped_sum(
                model, rules, seen, count=draw.used, clip=self._clip, penalties=penalties
            )
            summed = self._joined(total.values())
            if self._canaries is None:
                summed = self._released(summed)
            else:
                planted = Planted(model, rules, regularizers, real, self._clip, clipped_sum)
                others = summed.double().cpu()
                summed = others.clone()
                self._canaries.add_to(summed, self._steps.key("canaries"), planted)
                summed = self._released(summed.float())
                self._canaries.watch(summed.double() * self._expected, others, planted, draw)
        weights, first = dict(model.named_parameters()), 0
        for name, part in total.items():
            gradient = summed[first : first + part.numel()].view_as(part)
            weights[name].grad = gradient.to(part.device)
            first += part.numel()
        return losses / self._expected

    def _joined(self, tensors: Collection[Tensor]) -> Tensor:
        """Joins tensors to a vector, float32 [d], on the CPU, in memory that all steps reuse."""
        count = sum(part.numel() for part in tensors)
        if self._memory is None or len(self._memory) != count:
            self._memory = torch.empty(count)
        return torch.cat([part.flatten().cpu() for part in tensors], out=self._memory)

    def _released(self, summed: Tensor) -> Tensor:
        """A sum with noise, divided by b."""
        if not self._noise:
            return summed.div_(self._expected)
        key = self._steps.key("noise")
        return with_noise(summed, self._clip, self._noise, key, 1 / self._expected)


def rate_of(batch_size: int, num_samples: int) -> float:
    """q, the probability with which each sample is in a batch."""
    return min(1.0, batch_size / num_samples)
