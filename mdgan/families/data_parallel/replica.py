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

from mdgan.families.data_parallel.scaling import BatchSizes
from mdgan.gan import model_state
from mdgan.gan.discriminator_learner import Stage, unobserved
from mdgan.gan.labels import Samples, num_classes_of
from mdgan.gan.local_gan import Generated, LocalGAN
from mdgan.gan.model_vector import TensorVector, buffers_of, gradients_of, weights_of
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import TrainedModel, make_optimizer

ALL = GENERATOR, DISCRIMINATOR, BUFFERS = "generator", "discriminator", "buffers"
"""The names of `weight_vectors`."""
WHOLE = 2.0**24  # by this whole numbers are divided while they are averaged with gradients
_IMAGES = "images."
_LABELS = "labels."
_OF_MODELS = ("generator.", "optimizer.", "worker.discriminator.")
"""What `LocalGAN.state` has that comes anew with the server's next question."""


@dataclass(frozen=True)
class Reduction:
    """Gradients that are averaged at one time."""

    networks: tuple[str, ...]  # whose gradients: `discriminator`, `generator`, or both
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


def deal(images: Samples, sizes: Mapping[int, int]) -> dict[int, Samples]:
    """Deals generated images out to workers, like cards: each gets as many as `sizes` says.

    After the last image comes the first again; if there are too many, the last ones are left out.
    """
    dealt, first = {}, 0
    for worker, size in sizes.items():
        places = torch.arange(first, first + size) % len(images)
        dealt[worker] = images[places.tolist()]
        first += size
    return dealt


class ImageBuffer:
    """The image buffer (ParaGAN, section 5.1): the newest generated batches, without their graphs.

    They are of one worker, or of several together.
    """

    def __init__(self, shape: Sequence[int], num_classes: int | None) -> None:
        self._shape = torch.Size(shape)
        self._num_classes = num_classes
        self._batches: list[Samples] = []

    def exchange(self, made: Samples, lag: int) -> Samples:
        """Takes in what G has made, and gives the batch of `lag` iterations ago, or the oldest.

        Batches of another size than `made` are dropped: they are of a time with other workers.
        """
        self._batches = [batch for batch in self._batches if len(batch) == len(made)]
        oldest = [*self._batches, made][-lag - 1 :][0]
        self.take_in(made, lag)
        return oldest

    def oldest(self) -> Samples | None:
        """The batch that was taken in first, of those that are kept; None if there is none."""
        return self._batches[0] if self._batches else None

    def take_in(self, made: Samples, lag: int) -> None:
        """Takes in the batch of an iteration, of any size, and keeps those of the last `lag`."""
        self._batches = [*self._batches, made][-lag:] if lag else []

    def state(self) -> dict[str, Tensor]:
        """A copy: `0`, `1`, … are the images, the oldest first, and `labels.0`, … their classes."""
        state = {}
        for number, batch in enumerate(self._batches):
            state[str(number)] = batch.images.clone()
            if batch.labels is not None:
                state[f"{_LABELS}{number}"] = batch.labels.clone()
        return state

    def load_state(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Continues on a device where `state` was taken, or raises `KeyError` or `RuntimeError`."""
        labelled = self._num_classes is not None
        numbers = [str(number) for number in range(len(state) // (2 if labelled else 1))]
        expected = {*numbers, *(f"{_LABELS}{number}" for number in numbers if labelled)}
        if state.keys() != expected:
            raise KeyError(f"no batches of generated samples: {sorted(state)}")
        batches = [Samples(state[number], state.get(f"{_LABELS}{number}")) for number in numbers]
        for images, labels in ((batch.images, batch.labels) for batch in batches):
            if images.shape[1:] != self._shape or images.dtype != torch.float32:
                raise RuntimeError(f"no generated images: {images.dtype} {list(images.shape)}")
            if labels is None:
                continue
            fits = labels.dtype == torch.int64 and labels.shape == images.shape[:1]
            if not fits or not bool(((labels >= 0) & (labels < (self._num_classes or 0))).all()):
                raise RuntimeError(f"no classes of generated images: {labels.dtype}")
        self._batches = [batch.to(device) for batch in batches]


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
        return {**kept, **model_state.under(_IMAGES, self._images.state())}

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Continues where `state` was taken; False if there are not as many samples."""
        model_state.check_names(state, "noise", "random.", "worker.", _IMAGES)
        images = self._no_images()
        images.load_state(model_state.part_of(state, _IMAGES), self._gan.trained.device)
        now = self._gan.state()
        models = {name: now[name] for name in now if name.startswith(_OF_MODELS)}
        kept = {name: state[name] for name in state if not name.startswith(_IMAGES)}
        same_data = self._gan.load_state({**kept, **models})
        self._images, self._generated = images, None
        return same_data

    def _no_images(self) -> ImageBuffer:
        return ImageBuffer(self._shape, num_classes_of(self._gan.discriminator))


class ReferenceReplica:
    """A replica with optimizers: the server's, or one that takes the same steps."""

    def __init__(self, models: Mapping[str, nn.Module], policies: Mapping[str, Policy]) -> None:
        self.models = models  # both networks, by name; `networks`: the same, with their optimizers
        self.networks = {
            name: TrainedModel(model, make_optimizer(model, policies[name]), policies[name])
            for name, model in models.items()
        }
        self._weights = weight_vectors(models)
        self.vector = cache(partial(Reduction.vector, models=models))  # what a reduction averages

    @property
    def device(self) -> torch.device:
        """Where it lives."""
        return next(self.models[GENERATOR].parameters()).device

    def weights(self, name: str) -> Tensor:
        """The present weights of a network, or the buffers of both, as they travel."""
        return self._weights[name].read()

    def at(self, iteration: int, scales: Mapping[str, float]) -> None:
        """Learning rates become those of an iteration."""
        for name, network in self.networks.items():
            network.at(iteration, scales[name])

    def put(self, reduction: Reduction, mean: Tensor) -> None:
        """Puts the mean of all workers' gradients in place, and that of their buffers."""
        self.vector(reduction).write(mean)

    def step(self, reduction: Reduction) -> None:
        """One optimizer step of each network in a reduction."""
        for name in reduction.networks:
            self.networks[name].step()

    def moments(self, name: str) -> dict[str, Tensor]:
        """What the optimizer of a network keeps: the tensors themselves."""
        network = self.networks[name]
        return model_state.optimizer_tensors(network.model, network.optimizer)

    def load_moments(self, name: str, moments: Mapping[str, Tensor]) -> None:
        """The optimizer of a network goes on with what `moments` gave; weights stay."""
        network = self.networks[name]
        model_state.load_moments(network.model, network.optimizer, moments)

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the next iteration depends on, by network and `…_moments`."""
        state: dict[str, Tensor] = {}
        for name, network in self.networks.items():
            state |= model_state.under(f"{name}.", network.model.state_dict())
            state |= model_state.under(f"{name}_moments.", self.moments(name))
        return {name: tensor.detach().clone() for name, tensor in state.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned, or raises `KeyError` or `RuntimeError`."""
        prefixes = [f"{name}{end}" for name in self.networks for end in (".", "_moments.")]
        model_state.check_names(state, *prefixes)
        for name, network in self.networks.items():
            weights, moments = (
                model_state.part_of(state, f"{name}."),
                model_state.part_of(state, f"{name}_moments."),
            )
            model_state.load_model(network.model, network.optimizer, weights, moments)
