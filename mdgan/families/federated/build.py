"""Makes the two parts of FL-GAN and FeGAN."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod

import torch
from torch import Tensor

from mdgan.data.client_shards import ClientShards
from mdgan.data.shard import Shard
from mdgan.engine.host.spending import Spending
from mdgan.engine.masked_answers import masks_for
from mdgan.engine.message_sizes import (
    MessageSizes,
    names_bytes,
    shares_bytes,
    small_bytes,
    state_bytes,
)
from mdgan.engine.parts import HostPart
from mdgan.engine.settings import num_participants
from mdgan.families.contract import Builder, ClassCounts, HostNeeds, Planning, mean_size
from mdgan.families.federated.capability import tell_capabilities
from mdgan.families.federated.clusters import cluster_counts
from mdgan.families.federated.cohort import AtHome, Cohort
from mdgan.families.federated.fegan import Sampling, check_classes, new_sampling
from mdgan.families.federated.fl_gan import Client, GlobalModels
from mdgan.families.federated.host import FederatedHost
from mdgan.families.federated.messages import CHARGE, ROUND, UPDATE, update_form
from mdgan.families.federated.placed import Placed
from mdgan.families.federated.placed_host import PlacedHost
from mdgan.families.federated.placed_messages import (
    MODELS,
    OF_A_CLIENT_BYTES,
    TRAINED,
    Task,
    placed_form,
)
from mdgan.families.federated.planning import planning
from mdgan.families.federated.poisson_rounds import PoissonRounds
from mdgan.families.federated.server import FederatedServer
from mdgan.families.federated.settings import MOST_SLOTS, PULL, FederatedSettings
from mdgan.families.federated.slot_count import SlotCount
from mdgan.families.federated.slots import SlotProcesses, Slots, SlotsInside, Train
from mdgan.families.federated.together import Together
from mdgan.families.federated.updates import sent_by
from mdgan.gan.build import Models, build_model, make_local_gan, make_model
from mdgan.gan.local_gan import resolve_kappa
from mdgan.gan.model_vector import ModelVector
from mdgan.gan.randomness import RandomState, derive_seed, generator_for
from mdgan.gan.statistics import refresh_buffers
from mdgan.privacy.budget import Budget, make_half
from mdgan.settings.machine import pin

_PIECE = 256


class _Federated(Builder[FederatedSettings]):
    def server(
        self,
        settings: FederatedSettings,
        models: Models,
        device: torch.device,
        shards: Mapping[int, Shard],
    ) -> FederatedServer:
        """The server's part, with both models drawn from the seed."""
        both = GlobalModels(
            make_model(models.generator, "generator", settings.training, device),
            make_model(models.discriminator, "discriminator", settings.training, device),
        )
        cohort: Cohort = AtHome(update_form(settings, both.vector))
        if isinstance(shards, ClientShards):
            form = placed_form(both.vector.shape, settings)
            cohort = Placed(shards.class_counts(), form, settings)
        sampling: Sampling
        if settings.rounds.sampling == "poisson":
            refresh = partial(
                refresh_buffers,
                *(both.generator, both.discriminator, models.z_dim),
                *(settings.training.batch_size, settings.training.seed),
            )
            contents = (lambda: shards.contents) if isinstance(shards, ClientShards) else None
            sampling = PoissonRounds(settings, refresh, contents)
        else:
            sampling = new_sampling(
                settings.rounds.sampling, settings.participation, settings.training.seed
            )
        return FederatedServer(both, cohort, sampling, settings, device)

    def host(self, needs: HostNeeds[FederatedSettings]) -> HostPart:
        """The part of a host, with a client for each of its shards, or with slots for all."""
        settings, models = needs.settings, needs.models
        if needs.clients is not None:
            return _placed_host(needs, needs.clients)
        clients = {
            rank: make_client(
                *(rank, settings, models, shard, needs.device), budget=needs.budgets.get(rank)
            )
            for rank, shard in needs.shards.items()
        }
        vector = next(iter(clients.values())).vector
        form = update_form(settings, vector)
        tell = partial(tell_capabilities, clients, settings, models, needs.num_workers_here)
        anew = partial(_anew, needs, clients) if settings.begins_anew else None
        together = Together(settings)
        return FederatedHost(
            clients,
            needs.device,
            form,
            needs.tracer,
            together,
            tell,
            anew,
            Spending(needs.budgets),
            masks_for(form, needs.keys, needs.least_parties, repeats=settings.begins_anew),
            sent_by(settings, vector),
            needs.account,
            uniform=settings.rounds.weighting == "uniform",
        )

    def message_sizes(self, settings: FederatedSettings, models: Models) -> MessageSizes:
        """Both models each way."""
        generator = build_model(models.generator, 0)
        discriminator = build_model(models.discriminator, 0)
        both = 4 * prod(ModelVector(generator, discriminator).shape)
        in_a_round = num_participants(settings.participation, settings.placing.clients or 0)
        shares = shares_bytes(settings.num_workers, is_secure=settings.secure.secure_aggregation)
        roaming = OF_A_CLIENT_BYTES * in_a_round if settings.placing.clients else 0
        networks = (
            (generator, settings.training.policy("generator")),
            (discriminator, settings.training.policy("discriminator")),
        )
        return MessageSizes(
            state_bytes(*networks),
            # The codecs' places and scales come on top of values.
            lambda count: {
                UPDATE: count * (2 * both + shares + 64) + (8 << 10),
                **({TRAINED: roaming + small_bytes(count)} if roaming else {}),
                **({} if settings.adds_up else {MODELS: both + small_bytes(1)}),
            },
            lambda count: {
                ROUND: both + roaming + small_bytes(count) + shares,
                CHARGE: small_bytes(count),
            },
            names_bytes=names_bytes(*networks),
            json_bytes=lambda count: {TRAINED: roaming + small_bytes(count)},
            shares_bytes=shares,
        )

    def class_counts(self, shard: Shard, settings: FederatedSettings) -> list[int]:
        """With `--clusters` they are groups that the client has found itself."""
        method, number = settings.rounds.clusters.method, settings.rounds.clusters.number
        if not number:
            return shard.class_counts()
        return cluster_counts(shard.pieces(_PIECE), method, number, settings.training.seed)

    def check_holdings(
        self, settings: FederatedSettings, class_counts: Mapping[int, Sequence[int]]
    ) -> None:
        """Checks that balanced sampling has something to balance."""
        check_classes(
            settings.rounds.sampling, class_counts, clustered=settings.rounds.clusters.number > 0
        )

    def planning(
        self, settings: FederatedSettings, models: Models, class_counts: ClassCounts | None
    ) -> Planning[FederatedSettings]:
        """How a few short rounds stand for the run's, and the paper's tables."""
        return planning(settings, models, class_counts)

    def describe(
        self, settings: FederatedSettings, models: Models, class_counts: ClassCounts
    ) -> list[tuple[str, str]]:
        """κ of every client, and how long a round is."""
        del models
        share = num_participants(settings.participation, settings.num_clients)
        length = settings.round_length(mean_size(class_counts))
        who = "worker" if settings.placing.clients is None else "client"
        rows = [
            ("κ", str(resolve_kappa(settings.kappa, 1))),
            ("a round", f"{length} iterations of {share} {who}(s)"),
        ]
        if settings.placing.clients is not None:
            number = "1" if settings.placing.placement == PULL else str(settings.placing.slots)
            many = number if number != "auto" else "as many as train fastest here"
            rows.append(("slots of each host", many))
        return rows


