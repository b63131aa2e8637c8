"""Several discriminators that learn and judge at once.

Shapes are written [R, b, C, H, W]: a batch of b samples for each of R of the learners.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor

from mdgan.gan.discriminator_learner import DiscriminatorLearner, Rules, Stage
from mdgan.gan.discriminator_stack import DiscriminatorStack, Penalty
from mdgan.gan.labels import Samples, num_classes_of
from mdgan.gan.losses import Verdict
from mdgan.gan.model_stack import CannotStack, ModelStack
from mdgan.gan.regularizers import gradient_penalty, r1_penalty


class StackedLearners:
    """Computes for all learners at once what `DiscriminatorLearner` computes for one.

    Results are the same up to rounding, since sums are grouped in another way. Dropout draws all
    masks from the first learner's random state: they are as independent as those that learners draw
    one by one, but not the same.

    Args:
        learners: with models of the same kind; a row is a place among them.
        stages: the hooks that their stages run in. Each stage is recorded for every learner, with
            the same beginning and end.
        kind: of the stack of their discriminators.

    Raises:
        CannotStack: these learners must be computed one by one; they are unchanged.
    """

    def __init__(
        self,
        learners: Sequence[DiscriminatorLearner],
        stages: Sequence[Stage],
        kind: type[ModelStack] = ModelStack,
    ) -> None:
        self._learners = learners
        self._stages = stages
        self._rules, self._random_state = learners[0].rules, learners[0].random_state
        self._r1, self._gradient_penalty = _penalties(self._rules)
        if any(learner.rules != self._rules for learner in learners):
            raise CannotStack("they learn in different ways")
        self._models = kind([learner.discriminator for learner in learners])
        self._stack = DiscriminatorStack(self._models)

    def rehearse(self, sample_shape: Sequence[int]) -> None:
        """Sees with copies whether they can be computed at once.

        Args:
            sample_shape: of one sample, (C, H, W).

        Raises:
            CannotStack: they cannot.
        """
        before = self._random_state.tensors()
        penalty = self._r1 or self._gradient_penalty
        shape = (len(self._learners), self._rules.batch_size, *sample_shape)
        batch = Samples(torch.zeros(shape, device=self._models.device))
        if num_classes_of(self._learners[0].discriminator.model) is not None:
            labels = torch.zeros(shape[:2], dtype=torch.int64, device=self._models.device)
            batch = Samples(batch.images, labels)
        loss = partial(self._rules.loss, self._rules.discriminator_loss.real)
        try:
            with self._random_state.in_place():
                self._stack.rehearse(batch, loss, penalty)
        finally:
            self._random_state.restore(before)

    def adopt(self) -> None:
        """Makes every discriminator's weights views of the stack."""
        self._models.adopt()

    def arrange(self) -> None:
        """Puts the rows into the learners' order again, which swaps by reference mix up.

        Otherwise dropout masks would depend on all earlier swaps, which a resumed run forgets.
        """
        self._models.arrange([learner.discriminator for learner in self._learners])

    def learn(self, rows: Sequence[int], fake: Samples) -> Tensor:
        """L local steps (Hardy et al. 2019, Algorithm 1, lines 6-8).

        Args:
            rows: of R learners, increasing.
            fake: X^(d) of each, [R, b, C, H, W]; with labels, [R, b], if D is conditional.

        Returns:
            J_disc before the last step, [R].
        """
        loss = partial(self._rules.loss, self._rules.discriminator_loss.fake)
        scale = self._rules.loss_scale
        losses_before = torch.zeros(len(rows))
        for _ in range(self._rules.local_steps):
            self.learn_real_halves(rows)
            with self.stage(rows, "fake half"):
                seen = fake.of(self._augmented(rows, fake.images))
                with self._random_state.in_place():
                    losses, _ = self._stack.learn(rows, seen, loss, scale, begin=False)
                if self._gradient_penalty is not None:
                    self._learn_gradient_penalty(rows, fake)
            with self.stage(rows, "local step"):
                self._models.step(rows, scale)
            ended = zip(rows, losses, strict=True)
            losses_before = torch.stack([self._learners[r].end_local_step(own) for r, own in ended])
        return losses_before

    def learn_real_halves(self, rows: Sequence[int]) -> None:
        """Learns the real half of every one of R learners that has not learnt it yet."""
        rows = [row for row in rows if not self._learners[row].has_real_half]
        if not rows:
            return
        learners = [self._learners[row] for row in rows]
        with self.stage(rows, "real half"):
            real = _stacked([learner.draw_real() for learner in learners]).to(self._models.device)
            real.images.requires_grad_(self._r1 is not None)
            seen = real.of(self._augmented(rows, real.images))
            loss = partial(self._rules.loss, self._rules.discriminator_loss.real)
            with self._random_state.in_place():
                losses, logits = self._stack.learn(
                    rows,
                    seen,
                    loss,
                    self._rules.loss_scale,
                    begin=True,
                    penalty=self._r1,
                    source=real.images,
                )
            for learner, own, said in zip(learners, losses, logits, strict=True):
                learner.keep_real_half(own, said)

    def judge(self, rows: Sequence[int], judged: Samples) -> tuple[Tensor, Tensor]:
        """J_gen of what R learners see, with a graph to the images; the weights are in none.

        Args:
            rows: of the learners, increasing.
            judged: X^(g) of each, [R, b, C, H, W]; with labels, [R, b], if D is conditional.

        Returns:
            The losses, [R], and the logits, [R, b].
        """
        seen = judged.of(self._augmented(rows, judged.images))
        loss = partial(self._rules.loss, self._rules.generator_loss)
        with self._random_state.in_place():
            return self._stack.judge(rows, seen, loss)

    @contextmanager
    def stage(self, rows: Sequence[int], name: str) -> Iterator[None]:
        """Records a stage for some learners."""
        with ExitStack() as stages:
            for row in rows:
                stages.enter_context(self._stages[row](name))
            yield

    def _learn_gradient_penalty(self, rows: Sequence[int], fake: Samples) -> None:
        mixed = []
        for row, batch in zip(rows, fake.images, strict=True):
            learner = self._learners[row]
            with learner.random_state.in_place():
                mixed.append(learner.mixed(batch))
        source = torch.stack(mixed).requires_grad_()
        seen = fake.of(self._augmented(rows, source))
        with self._random_state.in_place():
            self._stack.learn(
                rows,
                seen,
                _nothing,
                self._rules.loss_scale,
                begin=False,
                penalty=self._gradient_penalty,
                source=source,
            )

    def _augmented(self, rows: Sequence[int], batch: Tensor) -> Tensor:
        """What discriminators see of a batch each, [R, b, C, H, W]; each draws its own numbers."""
        learners = [self._learners[row] for row in rows]
        if not learners[0].augmentation.on:
            return batch
        seen = []
        for learner, samples in zip(learners, batch, strict=True):
            with learner.random_state.in_place():
                seen.append(learner.augmentation(samples))
        return torch.stack(seen)


def _penalties(rules: Rules) -> tuple[Penalty | None, Penalty | None]:
    """R1 and the gradient penalty; None where there is none."""

    def r1(logits: Tensor, batch: Tensor) -> Tensor:
        return r1_penalty(logits, batch, rules.r1)

    def between(logits: Tensor, batch: Tensor) -> Tensor:
        return gradient_penalty(logits, batch, rules.gradient_penalty)

    return r1 if rules.r1 else None, between if rules.gradient_penalty else None


def _nothing(verdict: Verdict, _labels: Tensor | None) -> Tensor:
    """A loss that is always 0."""
    return verdict.logits.new_zeros(())


def _stacked(batches: Sequence[Samples]) -> Samples:
    """Batches of samples, all with labels or none, as one with one more dimension."""
    labels = [batch.labels for batch in batches if batch.labels is not None]
    images = torch.stack([batch.images for batch in batches])
    return Samples(images, torch.stack(labels) if labels else None)
