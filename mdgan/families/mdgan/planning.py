"""What `mdgan plan` must know of MD-GAN: how to play few workers, and the paper's costs."""

from collections.abc import Sequence
from math import prod

from mdgan.engine.answers import LEAST_TO_SUM
from mdgan.engine.message_sizes import training_bytes
from mdgan.families.contract import ClassCounts, Exchange, Planning, mean_size
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.build import Models, build_model, num_parameters
from mdgan.gan.local_gan import resolve_kappa

_FLOAT_BYTES = 4


def planning(
    settings: MDGANSettings, models: Models, class_counts: ClassCounts | None
) -> Planning[MDGANSettings]:
    """See `Builder.planning`."""
    discriminator = build_model(models.discriminator, 0)
    num_judges, num_sharing = settings.num_judges, settings.num_sharing
    kappa = resolve_kappa(settings.kappa, num_sharing)
    short = settings.but(kappa=kappa, stale=0, swap_interval=0, swap_epochs=None)
    known = class_counts is not None or settings.swaps.swap_interval is not None
    weights = num_parameters(discriminator)
    worker_bytes = training_bytes((discriminator, settings.training.policy("discriminator")))
    thing = worker_bytes - _FLOAT_BYTES * weights  # it goes without its gradients
    share = num_judges / settings.num_workers
    swap = Exchange(
        "swap",
        "discriminator",
        thing,
        settings.swap_every(mean_size(class_counts or [[]])) if known else None,
        "--shard-size or --swap-interval",
        lambda hosts: thing * share * mean_moved(settings.swaps.swap, hosts),
    )
    return Planning(
        short,
        enough_workers=max(min(kappa, num_sharing), settings.aggregation.needs_answers),
        enough_in_a_host=LEAST_TO_SUM * kappa,  # then feedback on any batch is added up
        worker_bytes=worker_bytes,
        overlaps=settings.stale > 0,
        by_arrival=settings.by_arrival,
        exchange=swap if settings.num_workers > 1 else None,
        notes=_notes(settings, models, num_judges, weights),
    )


def mean_moved(form: str, hosts: Sequence[Sequence[int]]) -> float:
    """How many discriminators change their host in a swap, on average, by the workers of hosts."""
    num_workers = sum(map(len, hosts))
    if num_workers < 2:
        return 0.0
    moving = num_workers - (num_workers % 2 if form == "pairs" else 0)
    # A discriminator is as likely to go to any other worker.
    away = sum(len(host) * (num_workers - len(host)) for host in hosts)
    return moving * away / (num_workers * (num_workers - 1))


def _notes(
    settings: MDGANSettings, models: Models, num_workers: int, num_weights: int
) -> dict[str, tuple[str, float]]:
    """Table III (Hardy et al. 2019), four bytes to a number."""
    batch = _FLOAT_BYTES * settings.training.batch_size * prod(models.shape)
    return {
        "server sends": ("Table III: {}, 2bdN", 2 * batch * num_workers),
        "server receives": ("Table III: {}, bdN", batch * num_workers),
        "host receives": ("Table III: {} a worker, 2bd", 2 * batch),
        "host sends": ("Table III: {} a worker, bd", batch),
        "a discriminator": ("with its optimizer; Table III: {}, |θ|", _FLOAT_BYTES * num_weights),
    }
