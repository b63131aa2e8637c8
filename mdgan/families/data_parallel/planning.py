"""What `mdgan plan` must know of ParaGAN."""

from mdgan.engine.answers import LEAST_TO_SUM
from mdgan.families.contract import Planning
from mdgan.families.data_parallel.settings import DataParallelSettings
from mdgan.gan.build import Models, build_model, num_parameters

_FLOAT_BYTES = 4
_COPIES = 2
"""Weights and gradients; only the server has optimizers."""


def planning(settings: DataParallelSettings, models: Models) -> Planning[DataParallelSettings]:
    """See `Builder.planning`."""
    networks = [build_model(make, 0) for make in (models.generator, models.discriminator)]
    both = _FLOAT_BYTES * sum(map(num_parameters, networks))
    everyone, each = "{}, N(|θ| + |w|)", "{}, |θ| + |w|"
    return Planning(
        settings,
        enough_in_a_host=LEAST_TO_SUM,
        worker_bytes=_COPIES * both,
        notes={
            "server sends": (everyone, both * settings.num_workers),
            "server receives": (everyone, both * settings.num_workers),
            "host receives": (each, both),
            "host sends": (each, both),
        },
    )
