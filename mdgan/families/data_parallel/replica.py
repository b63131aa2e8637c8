"""What workers and the server compute in data-parallel training (ParaGAN, section 2).

All replicas of a network are equal whenever a gradient is taken, and all take the same step: with
the mean of the gradients that workers find on their own batches. Only the server has optimizers:
what it steps is its reference replica.

Synchronous updates take one step after the other: θ' = opt_D(θ; x, G_w(z)), then
w' = opt_G(w; D_θ'(G_w(z'))). Asynchronous ones (section 5.1, figure 5) take both at once, and
discriminators learn from images that were made K iterations before:
θ' = opt_D(θ; x, X of K iterations ago), w' = opt_G(w; D_θ(G_w(z'))).

BatchNorm normalizes each batch by its own statistics. Its running statistics, which training never
reads, and all other buffers are averaged when an iteration ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor, nn

from mdgan.families.data_parallel.image_buffer import ImageBuffer
from mdgan.families.data_parallel.scaling import BatchSizes
from mdgan.gan.discriminator_learner import Stage, unobserved
from mdgan.gan.labels import Samples, num_classes_of
from mdgan.gan.local_gan import Generated, LocalGAN
from mdgan.gan.model_state import check_names, part_of, under
from mdgan.gan.model_vector import TensorVector, buffers_of, gradients_of, weights_of

ALL = GENERATOR, DISCRIMINATOR, BUFFERS = "generator", "discriminator", "buffers"
"""The names of `weight_vectors`."""
WHOLE = 2.0**24
"""By this whole numbers are divided while they are averaged with gradients."""
_IMAGES = "images."
_OF_MODELS = ("generator.", "optimizer.", "worker.discriminator.")
"""What `LocalGAN.state` has that comes anew with the server's next question."""


@dataclass(frozen=True)
class Reduction:
    """Gradients that are averaged at one time."""

    networks: tuple[str, ...]
    """Whose gradients: `discriminator`, `generator`, or both."""
    buffered: tuple[str, ...] = ()
    """Of which networks buffers are averaged, too; an iteration ends with it then."""

    @property
    def last(self) -> bool:
        """Whether the iteration ends with it."""
        return bool(self.buffered)

    @property
    def changed(self) -> set[str]:
        """What has other values after the step, by the names of `weight_vectors`."""
        return {*self.networks, *([BUFFERS] if self.last else [])}

    def vector(self, models: Mapping[str, nn.Module]) -> "GradientVector":
        """What is averaged, as one tensor."""
        return GradientVector(
            [models[name] for name in self.networks], [models[name] for name in self.buffered]
        )


OF_DISCRIMINATOR = Reduction((DISCRIMINATOR,))
OF_GENERATOR = Reduction((GENERATOR,), (GENERATOR, DISCRIMINATOR))
OF_BOTH = Reduction((DISCRIMINATOR, GENERATOR), (GENERATOR, DISCRIMINATOR))
ALONE = {name: Reduction((name,), (name,)) for name in (DISCRIMINATOR, GENERATOR)}
"""By network: what the group averages that trains it alone."""


def reductions(lag: int, local_steps: int = 1) -> list[Reduction]:
    """An iteration: L steps of the discriminators, then G's; with a lag both at once."""
    return [OF_BOTH] if lag else [*[OF_DISCRIMINATOR] * local_steps, OF_GENERATOR]


class GradientVector(TensorVector):
    """Gradients of some models as one tensor, and buffers of some, which follow them.

    Whole numbers, such as BatchNorm's count of batches, are scaled down, or drown gradients.

    Attributes:
        num_gradient_blocks: how many of the first blocks hold gradients.
    """

    def __init__(self, trained: list[nn.Module], buffered: list[nn.Module]) -> None:
        buffers = buffers_of(*buffered)
        gradients = gradients_of(*trained)
        super().__init__(gradients, buffers)
        self.num_gradient_blocks, _ = TensorVector(gradients).shape
        _, whole = buffers()
        num_whole_blocks, _ = TensorVector(lambda: [whole]).shape
        self._first_whole = self.shape[0] - num_whole_blocks

    def read(self) -> Tensor:
        """See `TensorVector`."""
        vector = super().read()
        vector[self._first_whole :] /= WHOLE
        return vector

    def write(self, *vectors: Tensor) -> None:
        """See `TensorVector`; in one piece."""
        (vector,) = vectors
        super().write(vector[: self._first_whole], vector[self._first_whole :] * WHOLE)


