"""The step of data-parallel GAN training (ParaGAN, sections 2 and 5.1, figure 5).

N workers have equal copies of D, with weights θ, and of G, with weights w. Each finds gradients on
its own batches x_n and noise z_n; every copy then takes the same step, with their mean. p_n is a
worker's share of all samples of the iteration; the shares add up to 1.

    g_θ = Σ_n p_n ∇_θ J_disc(D_θ; x_n, X_n)            θ' = opt_D(θ; g_θ)
    g_w = Σ_n p_n ∇_w J_gen(D(G_w(z_n)))               w' = opt_G(w; g_w)

Synchronous updates take one step after the other: L steps of θ with X_n = G_w(z'_n), then one of w
through D_θ'. Asynchronous ones take both at once, so that neither waits for the other: w learns
through D_θ, and θ from the images X_n that G made K iterations before, which an image buffer keeps.

The means are those of `exact_sum.average`, the same bits in whatever order they are added up. Where
they are found (by the server, by hosts among themselves, in common memory) does not matter here.

BatchNorm normalizes each batch by its own statistics. Its running statistics, which training never
reads, and all other buffers are averaged when an iteration ends.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor, nn

from mdgan.families.data_parallel.scaling import BatchSizes
from mdgan.families.data_parallel.vectors import BUFFERS, DISCRIMINATOR, GENERATOR, GradientVector
from mdgan.gan.discriminator_learner import Stage, unobserved
from mdgan.gan.labels import Samples
from mdgan.gan.local_gan import Generated, LocalGAN
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import TrainedModel, make_optimizer

# What an iteration consists of.


@dataclass(frozen=True)
class Reduction:
    """Gradients that are averaged at one time."""

    networks: tuple[str, ...]  # whose gradients: `discriminator`, `generator`, or both
    buffered: tuple[str, ...] = ()  # whose buffers, too; an iteration ends with it then

    @property
    def last(self) -> bool:
        """Whether the iteration ends with it."""
        return bool(self.buffered)

    @property
    def changed(self) -> set[str]:
        """What has other values after the step, by the names of `weight_vectors`."""
        return {*self.networks, *([BUFFERS] if self.last else [])}

    def vector(self, models: Mapping[str, nn.Module]) -> GradientVector:
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
    """An iteration: L steps of the discriminators, then G's; with a lag K both at once."""
    return [OF_BOTH] if lag else [*[OF_DISCRIMINATOR] * local_steps, OF_GENERATOR]


# A worker finds gradients.


class ImageBuffer:
    """The image buffer (section 5.1): the newest generated batches, without their graphs.

    They are of one worker, or of several together.
    """

    def __init__(self) -> None:
        self.batches: list[Samples] = []

    def exchange(self, made: Samples, lag: int) -> Samples:
        """Takes in what G has made, and gives the batch of `lag` iterations ago, or the oldest.

        Batches of another size than `made` are dropped: they are of a time with other workers.
        """
        self.batches = [batch for batch in self.batches if len(batch) == len(made)]
        oldest = [*self.batches, made][-lag - 1 :][0]
        self.take_in(made, lag)
        return oldest

    def take_in(self, made: Samples, lag: int) -> None:
        """Takes in the batch of an iteration, of any size, and keeps those of the last `lag`."""
        self.batches = [*self.batches, made][-lag:] if lag else []


class LocalStep:
    """A worker's copies of both networks, its data, and the images that wait for D."""

    def __init__(self, gan: LocalGAN, images: ImageBuffer) -> None:
        self.gan, self.images = gan, images
        self.models = {GENERATOR: gan.generator, DISCRIMINATOR: gan.discriminator}
        self.vector = cache(partial(Reduction.vector, models=self.models))
        self.generated: Generated | None = None  # those of this iteration, once they are made
        self._discriminator_loss = torch.zeros((), device=gan.trained.device)

    def learn(
        self, reduction: Reduction, batch_sizes: BatchSizes, lag: int = 0, stage: Stage = unobserved
    ) -> Tensor:
        """Puts gradients in place; returns J_disc and J_gen, [2]; J_gen is 0 before its turn."""
        # 1. Once an iteration: G_w(z_n) to judge, and X_n to learn from, now or K iterations old.
        if self.generated is None:
            self.gan.use_batch_size(batch_sizes.discriminator, batch_sizes.generator)
            made = self.gan.generate(stage)
            self.generated = made._replace(fake=self.images.exchange(made.fake, lag))

        # 2. ∇_θ J_disc(D_θ; x_n, X_n), of b_n real samples and as many generated ones.
        if DISCRIMINATOR in reduction.networks:
            learner = self.gan.learner
            self._discriminator_loss = learner.learn_both_halves(self.generated.fake, stage)

        # 3. ∇_w J_gen(D(G_w(z_n))), end to end through D as it is now.
        generator_loss = torch.zeros_like(self._discriminator_loss)
        if GENERATOR in reduction.networks:
            generator_loss = self.gan.learn_generator(self.generated.judged, stage)

        if reduction.last:
            self.generated = None
        return torch.stack([self._discriminator_loss, generator_loss])

    # Where one group of workers trains G and another one D.

    def generator_alone(
        self, num_images: int, label_counts: Tensor | None, stage: Stage
    ) -> tuple[Tensor, Tensor, Samples]:
        """The share of a worker that trains G alone: gradients, J_gen, and its images."""
        self.gan.use_batch_size(num_images)
        if label_counts is not None:
            self.gan.trained.label_counts = label_counts.cpu()
        made = self.gan.generate(stage)
        loss = self.gan.learn_generator(made.judged, stage)
        return self.vector(ALONE[GENERATOR]).read(), loss, made.judged.detach()

    def discriminator_alone(self, fake: Samples, stage: Stage) -> tuple[Tensor, Tensor]:
        """The share of a worker that trains D alone on others' images: the gradient, and J_disc."""
        self.gan.use_batch_size(len(fake))
        loss = self.gan.learner.learn_both_halves(fake, stage)
        return self.vector(ALONE[DISCRIMINATOR]).read(), loss


# The server steps, and so does each host that has optimizers, with the same mean.

FindMean = Callable[[Reduction], Tensor | None]
"""Has all workers find g_n, and gives Σ p_n g_n; None if none is left that could."""


class MeanStep:
    """Both networks with their optimizers, which step with the means of all workers."""

    def __init__(self, models: Mapping[str, nn.Module], policies: Mapping[str, Policy]) -> None:
        self.models = models  # both networks, by name; `networks`: the same, with their optimizers
        self.networks = {
            name: TrainedModel(model, make_optimizer(model, policies[name]), policies[name])
            for name, model in models.items()
        }
        self.vector = cache(partial(Reduction.vector, models=models))  # what a reduction averages
        self.num_done = 0  # reductions of this iteration

    def at(self, iteration: int, scales: Mapping[str, float]) -> None:
        """Learning rates become those of an iteration, for as many workers as there are."""
        for name, network in self.networks.items():
            network.at(iteration, scales[name])

    def iterate(self, plan: Sequence[Reduction], find_mean: FindMean, stage: Stage) -> bool:
        """One iteration, or what is left of it; False if all workers are lost in the middle."""
        for reduction in plan[self.num_done :]:
            mean = find_mean(reduction)
            if mean is None:
                return False
            with stage("step" if reduction.last else "local step"):
                self.step(reduction, mean)
            self.num_done += 1
        self.num_done = 0
        return True

    def step(self, reduction: Reduction, mean: Tensor) -> None:
        """One optimizer step of each network in a reduction; buffers become their mean."""
        self.vector(reduction).write(mean)
        for name in reduction.networks:
            self.networks[name].step()
