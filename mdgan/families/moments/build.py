"""Makes the two parts of DP-MERF."""

from collections.abc import Sequence
from math import prod, sqrt
from pathlib import Path

import torch
import torch.nn.functional as F

from mdgan.engine.answers import AnswerForm
from mdgan.engine.message_sizes import MessageSizes, shares_bytes, small_bytes
from mdgan.engine.stages.contract import HostPath, ServerPath
from mdgan.engine.stages.mask_host import HostMask
from mdgan.engine.stages.mask_server import ServerMask
from mdgan.errors import BadInput
from mdgan.families.contract import (
    Builder,
    ClassCounts,
    HostNeeds,
    PlannedRun,
    Planning,
    ServerNeeds,
)
from mdgan.families.moments.host import ASK, MomentsHost
from mdgan.families.moments.message import SUMS, EvenGenerator, SampleFeatures
from mdgan.families.moments.server import MomentsServer
from mdgan.families.moments.settings import NAME, FeatureSettings, MomentsSettings
from mdgan.gan.build import Models, build_model, make_model
from mdgan.gan.labels import num_classes_of
from mdgan.gan.optimizers import make_optimizer
from mdgan.gan.randomness import RandomState, derive_seed, generator_for
from mdgan.metrics.network_files import from_file
from mdgan.privacy.canaries import most_canaries

_SUM = "SUM"  # host → server: the sums of features
_WAYS = {1: "linear", 2: "bilinear", 3: "trilinear"}
"""How series, pictures and volumes are enlarged."""


class _Moments(Builder[MomentsSettings]):
    def server(self, needs: ServerNeeds[MomentsSettings]) -> MomentsServer:
        settings, models, seed = needs.settings, needs.models, needs.settings.training.seed
        generator = make_model(models.generator, "generator", settings.training, needs.device)
        policy = settings.training.policy("generator")
        learner = EvenGenerator(
            *(generator, make_optimizer(generator, policy)),
            z_dim=models.z_dim,
            noise=generator_for(seed, "noise"),
            random_state=RandomState(derive_seed(seed, "server"), needs.device),
            policy=policy,
        )
        features = _features(settings, models).to(needs.device)
        form = _form(features)
        path = ServerPath(form)
        if settings.secure.secure_aggregation:
            path = ServerMask(form, is_once=True, sharing=settings.noise_sharing())
        return MomentsServer(learner, features, path, settings.training.batch_size)

    def host(self, needs: HostNeeds[MomentsSettings]) -> MomentsHost:
        settings, features = needs.settings, _features(needs.settings, needs.models)
        number, most = settings.privacy.audit_canaries, most_canaries(prod(features.shape))
        if number > most:
            raise BadInput(
                f"--audit-canaries {number}: sums have room for {most}; give at most that"
            )
        form = _form(features)
        path = HostPath(form)
        if settings.secure.secure_aggregation and needs.keys is not None:
            sharing = settings.noise_sharing(needs.least_sharers)
            path = HostMask(needs.keys, form, needs.least_parties, repeats=True, sharing=sharing)
        return MomentsHost(needs, path, features.to(needs.device))

    def message_sizes(self, settings: MomentsSettings, models: Models) -> MessageSizes:
        size = torch.float64.itemsize * prod(_features(settings, models).shape)
        shares = shares_bytes(settings.num_workers, is_secure=settings.secure.secure_aggregation)
        return MessageSizes(
            0,
            lambda count: {_SUM: (count + 1) * (size + shares) + small_bytes(count)},
            lambda count: {ASK: small_bytes(count) + shares},
            shares_bytes=shares,
        )

    def planning(
        self, _settings: MomentsSettings, _models: Models, _counts: ClassCounts | None
    ) -> Planning[MomentsSettings]:
        """Refuses: workers answer once, so that there are no steps to foretell."""
        raise BadInput(
            f"--algorithm {NAME}: workers answer once, so there are no steps to foretell; what "
            "quality to expect of it, mdgan plan says with --dp-epsilon of another algorithm"
        )

    def describe(self, run: PlannedRun[MomentsSettings]) -> list[tuple[str, str]]:
        num_classes, num_features = _features(run.settings, run.models).shape
        return [("a worker tells", f"{num_features:,} features × {num_classes} class(es), once")]


def _features(settings: MomentsSettings, models: Models) -> SampleFeatures:
    """The same at the server and at all hosts."""
    num_classes, own = num_classes_of(build_model(models.generator, 0)), settings.features
    if own.feature_network is None:
        seed, weights = settings.training.seed, models.value_weights
        return draw_features(own, models.shape, num_classes, seed, weights)
    network = from_file(Path(own.feature_network), models.shape, "--set feature_network")
    return SampleFeatures(torch.empty(0), num_classes or 1, network)


def draw_features(
    settings: FeatureSettings,
    shape: Sequence[int],
    num_classes: int | None,
    seed: int,
    weights: Sequence[float] = (),
) -> SampleFeatures:
    """W ~ N(0, w²/σ²), the same at all hosts, with σ = width · √d and w of each value, or 1.

    Of pictures, volumes and series larger than the `feature_side` it is drawn coarsely, and
    enlarged as pictures are: W·x is that of coarse means, and G's gradient is smooth.
    """
    channels, most = shape[:1], settings.feature_side
    sides = [-(-side // -(-side // most)) for side in shape[1:]]
    size = prod([*channels, *sides])
    random = generator_for(seed, "features")
    drawn = torch.randn(-(-settings.num_features // 2), size, generator=random)
    if sides != list(shape[1:]):
        coarse = drawn.view(-1, *channels, *sides)
        way = _WAYS[len(sides)]
        drawn = F.interpolate(coarse, shape[1:], mode=way).flatten(1) * (size / prod(shape))
    if weights:
        drawn *= torch.tensor(weights)
    return SampleFeatures(drawn / (settings.kernel_width * sqrt(size)), num_classes or 1)


def _form(features: SampleFeatures) -> AnswerForm:
    return AnswerForm(_SUM, features.shape, arithmetic=SUMS)


BUILDER = _Moments()
