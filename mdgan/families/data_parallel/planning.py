"""What `mdgan plan` must know of ParaGAN."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from mdgan.engine.answers import LEAST_TO_SUM
from mdgan.families.contract import Planning
from mdgan.families.data_parallel.replica import reductions
from mdgan.families.data_parallel.settings import DataParallelSettings, GeneratorRanks
from mdgan.gan.build import Models, build_model, num_parameters

_FLOAT_BYTES = 4
_COPIES = 2
"""Weights and gradients; only the server has optimizers."""


def planning(settings: DataParallelSettings, models: Models) -> Planning[DataParallelSettings]:
    """See `Builder.planning`; a short run has the updates that most iterations have."""
    networks = [build_model(make, 0) for make in (models.generator, models.discriminator)]
    weights = [_FLOAT_BYTES * num_parameters(network) for network in networks]
    is_async = settings.asynchrony.lag_at(settings.training.iterations // 2 + 1) > 0
    short = settings.but(sync_after=None)
    if not is_async:
        short = short.but(updates="sync", image_buffer=None)
    usual = Planning(
        short,
        questions=len(reductions(int(is_async), settings.training.local_steps)),
        enough_in_a_host=LEAST_TO_SUM,
        worker_bytes=_COPIES * sum(weights),
        notes=_notes(settings, sum(weights)),
    )
    if settings.asynchrony.generator_ranks is None:
        return usual
    batch = _FLOAT_BYTES * prod(models.shape)
    return replace(
        usual,
        groups=dict(zip(("G's worker", "D's worker"), settings.groups(), strict=True)),
        with_groups=_with_groups,
        notes=_notes_apart(settings, (weights[0], weights[1]), batch),
    )


def _with_groups(settings: DataParallelSettings, counts: Sequence[int]) -> DataParallelSettings:
    return settings.but(generator_ranks=GeneratorRanks(1, counts[0]))


def _notes(settings: DataParallelSettings, both: int) -> dict[str, tuple[str, float]]:
    """In the terms of the other papers' tables, four bytes to a number."""
    everyone, each = "{}, N(|θ| + |w|)", "{}, |θ| + |w|"
    return {
        "server sends": (everyone, both * settings.num_workers),
        "server receives": (everyone, both * settings.num_workers),
        "host receives": (each, both),
        "host sends": (each, both),
    }


def _notes_apart(
    settings: DataParallelSettings, weights: tuple[int, int], image: int
) -> dict[str, tuple[str, float]]:
    """Bytes of g workers that train G with b_G images each, and of h that train D with b_D."""
    (generator, discriminator), (makers, learners) = weights, settings.groups()
    scaling = settings.scaling()
    made = image * sum(size.generator for size in scaling.batch_sizes(makers).values())
    learnt = image * sum(size.discriminator for size in scaling.batch_sizes(learners).values())
    g, h = len(makers), len(learners)
    sent = (g + h) * discriminator + g * generator + learnt
    return {
        "server sends": ("{}, g(|θ| + |w|) + h(|θ| + b_D·d)", sent),
        "server receives": ("{}, g(|w| + b_G·d) + h|θ|", g * generator + made + h * discriminator),
    }