def weight_vectors(models: Mapping[str, nn.Module]) -> dict[str, TensorVector]:
    """What the server sends: the weights of each network, and the buffers of both."""
    generator, discriminator = models[GENERATOR], models[DISCRIMINATOR]
    return {
        GENERATOR: TensorVector(weights_of(generator)),
        DISCRIMINATOR: TensorVector(weights_of(discriminator)),
        BUFFERS: TensorVector(buffers_of(generator, discriminator)),
    }


class Replica:
    """A worker's copies of both networks, its data and its random numbers."""

    def __init__(self, gan: LocalGAN, shape: Sequence[int]) -> None:
        self._gan = gan
        self._shape = shape
        self._images = self._no_images()
        self.models = {GENERATOR: gan.generator, DISCRIMINATOR: gan.discriminator}
        self._vectors = weight_vectors(self.models)
        self._vector = cache(partial(Reduction.vector, models=self.models))
        self._generated: Generated | None = None
        self._discriminator_loss = torch.zeros((), device=gan.trained.device)

    def take_over(self, weights: Mapping[str, Tensor]) -> None:
        """Takes over what has changed in the server's replica, by the names of `weight_vectors`."""
        for name, vector in weights.items():
            self._vectors[name].write(vector)
        if GENERATOR in weights:
            self._generated = None

    def gradients(
        self, reduction: Reduction, batch_sizes: BatchSizes, lag: int = 0, stage: Stage = unobserved
    ) -> tuple[Tensor, Tensor]:
        """A worker's share of a reduction, and what `learn` returns."""
        losses = self.learn(reduction, batch_sizes, lag, stage)
        return self._vector(reduction).read(), losses

    def learn(
        self, reduction: Reduction, batch_sizes: BatchSizes, lag: int = 0, stage: Stage = unobserved
    ) -> Tensor:
        """Puts gradients in place; returns J_disc and J_gen, [2]; J_gen is 0 before its turn."""
        if self._generated is None:
            self._gan.use_batch_size(batch_sizes.discriminator, batch_sizes.generator)
            made = self._gan.generate(stage)
            self._generated = made._replace(fake=self._images.exchange(made.fake, lag))
        if DISCRIMINATOR in reduction.networks:
            learner = self._gan.learner
            self._discriminator_loss = learner.learn_both_halves(self._generated.fake, stage)
        generator_loss = torch.zeros_like(self._discriminator_loss)
        if GENERATOR in reduction.networks:
            generator_loss = self._gan.learn_generator(self._generated.judged, stage)
        if reduction.last:
            self._generated = None
        return torch.stack([self._discriminator_loss, generator_loss])

    def generator_alone(
        self, num_images: int, label_counts: Tensor | None, stage: Stage
    ) -> tuple[Tensor, Tensor, Samples]:
        """The share of a worker that trains G alone: gradients, J_gen, and its images."""
        self._gan.use_batch_size(num_images)
        if label_counts is not None:
            self._gan.trained.label_counts = label_counts.cpu()
        made = self._gan.generate(stage)
        loss = self._gan.learn_generator(made.judged, stage)
        return self._vector(ALONE[GENERATOR]).read(), loss, made.judged.detach()

    def discriminator_alone(self, fake: Samples, stage: Stage) -> tuple[Tensor, Tensor]:
        """The share of a worker that trains D alone on others' images: the gradient, and J_disc."""
        self._gan.use_batch_size(len(fake))
        loss = self._gan.learner.learn_both_halves(fake, stage)
        return self._vector(ALONE[DISCRIMINATOR]).read(), loss

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the worker's next answer depends on, besides the networks."""
        now = self._gan.state()
        kept = {name: now[name] for name in now if not name.startswith(_OF_MODELS)}
        return {**kept, **under(_IMAGES, self._images.state())}

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Continues where `state` was taken; False if there are not as many samples.

        Raises:
            KeyError, RuntimeError: the state does not fit; nothing changed.
        """
        check_names(state, "noise", "random.", "worker.", _IMAGES)
        images = self._no_images()
        images.load_state(part_of(state, _IMAGES), self._gan.trained.device)
        now = self._gan.state()
        models = {name: now[name] for name in now if name.startswith(_OF_MODELS)}
        kept = {name: state[name] for name in state if not name.startswith(_IMAGES)}
        same_data = self._gan.load_state({**kept, **models})
        self._images, self._generated = images, None
        return same_data

    def _no_images(self) -> ImageBuffer:
        return ImageBuffer(self._shape, num_classes_of(self._gan.discriminator))
