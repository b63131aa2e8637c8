"""How a discriminator learns: L local steps on real and generated batches.

Shapes are written [b, C, H, W]: b samples.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from mdgan.gan.arithmetic import finite_or_zero
from mdgan.gan.augmentation import Augmentation
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.labels import Samples, call
from mdgan.gan.losses import DiscriminatorLoss, Term, Verdict, as_verdict, with_class_loss
from mdgan.gan.model_state import check_names, part_of, under
from mdgan.gan.randomness import RandomState
from mdgan.gan.regularizers import gradient_penalty, mix, r1_penalty

Stage = Callable[[str], AbstractContextManager[Any]]
"""Takes a stage's name, and returns the context manager in which the stage runs."""


def unobserved(_name: str) -> AbstractContextManager[None]:
    """Runs the stage without measuring it."""
    return nullcontext()


class Batches(Protocol):
    """Private data."""

    def next_batch(self, batch_size: int) -> Samples:
        """The next real samples, float32 [b, C, H, W] in [−1, 1], with their classes if known."""

    def state(self) -> dict[str, Tensor]:
        """Which samples come next; tensors that are never written to."""

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Continues where `state` was taken; False, and nothing changed, with other data.

        Raises:
            KeyError, RuntimeError: the state is malformed; nothing changed.
        """


class RealHalf(Protocol):
    """Another way to make the half of a gradient that needs only real data."""

    def learn(
        self, discriminator: Discriminator, rules: "Rules", augmentation: Augmentation
    ) -> Tensor:
        """Puts it in place, and returns Ã as it may be told, a scalar without a graph."""

    @property
    def over(self) -> bool:
        """Whether there may be none any more."""

    def taken(self) -> None:
        """The local step that it was for is over."""


@dataclass(frozen=True)
class Rules:
    """How a discriminator learns and judges; the same for all of a run.

    Attributes:
        batch_size: b.
        local_steps: L.
        discriminator_loss: J_disc.
        generator_loss: J_gen.
        loss_scale: what losses are multiplied by; see `arithmetic.loss_scale`.
        r1: γ of `regularizers.r1_penalty`; 0 for none.
        gradient_penalty: λ of `regularizers.gradient_penalty`; 0 for none.
        class_weight: of `losses.with_class_loss`.
        merges_halves: whether D judges the real and the generated batch in one pass.
    """

    batch_size: int
    local_steps: int
    discriminator_loss: DiscriminatorLoss
    generator_loss: Term
    loss_scale: float = 1.0
    r1: float = 0.0
    gradient_penalty: float = 0.0
    class_weight: float = 1.0
    merges_halves: bool = False

    def loss(self, term: Term, verdict: Verdict, labels: Tensor | None) -> Tensor:
        """One of the losses of a batch, a scalar, with the auxiliary classifier's if there is one.

        Args:
            term: Ã, B̃ or J_gen.
            verdict: D's.
            labels: y; None if D is not conditional.
        """
        return with_class_loss(term(verdict.logits), verdict, labels, self.class_weight)


class DiscriminatorLearner:
    """A discriminator, the private data that it learns from, and its random numbers.

    Attributes:
        discriminator: D.
        batches: B, the shard.
        random_state: of dropout and the like.
        augmentation: what all samples go through before D sees them; belongs to the shard.
        rules: how it learns and judges.
        real_half: makes the real half of gradients; None for a pass over the next batch.
    """

    def __init__(
        self,
        discriminator: Discriminator,
        batches: Batches,
        random_state: RandomState,
        rules: Rules,
        augmentation: Augmentation | None = None,
        real_half: RealHalf | None = None,
    ) -> None:
        self.discriminator = discriminator
        self.batches = batches
        self.random_state = random_state
        self.rules = rules
        self.augmentation = augmentation or Augmentation()
        self.real_half = real_half
        self._real_loss: Tensor | None = None
        self._real: Samples | None = None
        self._real_logits = torch.zeros(0)

    def _learn_real_half(self) -> None:
        """The half of the next gradient that needs only real data."""
        if self.real_half is not None:
            loss = self.real_half.learn(self.discriminator, self.rules, self.augmentation)
            self.keep_real_half(loss, torch.zeros(0))
            return
        real = self.draw_real().to(self.discriminator.device)
        with self.random_state.in_place():
            self.discriminator.zero_grad()
            if self.rules.r1:
                real = real.of(real.images.detach().requires_grad_())
            verdict = self.judge(real)
            logits = verdict.logits
            loss = self.rules.loss(self.rules.discriminator_loss.real, verdict, real.labels)
            penalty = r1_penalty(logits, real.images, self.rules.r1) if self.rules.r1 else 0.0
            ((loss + penalty) * self.rules.loss_scale).backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        self.keep_real_half(loss.detach(), logits.detach())

    def judge(self, samples: Samples) -> Verdict:
        """What D says of samples that are augmented first, with the random numbers in place.

        Args:
            samples: [b, C, H, W]; with labels if D is conditional, else without.
        """
        seen = self.augmentation(samples.images)
        return as_verdict(call(self.discriminator.model, seen, samples.labels))

    def learn(self, fake: Samples, stage: Stage = unobserved) -> Tensor:
        """L local steps of J_disc = Ã(X_r) + B̃(X^(d)) (Algorithm 1, lines 6-8).

        Args:
            fake: X^(d), [b, C, H, W]; with labels if D is conditional.
            stage: what the stages `real half`, `fake half` and `local step` run in.

        Returns:
            J_disc before the last step, a scalar.
        """
        loss = torch.zeros(())
        for _ in range(self.rules.local_steps):
            loss = self.learn_both_halves(fake, stage)
            with stage("local step"):
                self.discriminator.step()
        return loss

    def learn_both_halves(self, fake: Samples, stage: Stage = unobserved) -> Tensor:
        """Puts the gradient of one local step in place; the optimizer has not stepped yet.

        Args:
            fake: X^(d), [b, C, H, W].
            stage: what the stages `real half` and `fake half` run in, or `both halves`.

        Returns:
            J_disc, a scalar.
        """
        merges = self.rules.merges_halves
        if not merges and not self.has_real_half:
            with stage("real half"):
                self._learn_real_half()
        with stage("both halves" if merges else "fake half"), self.random_state.in_place():
            if merges:
                loss, fake_loss = self._both_losses(fake)
            else:
                term = self.rules.discriminator_loss.fake
                loss = fake_loss = self.rules.loss(term, self.judge(fake), fake.labels)
            (loss * self.rules.loss_scale).backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated
            if self.rules.gradient_penalty:
                self._learn_gradient_penalty(fake)
            if self.rules.loss_scale != 1.0:
                finite_or_zero(self.discriminator.gradients(), self.rules.loss_scale)
        return self.end_local_step(fake_loss.detach())

    def _both_losses(self, fake: Samples) -> tuple[Tensor, Tensor]:
        """J_disc and its term B̃, scalars with their graph, from one pass over X_r and X^(d).

        Inputs that meet the same weights are joined (ParaGAN, section 4.2). Each half is augmented
        by itself, with the random numbers that it would get in a pass of its own.
        """
        self.discriminator.zero_grad()
        real = self.draw_real().to(self.discriminator.device)
        terms = self.rules.discriminator_loss
        seen = [half.of(self.augmentation(half.images)) for half in (real, fake)]
        both = seen[0].and_then(seen[1])
        output = call(self.discriminator.model, both.images, both.labels)
        of_real, of_fake = as_verdict(output).split(len(real))
        real_loss = self.rules.loss(terms.real, of_real, real.labels)
        fake_loss = self.rules.loss(terms.fake, of_fake, fake.labels)
        self.keep_real_half(real_loss.detach(), of_real.logits.detach())
        return real_loss + fake_loss, fake_loss

    def _learn_gradient_penalty(self, fake: Samples) -> None:
        mixed = fake.of(self.mixed(fake.images).requires_grad_())
        logits = self.judge(mixed).logits
        penalty = gradient_penalty(logits, mixed.images, self.rules.gradient_penalty)
        (penalty * self.rules.loss_scale).backward()  # type: ignore[no-untyped-call] # torch leaves it unannotated

    # What `learn` consists of, for code that computes the gradients of several learners at once.

    @property
    def has_real_half(self) -> bool:
        """Whether the half of the next gradient that needs only real data is there."""
        return self._real_loss is not None

    @property
    def real_loss(self) -> Tensor:
        """Ã of the real half that is there, a scalar."""
        assert self._real_loss is not None, "the real half comes first"
        return self._real_loss

    def draw_real(self) -> Samples:
        """The real batch of the next gradient, [b, C, H, W] on the CPU; labels if D takes them.

        The gradient is put in place next, and `keep_real_half` called.
        """
        real = self.batches.next_batch(self.rules.batch_size)
        if not self.discriminator.is_conditional:
            real = real.without_labels()
        if self.rules.gradient_penalty:
            self._real = real
        return real

    def mixed(self, fake: Tensor) -> Tensor:
        """x̂ of the gradient penalty, between the real batch of this local step and X^(d).

        Draws from the random state that is in place. A conditional D judges it with the label of
        the generated sample: a worker may hold few classes, and D must be kept from growing without
        bound for all that are generated.

        Args:
            fake: X^(d), [b, C, H, W].
        """
        assert self._real is not None, "the real half comes first"
        return mix(self._real.images.to(fake.device), fake)

    def keep_real_half(self, loss: Tensor, logits: Tensor) -> None:
        """The gradient of the real half is in place.

        Args:
            loss: Ã, a scalar without a graph.
            logits: D's of the real batch, without a graph.
        """
        self._real_logits = logits
        self._real_loss = loss

    def end_local_step(self, fake_loss: Tensor) -> Tensor:
        """The gradient of both halves is in place; a real half learnt next begins anew.

        Args:
            fake_loss: B̃, a scalar without a graph.

        Returns:
            J_disc before the step, a scalar.
        """
        loss = self.real_loss + fake_loss
        self.augmentation.note_real(self._real_logits)
        self._real_loss, self._real = None, None
        if self.real_half is not None:
            self.real_half.taken()
        return loss

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the next local step depends on, at any time between two.

        Returns:
            `discriminator.…` as `Discriminator.state`, `random.…` as `RandomState.tensors`, and
            `shard.…` as `Shard.state`; where augmentation adapts, `augmentation.…`.
        """
        now = {
            **under("discriminator.", self.discriminator.state()),
            **under("random.", self.random_state.tensors()),
            **under("shard.", self.batches.state()),
            **under("augmentation.", self.augmentation.state()),
        }
        return {name: tensor.clone() for name, tensor in now.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Continues where `state` was taken.

        Args:
            state: what `state` of a learner of the same architecture returned.

        Returns:
            Whether the shard is the same size; if not, it and its augmentation stay as they are.

        Raises:
            KeyError, RuntimeError: the state does not fit; nothing changed.
        """
        check_names(state, "discriminator.", "random.", "shard.", "augmentation.")
        augmentation_before = self.augmentation.state()
        random_before, batches_before = self.random_state.tensors(), self.batches.state()
        try:
            same_shard = self.batches.load_state(part_of(state, "shard."))
            if same_shard:
                self.augmentation.load_state(part_of(state, "augmentation."))
            self.random_state.restore(part_of(state, "random."))
            self.discriminator.load_state(part_of(state, "discriminator."))
        except BaseException:
            self.random_state.restore(random_before)
            self.batches.load_state(batches_before)
            self.augmentation.load_state(augmentation_before)
            raise
        self.drop_real_half()
        return same_shard

    def drop_real_half(self) -> None:
        """Forgets the half of a gradient that is already there."""
        self.discriminator.zero_grad()
        self._real_loss, self._real = None, None
