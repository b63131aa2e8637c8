"""Several GANs with equal models, each with data of its own, that train at once.

Shapes are written [R, b, C, H, W]: a batch of b samples for each of R GANs.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mdgan.gan.discriminator_learner import unobserved
from mdgan.gan.labels import Samples, inputs
from mdgan.gan.local_gan import Generated, LocalGAN
from mdgan.gan.model_stack import CannotStack, FreshStack, Weights
from mdgan.gan.stacked_learners import StackedLearners


class StackedGANs:
    """Computes for all GANs at once what `LocalGAN` computes for one.

    Results are the same up to rounding, since sums are grouped in another way. Each draws its own
    noise and its own samples. But dropout draws the masks of all from the first one's random states
    (`StackedLearners`).

    Args:
        gans: at least one, with moments at zero, which stay there; their weights become views of
            the stack, and stay so.

    Raises:
        CannotStack: these GANs must be computed one by one; they are unchanged.
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
        """Sees with copies whether they can be computed at once; else raises CannotStack."""
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

        before = generator.random_state.tensors()
        try:
            with generator.random_state.in_place():
                self._generators.rehearse(compute)
        finally:
            generator.random_state.restore(before)
        self._learners.rehearse(shapes[0])

    def adopt(self) -> None:
        """Makes all weights views of the stack: `step` needs it."""
        self._generators.adopt()
        self._learners.adopt()

    def step(self) -> Tensor:
        """One iteration of each, as `LocalGAN.step`; returns J_disc and J_gen of each, [R, 2]."""
        weights = self._generators.chosen(self._rows)
        self._generators.learnt(weights)
        generated = self._generate(weights)
        discriminator_losses = self._learners.learn(self._rows, generated.fake)
        generator_losses, _ = self._learners.judge(self._rows, generated.judged)
        self._generators.learn(self._rows, weights, generator_losses.sum())
        self._generators.step(self._rows, 1.0)
        return torch.stack([discriminator_losses, generator_losses.detach()], dim=1)

    def _generate(self, weights: Weights) -> Generated:
        first = self._gans[0]
        drawn = [gan.trained.draw_inputs(gan.num_generated) for gan in self._gans]
        z = torch.stack([z for z, _ in drawn])
        labels = [y for _, y in drawn if y is not None]
        y = torch.stack(labels) if labels else None
        with first.trained.random_state.in_place():
            samples = Samples(self._images(weights, z, y), y)
        return Generated(*map(_turned, first.divided(_turned(samples))))

    def _images(self, weights: Weights, z: Tensor, labels: Tensor | None) -> Tensor:
        given = inputs(z, labels)
        images: Tensor = self._generators.outputs(weights, lambda made, *_: made, *given)
        return images


def _turned(samples: Samples) -> Samples:
    """The first two dimensions exchanged."""
    labels = None if samples.labels is None else samples.labels.transpose(0, 1)
    return Samples(samples.images.transpose(0, 1), labels)
