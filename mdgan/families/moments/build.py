"""Builds the server's part and a host's part of DP-MERF, and weighs noise against data."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod, sqrt
from pathlib import Path

import torch
import torch.nn.functional as F

from mdgan.engine.message_sizes import MessageSizes, shares_bytes, small_bytes
from mdgan.engine.stages.contract import HostPath, ServerPath
from mdgan.engine.stages.mask_host import HostMask
from mdgan.engine.stages.mask_server import ServerMask
from mdgan.errors import BadInput
from mdgan.families import contract
from mdgan.families.moments.contract import SUM, Statistic
from mdgan.families.moments.host import ASK, MomentsHost, check_canaries
from mdgan.families.moments.message import EvenGenerator, SampleFeatures
from mdgan.families.moments.pairs.generator import WIDTH, PairsGenerator
from mdgan.families.moments.pairs.message import PairCounts
from mdgan.families.moments.server import MomentsServer
from mdgan.families.moments.settings import NAME, FeatureSettings, MomentsSettings
from mdgan.gan.build import Models, build_model, make_model
from mdgan.gan.labels import num_classes_of
from mdgan.gan.optimizers import make_optimizer
from mdgan.gan.randomness import RandomState, derive_seed, generator_for
from mdgan.metrics.network_files import from_file
from mdgan.models.table import NOISE_SIZE
from mdgan.privacy.accountant import PrivacyCharge, epsilon_of, noise_for
from mdgan.samples.contract import SampleKind
from mdgan.samples.table.kind import TableKind
from mdgan.spelling import flag, key

TABLE = "table"
_LEAST_CELLS = 4  # of two columns that are cut in halves, the coarsest bins
_MORE = 1.1  # the factor by which messages round the least ε up
_MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}
"""How `draw_features` enlarges frequencies of series, pictures and volumes."""


class _Moments(contract.Builder[MomentsSettings]):
    def server(self, needs: contract.ServerNeeds[MomentsSettings]) -> MomentsServer:
        settings, models, seed = needs.settings, needs.models, needs.settings.training.seed
        generator = make_model(models.generator, "generator", settings.training, needs.device)
        policy = settings.training.policy("generator")
        learner = EvenGenerator(
            generator,
            make_optimizer(generator, policy),
            z_dim=models.z_dim,
            noise=generator_for(seed, "noise"),
            random_state=RandomState(derive_seed(seed, "server"), needs.device),
            policy=policy,
        )
        statistic = _statistic(settings, models).to(needs.device)
        path = ServerPath(statistic.form)
        if settings.secure.secure_aggregation:
            path = ServerMask(statistic.form, is_once=True, sharing=settings.noise_sharing())
        return MomentsServer(learner, statistic, path, settings.training.batch_size)

    def host(self, needs: contract.HostNeeds[MomentsSettings]) -> MomentsHost:
        settings, statistic = needs.settings, _statistic(needs.settings, needs.models)
        check_canaries(settings.privacy.audit_canaries, statistic)
        form = statistic.form
        path = HostPath(form)
        if settings.secure.secure_aggregation and needs.keys is not None:
            sharing = settings.noise_sharing(needs.least_sharers)
            path = HostMask(needs.keys, form, needs.least_parties, tells_once=True, sharing=sharing)
        return MomentsHost(needs, path, statistic.to(needs.device))

    def message_sizes(self, settings: MomentsSettings, models: Models) -> MessageSizes:
        size = torch.float64.itemsize * _statistic(settings, models).most_numbers
        shares = shares_bytes(settings.num_workers, is_secure=settings.secure.secure_aggregation)
        return MessageSizes(
            0,
            lambda count: {SUM: (count + 1) * (size + shares) + small_bytes(count)},
            lambda count: {ASK: small_bytes(count) + shares},
            shares_bytes=shares,
        )

    def models(self, settings: MomentsSettings, models: Models, kind: SampleKind) -> Models:
        """Replaces the models of a table by those that learn from pairs, unless a key says no."""
        if (pairs := _pairs_of(settings, kind)) is None:
            if settings.features.features == "pairs":
                why = f"are told of rows, by G of {flag('architecture', TABLE)}"
                raise BadInput(key("features", "pairs"), why, f"use {key('features', 'random')}")
            return models
        pairs.check()
        make = partial(PairsGenerator, pairs.kind, settings.models.width or WIDTH)
        return replace(models, generator=make, z_dim=NOISE_SIZE + len(pairs.kind.layout.places))

    def weigh_noise(
        self, settings: MomentsSettings, kind: SampleKind, noise: float, sizes: Sequence[int]
    ) -> list[str]:
        privacy, number, pairs = settings.privacy, settings.num_workers, _pairs_of(settings, kind)
        epsilon, delta = privacy.dp_epsilon, privacy.dp_delta or 0.0
        if pairs is None or epsilon is None or privacy.dp_noise is not None:
            return []
        hides = noise * pairs.length * (1 if settings.shares_noise else sqrt(number))
        seen = number * sum(sizes) / len(sizes) / _LEAST_CELLS
        if hides <= seen:
            return []
        # The counts before training raise σ by about the same factor, whatever ε is.
        alone = noise_for(epsilon, delta, 1.0, steps=1, earlier=(), kind="rdp")
        enough = epsilon_of(PrivacyCharge(alone * seen / hides, 1.0, 1), delta, "rdp")
        error = BadInput(
            flag("dp_epsilon", f"{epsilon:g}"),
            f"noise of {hides:,.0f} rows hides the {seen:,.0f} in each two halves of two columns",
            f"give an ε of {_MORE * enough:.2g} or more, more rows or fewer columns",
        )
        if len(sizes) == number:
            raise error
        return [f"{error.marked}; that is if all workers hold as many rows as those here"]

    def planning(
        self, _settings: MomentsSettings, _models: Models, _counts: contract.ClassCounts | None
    ) -> contract.Planning[MomentsSettings]:
        """Refuses, by BadInput: workers answer once, so `mdgan plan` has no steps to foretell."""
        raise BadInput(
            flag("algorithm", NAME),
            "workers answer once, so there are no steps to foretell",
            f"what quality to expect of it, mdgan plan says with {flag('dp_epsilon')} of another "
            "algorithm",
        )

    def describe(self, run: contract.PlannedRun[MomentsSettings]) -> list[tuple[str, str]]:
        return [("a worker tells", _statistic(run.settings, run.models).about())]


def _pairs_of(settings: MomentsSettings, kind: SampleKind) -> PairCounts | None:
    """The statistic of tables; None where workers send features instead."""
    features, is_table = settings.features, settings.models.architecture == TABLE
    has_pairs = is_table and features.features != "random" and features.feature_network is None
    return PairCounts(kind) if has_pairs and isinstance(kind, TableKind) else None


def _statistic(settings: MomentsSettings, models: Models) -> Statistic:
    """The statistic of a run, the same at the server and at all hosts."""
    generator, features = build_model(models.generator, 0), settings.features
    if isinstance(generator, PairsGenerator):
        return PairCounts(generator.kind)
    num_classes = num_classes_of(generator)
    if features.feature_network is None:
        seed, weights = settings.training.seed, models.value_weights
        return draw_features(features, models.shape, num_classes, seed=seed, weights=weights)
    network = from_file(Path(features.feature_network), models.shape, key("feature_network"))
    return SampleFeatures(torch.empty(0), num_classes or 1, network)


def draw_features(
    settings: FeatureSettings,
    shape: Sequence[int],
    num_classes: int | None,
    seed: int,
    weights: Sequence[float] = (),
) -> SampleFeatures:
    """W ~ N(0, w²/σ²), the same at all hosts, with σ = width · √d and weights w of values, or 1.

    For pictures, volumes and series larger than `feature_side` it draws a coarse W and enlarges it
    as one enlarges pictures. So W·x sees means of neighbours, and G's gradient is smooth.
    """
    channels, most = shape[:1], settings.feature_side
    sides = [-(-side // -(-side // most)) for side in shape[1:]]
    size = prod([*channels, *sides])
    random = generator_for(seed, "features")
    drawn = torch.randn(-(-settings.num_features // 2), size, generator=random)
    if sides != list(shape[1:]):
        coarse = drawn.view(-1, *channels, *sides)
        mode = _MODES[len(sides)]
        drawn = F.interpolate(coarse, shape[1:], mode=mode).flatten(1) * (size / prod(shape))
    if weights:
        drawn *= torch.tensor(weights)
    return SampleFeatures(drawn / (settings.kernel_width * sqrt(size)), num_classes or 1)


BUILDER = _Moments()
