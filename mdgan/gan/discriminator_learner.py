"""Trains a discriminator: L local steps on real and generated batches, [b, C, H, W] each."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from mdgan.gan.arithmetic import finite_or_zero
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.labels import Samples, call
from mdgan.gan.losses import (
    DiscriminatorLoss,
    DiscriminatorOutput,
    Term,
    as_output,
    with_class_loss,
)
from mdgan.gan.model_state import check_names, part_of, under
from mdgan.gan.randomness import RandomState
from mdgan.gan.regularizers.contract import BETWEEN, FAKE, REAL, Regularizers, mix
from mdgan.gan.regularizers.registry import REGULARIZERS

Stage = Callable[[str], AbstractContextManager[Any]]
"""Takes a stage's name, and returns the context manager in which the stage runs."""

_PREFIXES = ("discriminator.", "random.", "shard.", *(f"{kind.name}." for kind in REGULARIZERS))


unobserved: Stage = nullcontext  # runs the stage without measuring it


class Batches(Protocol):
    """Draws batches of a worker's private data."""

    def next_batch(self, batch_size: int) -> Samples:
        """Draws real samples, float32 [b, C, H, W] in [−1, 1], with their classes if known."""

    def state(self) -> dict[str, Tensor]:
        """Which samples come next, in tensors that nothing writes to."""

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Continues from a `state`; False, and nothing changed, if it is of other data.

        Raises:
            KeyError, RuntimeError: the state is malformed; nothing changed.
        """


class RealHalf(Protocol):
    """Another way to compute the half of a gradient that needs only real data."""

    def learn(
        self, discriminator: Discriminator, rules: "LearningRules", regularizers: Regularizers
    ) -> Tensor:
        """Puts the gradient in the parameters; returns a publishable Ã, a scalar without graph."""

    @property
    def over(self) -> bool:
        """Whether no further gradient may be computed."""

    def taken(self) -> None:
        """Called when the local step that used the gradient is over."""


@dataclass(frozen=True)
class LearningRules:
    """How discriminators learn and judge; the same for all discriminators of a run."""

    batch_size: int  # the number of real samples in a local step
    local_steps: int
    discriminator_loss: DiscriminatorLoss
    generator_loss: Term
    loss_scale: float = 1.0  # the factor of losses; see `arithmetic.loss_scale`
    class_weight: float = 1.0  # of `losses.with_class_loss`
    merges_halves: bool = False  # whether D judges the real and the generated batch in one pass

    def loss(self, term: Term, output: DiscriminatorOutput, labels: Tensor | None) -> Tensor:
        """Ã, B̃ or J_gen of a batch, a scalar, plus the auxiliary classifier's loss if D has one."""
        return with_class_loss(term(output.logits), output, labels, weight=self.class_weight)

    def scaled(self, loss: Tensor) -> Tensor:
        """A loss times the loss scale, for computing gradients."""
        return loss if self.loss_scale == 1.0 else loss * self.loss_scale


