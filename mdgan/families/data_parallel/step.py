"""The step of data-parallel GAN training (ParaGAN, sections 2 and 5.1, figure 5).

Each of N workers has a copy of D, with weights θ, and one of G, with weights w. Worker n computes
gradients on its own real batch x_n and noise z_n; every copy then takes the same step, with their
mean. p_n is the worker's share of all samples of the iteration; the shares add up to 1.

    EACH WORKER n                                SERVER, and each host that has optimizers
    ─────────────                                ────────────────────────────────────────
    ∇_θ J_disc(D_θ; x_n, X_n)           ──►      g_θ = Σ_n p_n ∇_θ J_disc;   θ' = opt_D(θ; g_θ)
    ∇_w J_gen(D(G_w(z_n)))              ──►      g_w = Σ_n p_n ∇_w J_gen;    w' = opt_G(w; g_w)

Synchronous updates take these steps in turn: L steps of θ with X_n = G_w(z'_n), then one of w
through D_θ'. Asynchronous updates take both at once: w learns through D_θ, and θ from the images
X_n that G made K iterations before, which an image buffer holds.

`exact_sum.average` makes the means: the same bits in any order of addition. So it does not matter
whether the server, hosts among themselves, or processes in common memory add up. BatchNorm
normalizes each batch by its own statistics. Training never reads its running statistics; these and
all other buffers become their mean over the workers when an iteration ends.
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

# The steps of an iteration.


@dataclass(frozen=True)
class Reduction:
    """One step of an iteration: which networks' gradients all workers average, and step with."""

    networks: tuple[str, ...]  # `discriminator`, `generator`, or both
    buffered: tuple[str, ...] = ()  # networks whose buffers they average, too, in the last step

    @property
    def last(self) -> bool:
        """Whether it is the last step of its iteration."""
        return bool(self.buffered)

    @property
    def changed(self) -> set[str]:
        """The tensors that the step changes, by the names of `weight_vectors`."""
        return {*self.networks, *([BUFFERS] if self.last else [])}

    def vector(self, models: Mapping[str, nn.Module]) -> GradientVector:
        """The gradients and buffers of these networks, laid out as one tensor."""
        return GradientVector(
            [models[name] for name in self.networks], [models[name] for name in self.buffered]
        )


OF_DISCRIMINATOR = Reduction((DISCRIMINATOR,))
OF_GENERATOR = Reduction((GENERATOR,), (GENERATOR, DISCRIMINATOR))
OF_BOTH = Reduction((DISCRIMINATOR, GENERATOR), (GENERATOR, DISCRIMINATOR))
ALONE = {name: Reduction((name,), (name,)) for name in (DISCRIMINATOR, GENERATOR)}
"""By network: the step of the group of workers that trains it alone."""


def reductions(lag: int, local_steps: int = 1) -> list[Reduction]:
    """The steps of an iteration: L of θ, then one of w; with a lag K > 0 one of both."""
    return [OF_BOTH] if lag else [*[OF_DISCRIMINATOR] * local_steps, OF_GENERATOR]


# A worker computes gradients.


class ImageBuffer:
    """The image buffer (section 5.1): the newest batches that G made, without their graphs.

    It holds the batches of one worker, or of a group of workers together.
    """

    def __init__(self) -> None:
        self.batches: list[Samples] = []

    def exchange(self, made: Samples, lag: int) -> Samples:
        """Adds the batch that G made, and returns the one of `lag` iterations ago, or the oldest.

        It drops batches of another size than `made`: other workers trained when G made these.
        """
        self.batches = [batch for batch in self.batches if len(batch) == len(made)]
        oldest = [*self.batches, made][-lag - 1 :][0]
        self.take_in(made, lag)
        return oldest

    def take_in(self, made: Samples, lag: int) -> None:
        """Adds the batch of an iteration, of any size, and keeps those of the last `lag`."""
        self.batches = [*self.batches, made][-lag:] if lag else []


class LocalStep:
    """Worker n: its copies of both networks, its data, and its image buffer."""

    def __init__(self, gan: LocalGAN, images: ImageBuffer) -> None:
        self.gan, self.images = gan, images
        self.models = {GENERATOR: gan.generator, DISCRIMINATOR: gan.discriminator}
        self.vector = cache(partial(Reduction.vector, models=self.models))
        self.generated: Generated | None = None  # G_w(z_n) and X_n of the iteration under way
        self._discriminator_loss = torch.zeros((), device=gan.trained.device)

    def learn(
        self, reduction: Reduction, batch_sizes: BatchSizes, lag: int = 0, stage: Stage = unobserved
    ) -> Tensor:
        """Sets the gradients of a step; returns J_disc and J_gen, [2]; J_gen is 0 in steps of D."""
        # 1. Once an iteration: G_w(z_n), which D judges, and X_n, from now or K iterations ago.
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

    # Where one group of workers trains G, and another group D.

    def generator_alone(
        self, num_images: int, label_counts: Tensor | None, stage: Stage
    ) -> tuple[Tensor, Tensor, Samples]:
        """What a worker of G's group sends: ∇_w J_gen, J_gen, and its images."""
        self.gan.use_batch_size(num_images)
        if label_counts is not None:
            self.gan.trained.label_counts = label_counts.cpu()
        made = self.gan.generate(stage)
        loss = self.gan.learn_generator(made.judged, stage)
        return self.vector(ALONE[GENERATOR]).read(), loss, made.judged.detach()

    def discriminator_alone(self, fake: Samples, stage: Stage) -> tuple[Tensor, Tensor]:
        """What a worker of D's group sends: ∇_θ J_disc on images of G's group, and J_disc."""
        self.gan.use_batch_size(len(fake))
        loss = self.gan.learner.learn_both_halves(fake, stage)
        return self.vector(ALONE[DISCRIMINATOR]).read(), loss


# The server steps with the mean, and so does each host that has optimizers.

FindMean = Callable[[Reduction], Tensor | None]
"""Has all workers compute gradients g_n, and returns Σ p_n g_n; None if all workers are lost."""


class MeanStep:
    """Both networks with their optimizers, which step with the mean of all workers' gradients."""

    def __init__(self, models: Mapping[str, nn.Module], policies: Mapping[str, Policy]) -> None:
        self.models = models  # both networks, by name; `networks` adds their optimizers
        self.networks = {
            name: TrainedModel(model, make_optimizer(model, policies[name]), policies[name])
            for name, model in models.items()
        }
        self.vector = cache(partial(Reduction.vector, models=models))
        self.num_done = 0  # steps of the present iteration that are done

    def at(self, iteration: int, scales: Mapping[str, float]) -> None:
        """Sets the learning rates of an iteration, scaled for the present number of workers."""
        for name, network in self.networks.items():
            network.at(iteration, scales[name])

    def iterate(self, plan: Sequence[Reduction], find_mean: FindMean, stage: Stage) -> bool:
        """One iteration, or the rest of it; False if all workers are lost before its end."""
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
        """θ' = opt_D(θ; g_θ), w' = opt_G(w; g_w), or both; buffers become their mean."""
        self.vector(reduction).write(mean)
        for name in reduction.networks:
            self.networks[name].step()
