"""The real half of a local step on a batch drawn by Poisson sampling, private or not.

DP-SGD (Abadi et al. 2016, Algorithm 1) on the half of D's gradient that needs real samples. All
that a worker tells follows from the sums made here, from generated samples, and from what it was
told; see docs/privacy.md.
"""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from itertools import count
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
from mdgan.privacy.noise import with_noise
from mdgan.privacy.per_sample import clipped_sum
from mdgan.privacy.random_stream import random_state, step_key, uniform

_DEVIATIONS = 1.0  # batches are filled up to their mean size and so many standard deviations


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
        """Continues where `state` was taken; nothing changes at KeyError, RuntimeError."""


class SeededSteps(Steps):
    """Steps whose numbers may be known to all, such as those of a run's seed."""

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
    """A worker's units, such as persons: of each that a step draws it has one sample.

    So a unit adds one gradient to a sum, however many samples it has; another one in each step.
    """

    def __init__(self, owned: Owned, units: Units, steps: Steps) -> None:
        self._owned, self._units, self._steps = owned, units, steps

    def __len__(self) -> int:
        return len(self._units)

    def taken(self, positions: Tensor) -> Samples:
        """A sample of each of some units, without those that cannot be read."""
        uniform_numbers = uniform(self._steps.key("samples"), len(self))
        return self._owned.taken(self._units.drawn(positions, uniform_numbers[positions]))


class PoissonHalf(RealHalf, Batches):
    """A worker's samples, and what each local step learns from them.

    With a bound it adds up gradients of single samples, each cut to the norm C, and adds noise of
    N(0, σ²C²); without, it takes the gradient of the batch. Both are divided by the expected size
    of a batch.

    With a bound, all steps compute with the same number of samples: those that were drawn, and
    others that count as 0. So time does not tell how many were drawn. A draw of more than that
    number is drawn again. That costs no privacy: whatever the other samples of a batch are, a
    sample is among them with probability q, or 0 where it would be one too many.

    Args:
        batch_size: b; the expected size of a batch is that, or all samples if there are fewer.
        clip: C; infinite for no bound.
        num_public: n̂, how many samples there are said to be, at least as many; None: the number.
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
        self.size = num_public or len(owned)  # n̂, how many samples, or units, there are said to be
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
        """Each sample with probability q, whatever size is asked for; none of them, too."""
        del batch_size  # of the server's choice in some algorithms; q is what was accounted for
        chosen = uniform(self._steps.key("batch"), len(self._owned)) <= self._rate
        return self._owned.taken(chosen.nonzero().squeeze(1))

    def _next_padded(self) -> tuple[Samples, int]:
        """A batch with other samples behind those that were drawn, and how many were drawn."""
        for attempt in count():
            use = f"batch {attempt}" if attempt else "batch"
            drawn = uniform(self._steps.key(use), len(self._owned))
            number = int((drawn <= self._rate).sum())
            if number <= self._physical:
                break
        order = drawn.topk(min(self._physical, len(drawn)), largest=False).indices
        padded = self._owned.taken(order)
        if len(padded) < len(order):  # some could not be read
            padded = self._owned.taken(order[:number])
            number = len(padded)
        return padded.padded(self._physical), number

    def learn(
        self, discriminator: Discriminator, rules: LearningRules, regularizers: Regularizers
    ) -> Tensor:
        """Puts the real half in place, and returns its Ã, a scalar; 0 if it may not be told."""
        learn = self._learn_batch if isinf(self._clip) else self._learn_samples
        discriminator.zero_grad()
        loss = learn(discriminator, rules, regularizers)
        return loss if self._tells_loss else torch.zeros_like(loss)

    def _ready(self, real: Samples, discriminator: Discriminator) -> Samples:
        """Samples as D takes them."""
        real = real.to(discriminator.device)
        return real if discriminator.is_conditional else real.without_labels()

    def _random_state(self, discriminator: Discriminator) -> AbstractContextManager[None]:
        """Numbers of their own: the worker's other ones must not tell how large the batch was."""
        return random_state(self._steps.key("forward"), discriminator.device).in_place()

    @property
    def over(self) -> bool:
        return self._steps.over

    def taken(self) -> None:
        if self._canaries is not None:
            self._canaries.taken()
        self._steps.advance()

    def state(self) -> dict[str, Tensor]:
        """What the next batches depend on: `size`, int64 [], and what steps keep."""
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
        """The gradient of Σ Ã / b by one pass over the batch."""
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
        """The gradients of single samples, each cut, added up, and noise."""
        padded, number = self._next_padded()
        model, real = discriminator.model, self._ready(padded, discriminator)
        with self._random_state(discriminator):
            seen = real.of(regularizers.see(real.images))
            total, losses = clipped_sum(
                model, rules, seen, count=number, clip=self._clip, penalties=regularizers.at(REAL)
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
                exact, drawn = summed.double() * self._expected, (number, len(self._owned))
                self._canaries.watch(exact, others, planted, drawn)
        weights, first = dict(model.named_parameters()), 0
        for name, each in total.items():
            own = summed[first : first + each.numel()].view_as(each)
            weights[name].grad = own.to(each.device)
            first += each.numel()
        return losses / self._expected

    def _joined(self, tensors: Collection[Tensor]) -> Tensor:
        """All as one vector, float32 [d], on the CPU, in memory that is kept from step to step."""
        count = sum(each.numel() for each in tensors)
        if self._memory is None or len(self._memory) != count:
            self._memory = torch.empty(count)
        return torch.cat([each.flatten().cpu() for each in tensors], out=self._memory)

    def _released(self, summed: Tensor) -> Tensor:
        """A sum with noise, divided by b."""
        if not self._noise:
            return summed.div_(self._expected)
        key = self._steps.key("noise")
        return with_noise(summed, self._clip, self._noise, key, 1 / self._expected)


def rate_of(batch_size: int, num_samples: int) -> float:
    """q, the probability with which each sample is in a batch."""
    return min(1.0, batch_size / num_samples)