def make_client(
    rank: int,
    settings: FederatedSettings,
    models: Models,
    shard: Shard,
    device: torch.device,
    *stream: int,
    after: Client | None = None,
    budget: Budget | None = None,
) -> Client:
    """The client of one number; its models are the server's from the first round on.

    Args:
        rank: its number.
        settings: of the run.
        models: make G and D.
        shard: what it owns.
        device: where its models live.
        stream: more that decides its random numbers: the round, if it begins each one anew.
        after: a client that trains no more, whose models this one takes over.
        budget: of its samples.
    """
    half = make_half(shard, rank, settings, budget, *stream)
    gan = make_local_gan(
        rank,
        models,
        settings.training,
        half or shard,
        kappa=resolve_kappa(settings.kappa, 1),
        noise=generator_for(settings.training.seed, "noise", rank, *stream),
        random_state=RandomState(
            derive_seed(settings.training.seed, "client", rank, *stream), device
        ),
        class_counts=shard.class_counts(),
        stream=stream,
        made=None if after is None else after.models,
        real_half=half,
    )
    num_samples = settings.privacy.public_samples(len(shard)) if half else len(shard)
    return Client(gan, num_samples, None if after is None else after.vector)


def _anew(
    needs: HostNeeds[FederatedSettings], clients: Mapping[int, Client], rank: int, iteration: int
) -> Client:
    """The client of a rank as it begins a round, with nothing of its earlier ones but memory."""
    generator = generator_for(needs.settings.training.seed, "shard", rank, iteration)
    shard = needs.shards[rank].begun_anew(generator)
    return make_client(
        *(rank, needs.settings, needs.models, shard, needs.device, iteration),
        after=clients[rank],
        budget=needs.budgets.get(rank),
    )


