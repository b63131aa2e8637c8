"""Builds the server's part and a host's part of MD-GAN, with the variants that flags ask for."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from mdgan.data.shard import Shard
from mdgan.engine.stages.contract import HostPath, ServerPath
from mdgan.engine.stages.mask_host import HostMask
from mdgan.engine.stages.mask_server import ServerMask
from mdgan.families import contract
from mdgan.families.mdgan import messages
from mdgan.families.mdgan.algorithm import GeneratorLearner, server_iteration
from mdgan.families.mdgan.host import MDGANHost, OneByOne, rules_for
from mdgan.families.mdgan.planning import MDGANPlanning, num_weights_of
from mdgan.families.mdgan.server import Iteration, MDGANServer
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.variants.ahead import Ahead, GeneratorAhead
from mdgan.families.mdgan.variants.arrival import ByArrival
from mdgan.families.mdgan.variants.learning_later import LearningLater
from mdgan.families.mdgan.variants.stacked import StackedWorkers
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.arithmetic import loss_scale
from mdgan.gan.build import Models, make_discriminator_learner, make_model
from mdgan.gan.model_stack import CannotStack
from mdgan.gan.optimizers import make_optimizer
from mdgan.gan.randomness import RandomState, derive_seed, generator_for
from mdgan.privacy.budget import Budget, make_half
from mdgan.privacy.spending import Spending

_log = logging.getLogger(__name__)


class _MDGANBuilder(MDGANPlanning):
    def server(self, needs: contract.ServerNeeds[MDGANSettings]) -> MDGANServer:
        settings, models = needs.settings, needs.models
        learner = make_generator_learner(settings, models, needs.device)
        return make_server(learner, settings, models.shape, num_weights=num_weights_of(models))

    def host(self, needs: contract.HostNeeds[MDGANSettings]) -> MDGANHost:
        settings, models, budgets = needs.settings, needs.models, needs.budgets
        workers = {
            rank: make_worker(rank, settings, models, shard, needs.device, budgets.get(rank))
            for rank, shard in needs.shards.items()
        }
        form = messages.feedback_form(settings, models.shape)
        path = HostPath(form)
        if settings.secure.secure_aggregation and needs.keys is not None:
            sharing = settings.noise_sharing(needs.least_sharers)
            path = HostMask(needs.keys, form, needs.least_parties, sharing=sharing)
        group = make_group(workers, needs)
        images = messages.image_codec(settings)
        masks = path.hides_answers
        by_arrival = settings.by_arrival
        rules = rules_for(settings.num_workers, by_arrival=by_arrival, masks=masks)
        return MDGANHost(workers, group, path, needs.tracer, images, Spending(budgets), rules)


def make_server(
    learner: GeneratorLearner,
    settings: MDGANSettings,
    sample_shape: Sequence[int],
    num_weights: int = 0,
) -> MDGANServer:
    """The server's part around a learner: plain or masked answers, and the form of an iteration."""
    form = messages.feedback_form(settings, sample_shape)
    path = ServerPath(form)
    if settings.secure.secure_aggregation:
        path = ServerMask(form, divides=True, sharing=settings.noise_sharing())
    iteration: Iteration = server_iteration
    if settings.by_arrival:
        iteration = ByArrival()
    elif settings.stale:
        iteration = Ahead()
    return MDGANServer(learner, settings, path, num_weights, iteration)


def make_group(workers: Mapping[int, Worker], needs: contract.HostNeeds[MDGANSettings]) -> OneByOne:
    """The workers of one host as a group: one by one, all at once, or learning after the answer."""
    settings, stage_of = needs.settings, needs.tracer.of_worker
    on_all = settings.batches.trains_on_all
    if settings.updates == "async":
        return LearningLater(workers, stage_of, train_on_all=on_all)
    if settings.vectorize and len(workers) > 1:
        try:
            if settings.training.arithmetic.compile:
                raise CannotStack("compiled models are called one by one")
            shape = needs.models.shape
            return StackedWorkers(workers, stage_of, train_on_all=on_all, sample_shape=shape)
        except CannotStack as reason:
            ranks = ", ".join(map(str, workers))
            _log.warning("the process of rank(s) %s computes one by one: %s", ranks, reason)
    return OneByOne(workers, stage_of, train_on_all=on_all)


def make_generator_learner(
    settings: MDGANSettings, models: Models, device: torch.device
) -> GeneratorLearner:
    """The server's learner, with w drawn from the seed."""
    generator = make_model(models.generator, "generator", settings.training, device)
    policy = settings.training.policy("generator")
    return learner_kind(settings)(
        generator,
        make_optimizer(generator, policy),
        z_dim=models.z_dim,
        batch_size=settings.training.batch_size,
        noise=generator_for(settings.training.seed, "noise"),
        random_state=RandomState(derive_seed(settings.training.seed, "server"), device),
        loss_scale=loss_scale(settings.training.arithmetic.precision),
        policy=policy,
    )


def learner_kind(settings: MDGANSettings) -> type[GeneratorLearner]:
    """`GeneratorAhead` if G may step between batches and the feedback on them."""
    return GeneratorAhead if settings.stale or settings.by_arrival else GeneratorLearner


def make_worker(
    rank: int,
    settings: MDGANSettings,
    models: Models,
    shard: Shard,
    device: torch.device,
    budget: Budget | None = None,
) -> Worker:
    """The worker of one rank; under differential privacy its real samples spend a budget."""
    half = make_half(shard, rank, settings, budget)
    worker = make_discriminator_learner(
        Worker,
        rank,
        models.discriminator,
        settings=settings.training,
        batches=half or shard,
        device=device,
        real_half=half,
    )
    worker.rules = replace(worker.rules, batch_size=settings.num_reals)
    worker.discriminator.moves_moments = settings.swaps.swap_state == "all"
    return worker


BUILDER = _MDGANBuilder()
