"""Builds the server's part and a host's part of FL-GAN and FeGAN, and foretells runs of them."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

import torch

from mdgan.data.shard import ClientShards, Shard
from mdgan.engine import message_sizes as sizes
from mdgan.engine.hello import MOST_CLASSES
from mdgan.engine.parts import HostPart
from mdgan.engine.settings import num_participants
from mdgan.engine.stages.contract import HostPath, ServerPath
from mdgan.engine.stages.mask_host import HostMask
from mdgan.engine.stages.mask_server import ServerMask
from mdgan.errors import BadInput
from mdgan.families import contract
from mdgan.families.federated import messages
from mdgan.families.federated.averaging import Averaging, check_classes
from mdgan.families.federated.clusters import cluster_counts
from mdgan.families.federated.concurrency import SlotCount, device_of_slot
from mdgan.families.federated.host import FederatedHost, LocalTraining, PlacedHost
from mdgan.families.federated.placed import PlacedCohort
from mdgan.families.federated.planning import planning
from mdgan.families.federated.poisson_rounds import CHARGE, PoissonRounds
from mdgan.families.federated.round import Client
from mdgan.families.federated.server import Cohort, FederatedServer, GlobalModels
from mdgan.families.federated.settings import MOST_SLOTS, PULL, FederatedSettings
from mdgan.families.federated.slots import SlotProcesses, Slots, Train
from mdgan.gan.build import Models, build_model, make_local_gan, make_model
from mdgan.gan.model_vector import ModelVector
from mdgan.gan.randomness import RandomState, derive_seed, generator_for
from mdgan.gan.sampling import refresh_buffers
from mdgan.gan.settings import resolve_kappa
from mdgan.privacy.budget import Budget, make_half
from mdgan.privacy.contents import Contents
from mdgan.samples.contract import SampleKind
from mdgan.settings.machine import pin
from mdgan.spelling import count, flag, key
from mdgan.system import may_fork

_PIECE = 256
_COUNT_BYTES = 18  # a count in JSON, or in a tensor


class _Federated(contract.Builder[FederatedSettings]):
    def server(self, needs: contract.ServerNeeds[FederatedSettings]) -> FederatedServer:
        settings, models, shards = needs.settings, needs.models, needs.shards
        both = GlobalModels(
            make_model(models.generator, "generator", settings.training, needs.device),
            make_model(models.discriminator, "discriminator", settings.training, needs.device),
        )
        form = messages.update_form(settings, both.vector.shape)
        masked = settings.secure.secure_aggregation
        sharing = settings.noise_sharing()
        cohort = Cohort(ServerMask(form, sharing=sharing) if masked else ServerPath(form))
        if isinstance(shards, ClientShards):
            cohort = PlacedCohort(shards.class_counts(), form, settings)
        blocks = both.vector.num_weight_blocks
        averaging = Averaging(settings, blocks)
        if settings.rounds.sampling == "poisson":
            refresh = partial(
                refresh_buffers,
                both.generator,
                both.discriminator,
                z_dim=models.z_dim,
                batch_size=settings.training.batch_size,
                seed=settings.training.seed,
            )
            contents = None
            if isinstance(shards, ClientShards):
                contents = partial(shards.read_once, Contents.of)
            averaging = PoissonRounds(settings, blocks, refresh, contents=contents)
        return FederatedServer(both, cohort, averaging, settings, needs.device)

    def host(self, needs: contract.HostNeeds[FederatedSettings]) -> HostPart:
        if needs.clients is not None:
            return _placed_host(needs, needs.clients)
        settings, budgets = needs.settings, needs.budgets
        make = partial(make_client, settings=settings, models=needs.models, device=needs.device)
        clients = {n: make(n, shard=s, budget=budgets.get(n)) for n, s in needs.shards.items()}

        def begin(rank: int, _place: int, iteration: int) -> Client:
            """The client of a rank; with `client_state=fresh` a new one, in memory of the old."""
            if not settings.begins_anew:
                return clients[rank]
            order = generator_for(settings.training.seed, "shard", rank, iteration)
            shard, after = needs.shards[rank].begun_anew(order), clients[rank]
            budget = budgets.get(rank)
            return make(rank, shard=shard, stream=(iteration,), after=after, budget=budget)

        training = LocalTraining(
            settings,
            needs.device,
            begin,
            num_samples=lambda rank: clients[rank].num_samples,
            span=lambda rank: needs.tracer.of_worker(rank)("train"),
        )
        form = messages.update_form(settings, next(iter(clients.values())).vector.shape)
        path = HostPath(form)
        if settings.secure.secure_aggregation and needs.keys is not None:
            path = HostMask(
                needs.keys,
                form,
                needs.least_parties,
                repeats=settings.begins_anew and not settings.shares_noise,
                sharing=settings.noise_sharing(needs.least_sharers),
            )
        classes = needs.class_counts if settings.weighs_in_secret else {}
        if (most := max(map(len, classes.values()), default=0)) > MOST_CLASSES:
            raise BadInput(
                flag("weighting", "kl"),
                f"with {flag('secure_aggregation', True)} up to {MOST_CLASSES:,} classes are added "
                f"up, and these are {most:,}",
                f"use {flag('weighting', 'uniform')}",
            )
        return FederatedHost(needs, clients, path, training, classes)

    def message_sizes(self, settings: FederatedSettings, models: Models) -> sizes.MessageSizes:
        generator = build_model(models.generator, 0)
        discriminator = build_model(models.discriminator, 0)
        shape = ModelVector(generator, discriminator).shape
        both, sent = 4 * prod(shape), 4 * prod(messages.update_form(settings, shape).shape)
        in_a_round = num_participants(settings.participation, settings.placing.clients or 0)
        is_secure = settings.secure.secure_aggregation
        shares = sizes.shares_bytes(settings.num_workers, is_secure=is_secure)
        placed = messages.OF_A_CLIENT_BYTES * in_a_round if settings.placing.clients else 0
        form = messages.CLASSES_FORM
        classes = _COUNT_BYTES * prod(form.shape) if settings.weighs_in_secret else 0
        policy = settings.training.policy
        networks = (generator, policy("generator")), (discriminator, policy("discriminator"))
        return sizes.MessageSizes(
            sizes.state_bytes(*networks),
            # 2 · sent leaves room for the codecs' places and scales beside values.
            lambda count: {
                messages.UPDATE: count * (2 * sent + shares + 64) + (8 << 10),
                **({form.kind: classes + shares + sizes.small_bytes(count)} if classes else {}),
                **({messages.TRAINED: placed + sizes.small_bytes(count)} if placed else {}),
                **({} if settings.adds_up else {messages.MODELS: both + sizes.small_bytes(1)}),
            },
            lambda count: {
                messages.ROUND: both + placed + sizes.small_bytes(count) + shares + classes,
                **({messages.ASKCLASSES: sizes.small_bytes(count) + shares} if classes else {}),
                CHARGE: sizes.small_bytes(count),
            },
            names_bytes=sizes.names_bytes(*networks),
            json_bytes=lambda count: {messages.TRAINED: placed + sizes.small_bytes(count)},
            shares_bytes=shares,
            several={messages.MODELS: in_a_round},
        )

    def class_counts(self, shard: Shard, settings: FederatedSettings) -> list[int]:
        """The samples of each class of a client; with `--clusters`, of groups that it finds."""
        method, number = settings.rounds.clusters.method, settings.rounds.clusters.number
        if not number:
            return shard.class_counts()
        return cluster_counts(shard.pieces(_PIECE), method, number, seed=settings.training.seed)

    def check_kind(self, settings: FederatedSettings, kind: SampleKind) -> None:
        """Refuses settings that do not go with what sites count of tables before training."""
        clusters = settings.rounds.clusters
        if clusters.number and kind.num_counts:
            why = f"groups samples before training, when {kind.name} cannot be encoded yet"
            way_out = f"leave it out, or give {flag('target')}"
            raise BadInput(flag("clusters", clusters), why, way_out)
        if clusters.number and settings.training.label_prior == "data":
            why = f"with {flag('clusters', clusters)} workers tell groups, not classes"
            raise BadInput(key("label_prior", "data"), why, "leave out one of the two")
        if settings.privacy.hides_clients and kind.num_counts:
            why = f"what sites count of {kind.name} before training tells of each site"
            raise BadInput(flag("dp_unit", "client"), why, f"give {flag('dp_unit', 'sample')}")

    def check_holdings(
        self, settings: FederatedSettings, class_counts: Mapping[int, Sequence[int]]
    ) -> None:
        check_classes(settings, class_counts)

    def planning(
        self, settings: FederatedSettings, models: Models, class_counts: contract.ClassCounts | None
    ) -> contract.Planning[FederatedSettings]:
        """See `planning.planning`."""
        return planning(settings, models, class_counts)

    def describe(self, run: contract.PlannedRun[FederatedSettings]) -> list[tuple[str, str]]:
        settings = run.settings
        share = num_participants(settings.participation, settings.num_clients)
        length = settings.round_length(contract.mean_size(run.class_counts))
        trainer = "worker" if settings.placing.clients is None else "client"
        rows = [
            ("κ", str(resolve_kappa(settings.kappa, 1))),
            ("a round", f"{count(length, 'iteration')} of {share} {trainer}(s)"),
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
    *,
    stream: tuple[int, ...] = (),
    after: Client | None = None,
    budget: Budget | None = None,
) -> Client:
    """Makes the client of one number; the server's models replace its own in its first round.

    `stream` seeds its random numbers, with the run's seed and `rank`. `after` is a client that
    trains no more, whose networks this one uses.
    """
    half = make_half(shard, rank, settings, budget, *stream)
    seed = settings.training.seed
    gan = make_local_gan(
        rank,
        models,
        settings.training,
        batches=half or shard,
        kappa=resolve_kappa(settings.kappa, 1),
        noise=generator_for(seed, "noise", rank, *stream),
        random_state=RandomState(derive_seed(seed, "client", rank, *stream), device),
        class_counts=() if settings.privacy.keeps_classes else shard.class_counts(),
        stream=stream,
        made=None if after is None else (after.gan.generator, after.gan.discriminator),
        real_half=half,
    )
    return Client(gan, half.size if half else len(shard), None if after is None else after.vector)


def _placed_host(needs: contract.HostNeeds[FederatedSettings], clients: ClientShards) -> PlacedHost:
    """The part of a host that trains any of the placed clients."""
    settings, models = needs.settings, needs.models
    (rank,) = needs.shards
    networks = build_model(models.generator, 0), build_model(models.discriminator, 0)
    shape = ModelVector(*networks).shape
    pulls, gives_all = settings.placing.placement == PULL, not settings.adds_up
    asked = settings.placing.slots
    num_slots = 1 if pulls else asked if isinstance(asked, int) else None

    def make_train(slot: int) -> Train:
        if needs.own_process:  # results may depend on the number of threads: one for each slot
            if needs.cores:
                pin(needs.cores[slot % len(needs.cores)])
            torch.set_num_threads(1)
        device = device_of_slot(needs.device, slot)
        earlier = dict[int, Client]()  # clients that train no more, whose networks later ones use

        def begin(number: int, place: int, iteration: int) -> Client:
            shard, after = clients.begun_in(number, iteration), earlier.get(place)
            earlier[place] = make_client(
                number, settings, models, shard, device, stream=(iteration,), after=after
            )
            return earlier[place]

        return LocalTraining(settings, device, begin, num_samples=lambda n: len(clients[n])).train

    if needs.own_process and may_fork():
        slots: Slots = SlotProcesses(shape, make_train, gives_all, most=num_slots or MOST_SLOTS)
    else:
        slots, num_slots = Slots(shape, make_train, gives_all), num_slots or 1
    about = f"{models.source!s}, {settings.algorithm}, batches of {settings.training.batch_size}"
    count = SlotCount(num_slots, needs.device, about, cores=needs.cores)
    return PlacedHost(rank, slots, count, len(clients), needs.tracer)


BUILDER = _Federated()