def _placed_host(needs: HostNeeds[FederatedSettings], clients: ClientShards) -> PlacedHost:
    """The part of a host that trains whichever clients it is given."""
    settings, models = needs.settings, needs.models
    (rank,) = needs.shards
    shape = ModelVector(
        build_model(models.generator, 0), build_model(models.discriminator, 0)
    ).shape
    make_train = partial(_train_any, settings, models, clients, needs.device)
    pulls, gives_all = settings.placing.placement == PULL, not settings.adds_up
    given = (
        1 if pulls else settings.placing.slots if isinstance(settings.placing.slots, int) else None
    )
    slots: Slots
    if needs.own_process:
        most = given or MOST_SLOTS
        prepare = partial(_prepare_slot, needs.cores)
        slots = SlotProcesses(shape, most, make_train, prepare, gives_all=gives_all)
    else:
        slots, given = SlotsInside(shape, make_train(), gives_all=gives_all), given or 1
    about = f"{models.source}, {settings.algorithm}, batches of {settings.training.batch_size}"
    count = SlotCount(given, settings.placing.slot_rounds, needs.device, about, needs.cores)
    return PlacedHost(rank, slots, count, len(clients), needs.tracer)


def _prepare_slot(cores: Sequence[frozenset[int]], slot: int) -> None:
    """One thread a slot, however many there are: results may depend on the number of threads."""
    if cores:
        pin(cores[slot % len(cores)])
    torch.set_num_threads(1)


def _train_any(
    settings: FederatedSettings, models: Models, clients: ClientShards, device: torch.device
) -> Train:
    """What trains any clients; the memory of its models is shared by all that it trains."""
    together, earlier = Together(settings), dict[int, Client]()

    def make(task: Task, place: int, iteration: int) -> Client:
        shard, after = clients.begun_in(task.client, iteration), earlier.get(place)
        client = make_client(task.client, settings, models, shard, device, iteration, after=after)
        earlier[place] = client
        return client

    def train(
        tasks: Sequence[Task], sent: Tensor, iteration: int
    ) -> Iterator[list[tuple[Task, Tensor, Tensor]]]:
        by_client = {task.client: task for task in tasks}
        loads = {client: task.load for client, task in by_client.items()}
        for group in together.groups(loads, lambda client: len(clients[client])):
            own = [by_client[client] for client in group]
            begun = [make(task, place, iteration) for place, task in enumerate(own)]
            begun_with = sent.to(device)
            found = together.train(begun, begun_with, own[0].load, iteration)
            send = sent_by(settings, begun[0].vector)
            answers = [send(begun_with, each) for each in found]
            yield [(t, x.cpu(), losses) for t, (x, losses) in zip(own, answers, strict=True)]

    return train


BUILDER = _Federated()
