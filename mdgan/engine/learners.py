"""From settings to learners: models, optimizers and random streams, the same on every rank."""

from collections.abc import Callable

import torch
from torch import nn

from mdgan.data.dataset_file import DatasetFile, build_model
from mdgan.data.partitioner import Partitioner
from mdgan.data.shard import Shard
from mdgan.families.federated.clusters import cluster_counts
from mdgan.families.federated.fl_gan import Client, GlobalModels
from mdgan.families.mdgan.algorithm import GeneratorLearner, resolve_kappa
from mdgan.gan.arithmetic import loss_scale, prepare
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.discriminator_learner import Worker
from mdgan.gan.local_gan import StandaloneGAN
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from mdgan.gan.randomness import RandomState, derive_seed, generator_for
from mdgan.settings.experiment import Experiment

_PIECE = 256


def make_generator_learner(
    dataset: DatasetFile, experiment: Experiment, device: torch.device
) -> GeneratorLearner:
    """The server's learner, with w drawn from the seed."""
    generator = _make_generator(dataset, experiment, device)
    return GeneratorLearner(
        generator,
        _adam(generator, experiment.generator_lr, experiment),
        z_dim=dataset.z_dim,
        batch_size=experiment.batch_size,
        noise=generator_for(experiment.seed, "noise"),
        random_state=RandomState(derive_seed(experiment.seed, "server"), device),
        loss_scale=loss_scale(experiment.precision),
        stale=experiment.stale,
    )


def make_worker(
    rank: int, dataset: DatasetFile, experiment: Experiment, shard: Shard, device: torch.device
) -> Worker:
    """The worker of one rank. All start with the same θ (Hardy et al., section IV-A)."""
    seed = derive_seed(experiment.seed, "discriminator")
    model = _make_model(dataset.discriminator, seed, experiment, device)
    return Worker(
        Discriminator(model, _adam(model, experiment.discriminator_lr, experiment)),
        shard,
        RandomState(derive_seed(experiment.seed, "worker", rank), device),
        batch_size=experiment.batch_size,
        local_steps=experiment.local_steps,
        discriminator_loss=DISCRIMINATOR_LOSSES[experiment.discriminator_loss],
        generator_loss=GENERATOR_LOSSES[experiment.generator_loss],
        loss_scale=loss_scale(experiment.precision),
    )


def make_shard(rank: int, source: Partitioner, indices: torch.Tensor, seed: int) -> Shard:
    """The shard of one rank, which draws its batches from a random stream of its own."""
    return Shard(source, indices, generator_for(seed, "shard", rank))


def class_counts(shard: Shard, experiment: Experiment) -> list[int]:
    """How many samples of each class a worker tells that it holds; never more than that.

    With `--clusters` classes are groups that the worker has found itself.
    """
    method, _, number = experiment.clusters.partition(":")
    if method == "none":
        return shard.class_counts()
    return cluster_counts(shard.pieces(_PIECE), method, int(number), experiment.seed)


def make_standalone(
    dataset: DatasetFile, experiment: Experiment, shard: Shard, device: torch.device
) -> StandaloneGAN:
    """The baseline, with every random stream as MD-GAN with one worker has it."""
    generator = _make_generator(dataset, experiment, device)
    return StandaloneGAN(
        generator,
        _adam(generator, experiment.generator_lr, experiment),
        make_worker(1, dataset, experiment, shard, device),
        z_dim=dataset.z_dim,
        batch_size=experiment.batch_size,
        kappa=resolve_kappa(experiment.kappa, 1),
        generator_loss=GENERATOR_LOSSES[experiment.generator_loss],
        noise=generator_for(experiment.seed, "noise"),
        random_state=RandomState(derive_seed(experiment.seed, "server"), device),
        loss_scale=loss_scale(experiment.precision),
    )


def make_client(
    rank: int, dataset: DatasetFile, experiment: Experiment, shard: Shard, device: torch.device
) -> Client:
    """The federated client of one rank; its models are the server's from the first round on."""
    generator = _make_generator(dataset, experiment, device)
    worker = make_worker(rank, dataset, experiment, shard, device)
    gan = StandaloneGAN(
        generator,
        _adam(generator, experiment.generator_lr, experiment),
        worker,
        z_dim=dataset.z_dim,
        batch_size=experiment.batch_size,
        kappa=resolve_kappa(experiment.kappa, 1),
        generator_loss=GENERATOR_LOSSES[experiment.generator_loss],
        noise=generator_for(experiment.seed, "noise", rank),
        random_state=RandomState(derive_seed(experiment.seed, "client", rank), device),
        loss_scale=loss_scale(experiment.precision),
    )
    return Client(gan, worker.discriminator.model, len(shard))


def make_global_models(
    dataset: DatasetFile, experiment: Experiment, device: torch.device
) -> GlobalModels:
    """The server's two models, drawn from the seed."""
    seed = derive_seed(experiment.seed, "discriminator")
    discriminator = _make_model(dataset.discriminator, seed, experiment, device)
    return GlobalModels(_make_generator(dataset, experiment, device), discriminator)


def _make_generator(
    dataset: DatasetFile, experiment: Experiment, device: torch.device
) -> nn.Module:
    seed = derive_seed(experiment.seed, "generator")
    return _make_model(dataset.generator, seed, experiment, device)


def _make_model(
    build: Callable[[], nn.Module], seed: int, experiment: Experiment, device: torch.device
) -> nn.Module:
    return prepare(
        build_model(build, seed).to(device),
        device,
        precision=experiment.precision,
        channels_last=experiment.channels_last,
        compiled=experiment.compile,
    )


def _adam(model: nn.Module, lr: float, experiment: Experiment) -> torch.optim.Adam:
    """Adam with its whole update fused into one kernel."""
    betas = (experiment.beta1, experiment.beta2)
    return torch.optim.Adam(model.parameters(), lr=lr, betas=betas, fused=True)
