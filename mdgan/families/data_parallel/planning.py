"""What `mdgan plan` must know of ParaGAN."""

from dataclasses import replace

from mdgan.engine.answers import LEAST_TO_SUM
from mdgan.errors import BadInput
from mdgan.families.contract import Planning
from mdgan.families.data_parallel.replica import reductions
from mdgan.families.data_parallel.settings import STAR, DataParallelSettings
from mdgan.gan.build import Models, build_model, num_parameters

_FLOAT_BYTES = 4
_COPIES = 2
"""Weights and gradients; in a star only the server has optimizers."""
_ADDEND_BYTES = {"ring": 8, "fast": 4, "fast-bf16": 2}
"""Of what is added up for each weight."""


def planning(settings: DataParallelSettings, models: Models) -> Planning[DataParallelSettings]:
    """See `Builder.planning`; a short run has the updates that most iterations have, in a star."""
    if settings.generator_ranks is not None:
        raise BadInput(
            f"--generator-ranks {settings.generator_ranks}: mdgan plan foretells runs whose "
            "workers all do the same; leave it out to plan one in which each trains both networks"
        )
    networks = [build_model(make, 0) for make in (models.generator, models.discriminator)]
    both = _FLOAT_BYTES * sum(map(num_parameters, networks))
    everyone, each = "{}, N(|θ| + |w|)", "{}, |θ| + |w|"
    notes = {
        "server sends": (everyone, both * settings.num_workers),
        "server receives": (everyone, both * settings.num_workers),
        "host receives": (each, both),
        "host sends": (each, both),
    }
    if settings.all_reduce != STAR:
        size = _ADDEND_BYTES[settings.all_reduce]
        told = f"of a star; by {settings.all_reduce} up to {{}}, 2·{size} bytes·(|θ| + |w|)"
        notes = dict.fromkeys(notes, (told, 2 * size * (both // _FLOAT_BYTES)))
    is_async = settings.lag_at(settings.iterations // 2 + 1) > 0
    short = replace(settings, sync_after=None, all_reduce=STAR)
    if not is_async:
        short = replace(short, updates="sync", image_buffer=None)
    return Planning(
        short,
        questions=len(reductions(int(is_async), settings.local_steps)),
        enough_in_a_host=LEAST_TO_SUM,
        worker_bytes=_COPIES * both,
        notes=notes,
    )
