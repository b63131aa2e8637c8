"""Several discriminators that learn and judge at once, and several GANs that train at once.

Shapes are written [R, b, C, H, W]: a batch of b samples for each of R discriminators or GANs.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from mdgan.gan.discriminator_learner import DiscriminatorLearner, Stage, unobserved
from mdgan.gan.labels import Samples, inputs
from mdgan.gan.local_gan import Generated, LocalGAN
from mdgan.gan.losses import Term, as_output
from mdgan.gan.model_stack import CannotStack, FreshStack, ModelStack, Weights
from mdgan.gan.regularizers.contract import BETWEEN, FAKE, REAL


class StackedLearners:
    """Computes for all learners at once what `DiscriminatorLearner` computes for one.

    Results are the same up to rounding, since sums are grouped in another way. Dropout draws all
    masks from the first learner's random state: they are as independent as masks that each learner
    draws, but not the same.

    Raises:
        CannotStack: these learners must be computed one by one; they are unchanged.
    """

    def __init__(
        self,
        learners: Sequence[DiscriminatorLearner],
        stages: Sequence[Stage],
        kind: type[ModelStack] = ModelStack,
    ) -> None:
        first = learners[0]
        self._learners = learners
        self._stages = stages
        self._rules, self._random_state = first.rules, first.random_state
        self._regularizers = first.regularizers
        self._is_conditional = first.discriminator.is_conditional
        if any(learner.rules != self._rules for learner in learners):
            raise CannotStack("they learn in different ways")
        self._models = kind([learner.discriminator for learner in learners])

    def rehearse(self, sample_shape: Sequence[int]) -> None:
        """Tries with copies, on samples (C, H, W), whether they can stack; else CannotStack."""
        random_tensors = self._random_state.tensors()
        shape = (len(self._learners), self._rules.batch_size, *sample_shape)
        images = torch.zeros(shape, device=self._models.device, requires_grad=True)
        labels = torch.zeros(shape[:2], dtype=torch.int64, device=self._models.device)
        batch = Samples(images, labels if self._is_conditional else None)

        def compute(weights: Weights) -> Tensor:
            losses, logits = self._losses(weights, batch, self._rules.discriminator_loss.real)
            for place in (REAL, FAKE, BETWEEN):
                losses = self._regularizers.penalized(place, losses, logits, images)
            return losses.sum()

        try:
            with self._random_state.in_place():
                self._models.rehearse(compute, images)
        finally:
            self._random_state.restore(random_tensors)

    def adopt(self) -> None:
        """Makes every discriminator's weights views of the stack."""
        self._models.adopt()

    def learn(self, rows: Sequence[int], fake: Samples) -> Tensor:
        """L local steps on [R, b, C, H, W]; returns J_disc before the last, [R]."""
        losses_before = torch.zeros(len(rows))
        for _ in range(self._rules.local_steps):
            self.learn_real_halves(rows)
            with self.stage(rows, "fake half"):
                losses, _ = self._learn(rows, FAKE, fake, self._rules.discriminator_loss.fake)
                if self._regularizers.at(BETWEEN):
                    self._learn(rows, BETWEEN, self._mixed(rows, fake), None)
            with self.stage(rows, "local step"):
                self._models.step(rows, self._rules.loss_scale)
            ended = zip(rows, losses, strict=True)
            losses_before = torch.stack(
                [self._learners[r].end_local_step(loss) for r, loss in ended]
            )
        return losses_before

    def learn_real_halves(self, rows: Sequence[int]) -> None:
        """Learns the real half of every one of R learners that has not learnt it yet."""
        rows = [row for row in rows if not self._learners[row].has_real_half]
        if not rows:
            return
        learners = [self._learners[row] for row in rows]
        with self.stage(rows, "real half"):
            drawn = [learner.draw_real() for learner in learners]
            real = Samples.stacked(drawn).to(self._models.device)
            losses, logits = self._learn(rows, REAL, real, self._rules.discriminator_loss.real)
            for learner, loss, of_real in zip(learners, losses, logits, strict=True):
                learner.keep_real_half(loss, of_real)

    def judge(self, rows: Sequence[int], judged: Samples) -> tuple[Tensor, Tensor]:
        """J_gen, [R], and logits, [R, b], of X^(g), with a graph to the images, not the weights."""
        augmented = self._augmented(rows, judged)
        weights = self._models.chosen(rows)
        with self._random_state.in_place():
            judgement = self._losses(weights, augmented, self._rules.generator_loss)
        self._models.put_back(rows, weights)
        return judgement

    @contextmanager
    def stage(self, rows: Sequence[int], name: str) -> Iterator[None]:
        """Records a stage for some learners."""
        with ExitStack() as stages:
            for row in rows:
                stages.enter_context(self._stages[row](name))
            yield

    def _learn(
        self, rows: Sequence[int], place: str, batch: Samples, term: Term | None
    ) -> tuple[Tensor, Tensor]:
        """As `DiscriminatorLearner._learn`: losses, [R], and logits, [R, b]; without graphs."""
        if self._regularizers.at(place):
            batch = batch.of(batch.images.detach().requires_grad_())
        augmented = self._augmented(rows, batch)
        weights = self._models.chosen(rows)
        self._models.learnt(weights)
        with self._random_state.in_place():
            losses, logits = self._losses(weights, augmented, term)
            whole = self._regularizers.penalized(place, losses, logits, batch.images)
            loss = (whole * self._rules.loss_scale).sum()
            self._models.learn(rows, weights, loss, begin=place == REAL)
        return losses.detach(), logits.detach()

    def _losses(self, weights: Weights, batch: Samples, term: Term | None) -> tuple[Tensor, Tensor]:
        """Losses, [R], and logits, [R, b], with their graph; losses are 0 without a term."""

        def read(
            returned: Tensor | tuple[Tensor, Tensor], _images: Tensor, labels: Tensor | None = None
        ) -> tuple[Tensor, Tensor]:
            output = as_output(returned)
            loss = output.logits.new_zeros(())
            if term is not None:
                loss = self._rules.loss(term, output, labels)
            return loss, output.logits.flatten()

        losses, logits = self._models.outputs(weights, read, *inputs(batch.images, batch.labels))
        return losses, logits

    def _mixed(self, rows: Sequence[int], fake: Samples) -> Samples:
        """As `DiscriminatorLearner.mixed` for each learner, with the learner's random numbers."""
        mixed = []
        for place, row in enumerate(rows):
            learner = self._learners[row]
            with learner.random_state.in_place():
                mixed.append(learner.mixed(fake[place]))
        return Samples.stacked(mixed)

    def _augmented(self, rows: Sequence[int], batch: Samples) -> Samples:
        """The batches as regularisers change them, with each learner's random numbers."""
        if not self._regularizers.change_images:
            return batch
        augmented = []
        for row, images in zip(rows, batch.images, strict=True):
            learner = self._learners[row]
            with learner.random_state.in_place():
                augmented.append(learner.regularizers.see(images))
        return batch.of(torch.stack(augmented))