@dataclass(eq=False)
class DiscriminatorLearner:
    """A discriminator, the private data that it learns from, and its random numbers.

    `real_half` computes the gradient on real data; None for a pass over the next batch.
    """

    discriminator: Discriminator
    batches: Batches
    random_state: RandomState
    rules: LearningRules
    regularizers: Regularizers = field(default_factory=Regularizers)
    real_half: RealHalf | None = None

    def __post_init__(self) -> None:
        self._real_loss: Tensor | None = None
        self._real: Samples | None = None
        self._real_logits = torch.zeros(0)

    def judge(self, samples: Samples) -> DiscriminatorOutput:
        """D's output for samples that regularisers changed; draws from the state in place."""
        images = self.regularizers.see(samples.images)
        return as_output(call(self.discriminator.model, images, samples.labels))

    def learn(self, fake: Samples, stage: Stage = unobserved) -> Tensor:
        """L local steps of J_disc = Ã(X_r) + B̃(X^(d)) (Algorithm 1, lines 6-8).

        Returns J_disc before the last step, a scalar. `fake` has labels if D is conditional.
        """
        loss = torch.zeros(())
        for _ in range(self.rules.local_steps):
            loss = self.learn_both_halves(fake, stage)
            with stage("local step"):
                self.discriminator.step()
        return loss

    def learn_both_halves(self, fake: Samples, stage: Stage = unobserved) -> Tensor:
        """Puts the gradient of one local step in place, and returns J_disc; see `learn`."""
        if self.rules.merges_halves:
            with stage("both halves"), self.random_state.in_place():
                fake_loss = self._learn_merged(fake)
                self._end_gradient(fake)
        else:
            if not self.has_real_half:
                with stage("real half"):
                    self._learn_real_half()
            with stage("fake half"), self.random_state.in_place():
                fake_loss, _ = self._learn(FAKE, fake, self.rules.discriminator_loss.fake)
                self._end_gradient(fake)
        return self.end_local_step(fake_loss)

    def _learn(self, place: str, samples: Samples, term: Term | None) -> tuple[Tensor, Tensor]:
        """Adds gradients of a term and of penalties; returns the term and the logits of samples."""
        if self.regularizers.at(place):
            samples = samples.of(samples.images.detach().requires_grad_())
        output = self.judge(samples)
        logits = output.logits
        if term is None:
            loss = logits.new_zeros(())
        else:
            loss = self.rules.loss(term, output, samples.labels)
        whole = loss
        if self.regularizers.at(place):
            whole = self.regularizers.penalized(place, loss, logits.flatten(), samples.images)
        self.rules.scaled(whole).backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        return loss.detach(), logits.detach()

    def _learn_real_half(self) -> None:
        """Computes the half of the next gradient that needs only real data."""
        if self.real_half is not None:
            loss = self.real_half.learn(self.discriminator, self.rules, self.regularizers)
            self.keep_real_half(loss, torch.zeros(0))
            return
        real = self.draw_real().to(self.discriminator.device)
        with self.random_state.in_place():
            self.discriminator.zero_grad()
            self.keep_real_half(*self._learn(REAL, real, self.rules.discriminator_loss.real))

    def _learn_merged(self, fake: Samples) -> Tensor:
        """Computes the gradient of J_disc in one pass over X_r and X^(d); returns B̃."""
        self.discriminator.zero_grad()
        real = self.draw_real().to(self.discriminator.device)
        terms = self.rules.discriminator_loss
        halves = [half.of(self.regularizers.see(half.images)) for half in (real, fake)]
        batch = halves[0].and_then(halves[1])
        output = as_output(call(self.discriminator.model, batch.images, batch.labels))
        of_real, of_fake = output.split(len(real))
        real_loss = self.rules.loss(terms.real, of_real, real.labels)
        fake_loss = self.rules.loss(terms.fake, of_fake, fake.labels)
        self.keep_real_half(real_loss.detach(), of_real.logits.detach())
        self.rules.scaled(real_loss + fake_loss).backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        return fake_loss.detach()

    def _end_gradient(self, fake: Samples) -> None:
        """Adds penalties between both batches, and divides the gradient by the loss scale."""
        if self.regularizers.at(BETWEEN):
            self._learn(BETWEEN, self.mixed(fake), None)
        if self.rules.loss_scale != 1.0:
            finite_or_zero(self.discriminator.gradients(), self.rules.loss_scale)

    # The parts of `learn`, for code that computes the gradients of several learners at once.

    @property
    def has_real_half(self) -> bool:
        """Whether the real half of the next gradient has been computed."""
        return self._real_loss is not None

    @property
    def real_loss(self) -> Tensor:
        """Ã of the real half that has been computed, a scalar."""
        assert self._real_loss is not None, "the real half comes first"
        return self._real_loss

    def draw_real(self) -> Samples:
        """Draws the real batch of the next gradient, on the CPU."""
        real = self.batches.next_batch(self.rules.batch_size)
        if not self.discriminator.is_conditional:
            real = real.without_labels()
        if self.regularizers.at(BETWEEN):
            self._real = real
        return real

    def mixed(self, fake: Samples) -> Samples:
        """x̂ of `mix`, between as many real samples of this local step as there are generated ones.

        Draws from the random state in place. A conditional D judges a mixture with the label of the
        generated sample: a worker may hold few classes, but the penalty must bound D for all
        generated ones.
        """
        assert self._real is not None, "the real half comes first"
        real = self._real.images[: len(fake)]
        fake = fake[: len(real)]
        return fake.of(mix(real.to(fake.images.device), fake.images))

    def keep_real_half(self, loss: Tensor, logits: Tensor) -> None:
        """Notes that the parameters hold the real half's gradient; `loss` is Ã, without graph."""
        self._real_logits = logits
        self._real_loss = loss

    def end_local_step(self, fake_loss: Tensor) -> Tensor:
        """Ends a local step, given B̃ without a graph; returns J_disc."""
        loss = self.real_loss + fake_loss
        self.regularizers.note_real(self._real_logits)
        self._real_loss, self._real = None, None
        if self.real_half is not None:
            self.real_half.taken()
        return loss

    def state(self) -> dict[str, Tensor]:
        """Copies everything that the next local step depends on; call it between two steps."""
        model = under("discriminator.", self.discriminator.state())
        return {name: tensor.clone() for name, tensor in {**model, **self._beside_model()}.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Continues from the `state` of a learner of the same architecture.

        Returns:
            Whether the shard is the same size; if not, shard and regularisers stay as they are.

        Raises:
            KeyError, RuntimeError: the state does not fit; nothing changed.
        """
        check_names(state, *_PREFIXES)
        present = self._beside_model()
        try:
            same_shard = self._load_beside_model(state)
            self.discriminator.load_state(part_of(state, "discriminator."))
        except (KeyError, RuntimeError):
            self._load_beside_model(present)
            raise
        self.drop_real_half()
        return same_shard

    def _beside_model(self) -> dict[str, Tensor]:
        """The state without the discriminator's tensors; it is small."""
        return {
            **under("random.", self.random_state.tensors()),
            **under("shard.", self.batches.state()),
            **self.regularizers.state(),
        }

    def _load_beside_model(self, state: Mapping[str, Tensor]) -> bool:
        self.random_state.restore(part_of(state, "random."))
        same_shard = self.batches.load_state(part_of(state, "shard."))
        if same_shard:
            self.regularizers.load_state(state)
        return same_shard

    def drop_real_half(self) -> None:
        """Forgets the real half of the next gradient."""
        self.discriminator.zero_grad()
        self._real_loss, self._real = None, None
