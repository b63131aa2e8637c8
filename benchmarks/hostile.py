"""Workers that lie, for `robustness.py`, `free_riders.py` and tests.

They keep to the protocol, and their answers have the right shape. Free riders do not train: `learn`
does nothing. Their answers have the norm of an honest answer at that moment, so that no single
answer looks wrong.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from mdgan.families.mdgan.algorithm import Judgement
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.discriminator_learner import Stage, unobserved
from mdgan.gan.labels import Samples
from mdgan.gan.randomness import generator_for

FLIP_STRENGTH = 5.0
"""The factor k of a sign flipper. With k > 7/3, three of ten workers reverse the sum of ten equal
answers. About twice that does not look absurd yet."""


class Hostile(Worker):
    """A worker that takes over an honest worker's discriminator, data and random state."""

    def __init__(self, honest: Worker) -> None:
        vars(self).update(vars(honest))


class SignFlipper(Hostile):
    """Trains honestly, and answers −k times its honest feedback."""

    def __init__(self, honest: Worker, strength: float = FLIP_STRENGTH) -> None:
        super().__init__(honest)
        self._strength = strength

    def feedback(self, judged: Samples) -> Judgement:
        """Returns −k F_n; the rest is honest."""
        honest = super().feedback(judged)
        return honest._replace(feedback=-self._strength * honest.feedback)


class FreeRider(Hostile, ABC):
    """A worker that does not train; subclasses make up its feedback."""

    def learn_real_half(self) -> None:
        """Does nothing."""

    def learn(self, fake: Samples, stage: Stage = unobserved) -> Tensor:  # noqa: ARG002 - not trained
        """Reports the loss of an untrained discriminator, without training."""
        return torch.tensor(1.4)

    def feedback(self, judged: Samples) -> Judgement:
        """Returns made-up feedback with the norm of F_n; the rest is honest."""
        honest = super().feedback(judged)
        made_up = self.made_up(honest.feedback)
        return honest._replace(feedback=made_up * (honest.feedback.norm() / made_up.norm()))

    @abstractmethod
    def made_up(self, honest: Tensor) -> Tensor:
        """An answer of any norm above 0, with the shape of the honest answer."""


class Constant(FreeRider):
    """Asks for more brightness in every pixel of every sample."""

    def made_up(self, honest: Tensor) -> Tensor:
        """−1 everywhere: a step against this gradient makes every pixel brighter."""
        return torch.full_like(honest, -1.0)


class Replayed(FreeRider):
    """Repeats its first honest answer."""

    _first: Tensor | None = None

    def made_up(self, honest: Tensor) -> Tensor:
        """The answer of its first iteration."""
        if self._first is None:
            self._first = honest
        return self._first


class Random(FreeRider):
    """Answers with new noise every time."""

    def __init__(self, honest: Worker, seed: int) -> None:
        super().__init__(honest)
        self._noise = generator_for(seed, "hostile")

    def made_up(self, honest: Tensor) -> Tensor:
        """N(0, 1) everywhere."""
        return torch.randn(honest.shape, generator=self._noise).to(honest)


class Copycat(FreeRider):
    """Judges with the discriminator that it got in the last swap, and hands it over unchanged.

    That discriminator is the only work of others that a worker gets: it never sees their feedback,
    which goes to the server alone.
    """

    def made_up(self, honest: Tensor) -> Tensor:
        """The feedback of that discriminator, unchanged."""
        return honest


ATTACKS: dict[str, Callable[[Worker, int], Worker]] = {
    "flipped": lambda honest, _seed: SignFlipper(honest),
    "constant": lambda honest, _seed: Constant(honest),
    "replayed": lambda honest, _seed: Replayed(honest),
    "random": Random,
}
"""By name: makes a hostile worker from an honest one and a seed."""

RIDERS: dict[str, Callable[[Worker, int], Worker]] = {
    "constant": ATTACKS["constant"],
    "replayed": ATTACKS["replayed"],
    "noise": ATTACKS["random"],
    "copycat": lambda honest, _seed: Copycat(honest),
}
"""The free riders by name: makes one from an honest worker and a seed."""