class StackedGANs:
    """Computes for all GANs at once what `LocalGAN` computes for one; see `StackedLearners`.

    Each GAN draws its own noise and samples; dropout draws all masks from the first one's state.

    Args:
        gans: at least one, with moments at zero, which this leaves at zero; their weights become
            views of the stack, and stay so.
    """

    def __init__(self, gans: Sequence[LocalGAN]) -> None:
        self._gans = gans
        self._rows = range(len(gans))
        if gans[0].learner.rules.loss_scale != 1.0:
            raise CannotStack("with fp16 each must see for itself whether a gradient overflows")
        if any(gan.num_generated != gans[0].num_generated for gan in gans):
            raise CannotStack("they train on batches of different sizes")
        self._generators = FreshStack([gan.trained for gan in gans])
        learners = [gan.learner for gan in gans]
        self._learners = StackedLearners(learners, [unobserved] * len(gans), FreshStack)

    def rehearse(self) -> None:
        """Tries with copies whether the GANs can be computed at once; else CannotStack."""
        generator, num_samples = self._gans[0].trained, self._gans[0].num_generated
        z = torch.zeros(len(self._gans), num_samples, generator.z_dim, device=generator.device)
        labels = None
        if generator.label_counts is not None:
            labels = torch.zeros(z.shape[:2], dtype=torch.int64, device=z.device)
        shapes: list[torch.Size] = []

        def compute(weights: Weights) -> Tensor:
            images = self._images(weights, z, labels)
            shapes.append(images.shape[2:])
            return images.sum()

        random_tensors = generator.random_state.tensors()
        try:
            with generator.random_state.in_place():
                self._generators.rehearse(compute)
        finally:
            generator.random_state.restore(random_tensors)
        self._learners.rehearse(shapes[0])

    def adopt(self) -> None:
        """Makes all weights views of the stack; call it before `step`."""
        self._generators.adopt()
        self._learners.adopt()

    def step(self) -> Tensor:
        """One iteration of each, as `LocalGAN.step`; returns J_disc and J_gen of each, [R, 2]."""
        weights = self._generators.chosen(self._rows)
        self._generators.learnt(weights)
        first = self._gans[0]
        drawn = [gan.trained.draw_inputs(gan.num_generated) for gan in self._gans]
        z = torch.stack([z for z, _ in drawn])
        labels = [y for _, y in drawn if y is not None]
        y = torch.stack(labels) if labels else None
        with first.trained.random_state.in_place():
            samples = Samples(self._images(weights, z, y), y)
        generated = Generated(*map(_turned, first.divided(_turned(samples))))
        discriminator_losses = self._learners.learn(self._rows, generated.fake)
        generator_losses, _ = self._learners.judge(self._rows, generated.judged)
        self._generators.learn(self._rows, weights, generator_losses.sum())
        self._generators.step(self._rows, 1.0)
        return torch.stack([discriminator_losses, generator_losses.detach()], dim=1)

    def _images(self, weights: Weights, z: Tensor, labels: Tensor | None) -> Tensor:
        arguments = inputs(z, labels)
        images: Tensor = self._generators.outputs(weights, lambda output, *_: output, *arguments)
        return images


def _turned(samples: Samples) -> Samples:
    return samples.each(lambda part: part.transpose(0, 1))
