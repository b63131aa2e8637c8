"""Which parts an algorithm puts into the server and into hosts: the only place that asks for names.

Another family is another entry here, with parts of its own in `roles/` and `algorithms/`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod

import torch
from torch import nn

from mdgan.data.dataset_file import build_model
from mdgan.data.shard import Shard
from mdgan.engine import message_sizes as schema
from mdgan.engine.learners import (
    make_client,
    make_generator_learner,
    make_global_models,
    make_worker,
)
from mdgan.engine.parts import HostPart, ServerFamily
from mdgan.families.algorithms import FEDERATED
from mdgan.families.federated.capability import tell_capabilities
from mdgan.families.federated.fegan import new_sampling
from mdgan.families.federated.host import FederatedHost
from mdgan.families.federated.loads import Loads
from mdgan.families.federated.messages import round_form
from mdgan.families.federated.server import FederatedServer
from mdgan.families.mdgan.grouping import make_group
from mdgan.families.mdgan.host import MDGANHost
from mdgan.families.mdgan.messages import Form
from mdgan.families.mdgan.server import MDGANServer
from mdgan.gan.model_vector import ModelVector
from mdgan.launch.prepare import Plan
from mdgan.observe.tracer import Tracer


@dataclass(frozen=True)
class Brought:
    """What an algorithm brings to the process of rank 0.

    Attributes:
        generator: G, in training.
        family: for the server.
    """

    generator: nn.Module
    family: ServerFamily


def server_family(plan: Plan, device: torch.device) -> Brought:
    """The server's share of the plan's algorithm.

    Args:
        plan: the checked run.
        device: where the server's models live.
    """
    make = _federated_server if plan.experiment.algorithm in FEDERATED else _mdgan_server
    return make(plan, device)


def host_part(
    plan: Plan,
    shards: Mapping[int, Shard],
    tracer: Tracer,
    device: torch.device,
    *,
    own_process: bool,
) -> HostPart:
    """The workers' share of the plan's algorithm, for one host.

    Args:
        plan: the checked run.
        shards: of the host's workers, by rank.
        tracer: records what they do when.
        device: where their models live.
        own_process: whether nobody else computes in this process.
    """
    if plan.experiment.algorithm in FEDERATED:
        return _federated_host(plan, shards, device)
    workers = {
        rank: make_worker(rank, plan.dataset, plan.experiment, shard, device)
        for rank, shard in shards.items()
    }
    group = make_group(workers, plan, tracer, device, own_process=own_process)
    return MDGANHost(workers, group, device, Form.of(plan.experiment, plan.dataset.shape))


def sizes_of(plan: Plan) -> schema.Sizes:
    """What decides how large messages are."""
    discriminator = build_model(plan.dataset.discriminator, 0)
    states, models = schema.state_bytes(discriminator), 0
    if plan.experiment.algorithm in FEDERATED:
        generator = build_model(plan.dataset.generator, 0)
        states += schema.state_bytes(generator)
        models = 4 * prod(ModelVector(generator, discriminator).shape)
    return schema.Sizes(plan.dataset.shape, plan.experiment.batch_size, states, models)


def _mdgan_server(plan: Plan, device: torch.device) -> Brought:
    learner = make_generator_learner(plan.dataset, plan.experiment, device)
    form = Form.of(plan.experiment, plan.dataset.shape)
    return Brought(
        learner.generator, ServerFamily(partial(MDGANServer, learner), form, learner.device)
    )


def _federated_server(plan: Plan, device: torch.device) -> Brought:
    experiment = plan.experiment
    models = make_global_models(plan.dataset, experiment, device)
    assert experiment.sampling is not None
    assert experiment.participation is not None
    make_part = partial(
        FederatedServer,
        models,
        new_sampling(experiment.sampling, experiment.participation, experiment.seed),
        Loads(experiment.training_load, experiment.num_workers),
        aborts=plan.deployment.on_deadline == "abort",
    )
    form = round_form(experiment, models.vector)
    family = ServerFamily(make_part, form, device, counts_busy=False, copies=False)
    return Brought(models.generator, family)


def _federated_host(plan: Plan, shards: Mapping[int, Shard], device: torch.device) -> HostPart:
    clients = {
        rank: make_client(rank, plan.dataset, plan.experiment, shard, device)
        for rank, shard in shards.items()
    }
    vector: ModelVector = next(iter(clients.values())).vector
    tell = partial(tell_capabilities, clients, plan, len(plan.ranks.workers()))
    return FederatedHost(clients, device, round_form(plan.experiment, vector), tell)
