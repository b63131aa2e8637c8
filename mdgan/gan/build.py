"""From settings to models, optimizers and learners: the same on every rank."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from mdgan.gan.arithmetic import loss_scale, prepare
from mdgan.gan.augmentation import Augmentation
from mdgan.gan.average import GeneratorAverage
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.discriminator_learner import Batches, DiscriminatorLearner, RealHalf, Rules
from mdgan.gan.generator import Generator
from mdgan.gan.labels import label_counts, num_classes_of
from mdgan.gan.local_gan import LocalGAN
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from mdgan.gan.optimizers import make_optimizer
from mdgan.gan.randomness import RandomState, derive_seed
from mdgan.gan.settings import TrainingSettings

Learner = TypeVar("Learner", bound=DiscriminatorLearner)

Build = Callable[[], nn.Module]
"""Makes a model; called without arguments."""


@dataclass(frozen=True)
class Models:
    """What makes the two models of a run.

    Attributes:
        source: where they are defined, as messages name it: a file, or an architecture.
        shape: of a sample, (C, H, W).
        z_dim: the length of G's input.
        generator: makes G, from z [b, z_dim] to samples [b, C, H, W].
        discriminator: makes D, from samples [b, C, H, W] to one logit a sample.
    """

    source: str
    shape: tuple[int, int, int]
    z_dim: int
    generator: Build
    discriminator: Build


def num_parameters(model: nn.Module) -> int:
    """The number of trainable parameters of a model, |w| or |θ|."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def build_model(build: Build, seed: int) -> nn.Module:
    """Builds one model with its initial weights drawn from a seed; other draws do not change."""
    with RandomState(seed, torch.device("cpu")).in_place():
        return build().train()


def make_model(
    build: Build, name: str, settings: TrainingSettings, device: torch.device
) -> nn.Module:
    """A model of the run on its device, in the precision and layout that the settings say.

    Args:
        build: makes it.
        name: `generator` or `discriminator`; with the seed it decides the initial weights.
        settings: of the run.
        device: where it lives.
    """
    return prepare(
        build_model(build, derive_seed(settings.seed, name)).to(device),
        device,
        precision=settings.arithmetic.precision,
        channels_last=settings.arithmetic.channels_last,
        compiled=settings.arithmetic.compile,
        exact=settings.arithmetic.exact_patterns(),
    )


def make_average(
    build: Build, generator: nn.Module, settings: TrainingSettings
) -> GeneratorAverage | None:
    """What averages a generator in training; None without `--ema`, or with 0.

    Args:
        build: makes another G.
        generator: G, in training.
        settings: of the run.
    """
    if not settings.ema:
        return None
    device = next(generator.parameters()).device
    model = prepare(
        build_model(build, 0).to(device),
        device,
        precision=settings.arithmetic.precision,
        channels_last=settings.arithmetic.channels_last,
        compiled=False,  # it is called too seldom
        exact=settings.arithmetic.exact_patterns(),
    )
    return GeneratorAverage(generator, model, settings.ema)


def make_discriminator_learner(
    kind: type[Learner],
    rank: int,
    build: Build,
    settings: TrainingSettings,
    batches: Batches,
    device: torch.device,
    *stream: int,
    model: nn.Module | None = None,
    real_half: RealHalf | None = None,
) -> Learner:
    """What one rank trains D with. All begin with the same θ (Hardy et al. 2019, section IV-A).

    Args:
        kind: the class of the learner.
        rank: whose random numbers it draws.
        build: makes D.
        settings: of the run.
        batches: the rank's data.
        device: where D lives.
        stream: more that decides the random numbers, such as a round.
        model: D, if it is made already.
        real_half: see `DiscriminatorLearner`.
    """
    model = model or make_model(build, "discriminator", settings, device)
    policy = settings.policy("discriminator")
    return kind(
        Discriminator(model, make_optimizer(model, policy), policy),
        batches,
        RandomState(derive_seed(settings.seed, "worker", rank, *stream), device),
        Rules(
            settings.batch_size,
            settings.local_steps,
            DISCRIMINATOR_LOSSES[settings.discriminator_loss],
            GENERATOR_LOSSES[settings.generator_loss],
            loss_scale(settings.arithmetic.precision),
            settings.regularizers.r1 or 0.0,
            settings.regularizers.gradient_penalty or 0.0,
            1.0 if settings.class_weight is None else settings.class_weight,
            settings.arithmetic.merge_halves,
        ),
        Augmentation(settings.regularizers.augmentation_rules()),
        real_half,
    )


def make_local_gan(
    rank: int,
    models: Models,
    settings: TrainingSettings,
    batches: Batches,
    *,
    kappa: int,
    noise: torch.Generator,
    random_state: RandomState,
    class_counts: Sequence[int] = (),
    stream: Sequence[int] = (),
    made: tuple[nn.Module, nn.Module] | None = None,
    real_half: RealHalf | None = None,
) -> LocalGAN:
    """Both models in one process, and what trains them.

    Args:
        rank: whose random numbers D's training draws.
        models: make G and D.
        settings: of the run.
        batches: the rank's data.
        kappa: κ, how many batches are generated in an iteration.
        noise: draws z, and y if the models are conditional.
        random_state: of G's dropout and the like; both models live on its device.
        class_counts: of the rank's data, for `--label-prior data`.
        stream: more that decides the random numbers of D's training, such as a round.
        made: G and D, if they are made already; they keep the weights that they have.
        real_half: see `DiscriminatorLearner`.
    """
    device = random_state.device
    generator, discriminator = made or (
        make_model(models.generator, "generator", settings, device),
        make_model(models.discriminator, "discriminator", settings, device),
    )
    policy = settings.policy("generator")
    trained = Generator(
        generator,
        make_optimizer(generator, policy),
        z_dim=models.z_dim,
        noise=noise,
        random_state=random_state,
        policy=policy,
    )
    num_classes = num_classes_of(generator)
    if num_classes is not None and settings.label_prior == "data":
        trained.label_counts = label_counts(num_classes, [class_counts])
    return LocalGAN(
        trained,
        make_discriminator_learner(
            DiscriminatorLearner,
            *(rank, models.discriminator, settings, batches, device),
            *stream,
            model=discriminator,
            real_half=real_half,
        ),
        kappa,
    )
