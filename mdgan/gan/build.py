"""Makes models, optimizers and learners from settings; equal settings give equal models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeVar

import torch
from torch import nn

from mdgan.gan.arithmetic import loss_scale, prepare
from mdgan.gan.average import GeneratorAverage
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.discriminator_learner import Batches, DiscriminatorLearner, LearningRules, RealHalf
from mdgan.gan.generator import Generator
from mdgan.gan.labels import call, label_counts, num_classes_of
from mdgan.gan.local_gan import LocalGAN
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from mdgan.gan.optimizers import make_optimizer
from mdgan.gan.randomness import RandomState, derive_seed
from mdgan.gan.regularizers.registry import make_regularizers
from mdgan.gan.settings import TrainingSettings

Learner = TypeVar("Learner", bound=DiscriminatorLearner)

Build = Callable[[], nn.Module]  # makes a model
Parts = tuple[Build, Build, int]  # the functions that make G and D, and the length of z


@dataclass(frozen=True)
class Models:
    """The functions that make the two models of a run, and the shapes of their inputs."""

    source: str  # where the models are defined, for messages: a file, or an architecture
    shape: tuple[int, ...]
    z_dim: int
    generator: Build  # makes G, from z [b, z_dim] to samples [b, *shape]
    discriminator: Build  # makes D, from samples [b, *shape] to one logit a sample
    value_weights: tuple[float, ...] = ()  # see `SampleKind`


def num_parameters(model: nn.Module) -> int:
    """The number of trainable parameters of a model, |w| or |θ|."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def num_bytes_of(models: Models) -> int:
    """The bytes of G in memory, without making it; 0 if it cannot be made on device `meta`."""
    with RandomState(0, torch.device("cpu")).in_place(), torch.device("meta"):
        try:
            return sum(tensor.nbytes for tensor in models.generator().state_dict().values())
        except Exception:  # the user's own code may raise anything
            return 0


def judging_operations(models: Models, batch_size: int) -> float:
    """Counts the floating-point operations of D's forward pass on b samples, without doing them.

    Returns:
        0 or more; infinite if the model cannot run on device `meta`.
    """
    from torch.utils.flop_counter import FlopCounterMode  # takes half a second to import

    with RandomState(0, torch.device("cpu")).in_place(), torch.device("meta"), torch.no_grad():
        try:
            model = models.discriminator().train()
            labels = None
            if num_classes_of(model) is not None:
                labels = torch.zeros(batch_size, dtype=torch.int64)
            with FlopCounterMode(display=False) as counter:
                call(model, torch.zeros(batch_size, *models.shape), labels)
        except Exception:  # the user's own code may raise anything
            return inf
    return float(counter.get_total_flops())


def build_model(build: Build, seed: int) -> nn.Module:
    """Builds one model with initial weights drawn from a seed; leaves torch's generators alone."""
    with RandomState(seed, torch.device("cpu")).in_place():
        return build().train()


def make_model(
    build: Build, name: str, settings: TrainingSettings, device: torch.device
) -> nn.Module:
    """Makes the `generator` or the `discriminator` of a run on a device, by its settings."""
    model = build_model(build, derive_seed(settings.seed, name)).to(device)
    return _prepared(model, settings, compiled=settings.arithmetic.compile)


def _prepared(model: nn.Module, settings: TrainingSettings, *, compiled: bool) -> nn.Module:
    return prepare(
        model,
        next(model.parameters()).device,
        precision=settings.arithmetic.precision,
        channels_last=settings.arithmetic.channels_last,
        compiled=compiled,
        exact=settings.arithmetic.exact_patterns(),
    )


def make_average(
    build: Build, generator: nn.Module, settings: TrainingSettings
) -> GeneratorAverage | None:
    """Makes the average of a generator in training; None without `--ema`, or with 0."""
    if not settings.ema:
        return None
    model = build_model(build, 0).to(next(generator.parameters()).device)
    model = _prepared(model, settings, compiled=False)  # too few calls to be worth compiling
    return GeneratorAverage(generator, model, settings.ema)


def make_discriminator_learner(
    kind: type[Learner],
    rank: int,
    build: Build,
    settings: TrainingSettings,
    batches: Batches,
    device: torch.device,
    *,
    stream: Sequence[int] = (),
    model: nn.Module | None = None,
    real_half: RealHalf | None = None,
) -> Learner:
    """Makes one rank's learner of D. All begin with the same θ (Hardy et al. 2019, section IV-A).

    Args:
        rank, stream: name its random numbers; `stream` is such as a round.
    """
    model = model or make_model(build, "discriminator", settings, device)
    policy = settings.policy("discriminator")
    return kind(
        Discriminator(model, make_optimizer(model, policy), policy),
        batches,
        RandomState(derive_seed(settings.seed, "worker", rank, *stream), device),
        LearningRules(
            settings.batch_size,
            settings.local_steps,
            DISCRIMINATOR_LOSSES[settings.discriminator_loss],
            generator_loss=GENERATOR_LOSSES[settings.generator_loss],
            loss_scale=loss_scale(settings.arithmetic.precision),
            class_weight=1.0 if settings.class_weight is None else settings.class_weight,
            merges_halves=settings.arithmetic.merge_halves,
        ),
        make_regularizers(settings.regularizers),
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
    """Makes both models, and what trains them, in one process.

    Args:
        rank, stream: name the random numbers of D's training; `stream` is such as a round.
        noise: draws z, and y if the models are conditional.
        random_state: for G's dropout and the like; both models are on its device.
        class_counts: of the rank's data, for `label_prior=data`.
        made: G and D, if they exist already; they keep their weights.
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
            rank,
            models.discriminator,
            settings=settings,
            batches=batches,
            device=device,
            stream=stream,
            model=discriminator,
            real_half=real_half,
        ),
        kappa,
    )
