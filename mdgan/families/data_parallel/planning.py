"""What `mdgan plan` must know of ParaGAN."""

from mdgan.engine.answers import LEAST_TO_SUM
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
    networks = [build_model(make, 0) for make in (models.generator, models.discriminator)]
    weights = sum(map(num_parameters, networks))
    is_async = settings.asynchrony.lag_at(settings.training.iterations // 2 + 1) > 0
    short = settings.but(sync_after=None, all_reduce=STAR)
    if not is_async:
        short = short.but(updates="sync", image_buffer=None)
    notes: dict[str, tuple[str, float]] = {}
    if settings.all_reduce != STAR:
        num_bytes = 2 * _ADDEND_BYTES[settings.all_reduce] * weights
        note = (f"of a star; by {settings.all_reduce} up to {{}}", num_bytes)
        notes = dict.fromkeys(
            ("server sends", "server receives", "host receives", "host sends"), note
        )
    return Planning(
        short,
        questions=len(reductions(int(is_async), settings.training.local_steps)),
        enough_in_a_host=LEAST_TO_SUM,
        worker_bytes=_COPIES * _FLOAT_BYTES * weights,
        in_groups=settings.asynchrony.generator_ranks is not None,
        notes=notes,
    )
