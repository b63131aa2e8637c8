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
_PLAYED_SWAP_INTERVAL = 2
_LEARN = "fake half and step"
_STEP = "backward and step"
_LABELS = {
    **dict.fromkeys(("real-half", "fake-half", "local-step"), _LEARN),
    "both-halves": "both halves and step",
    **dict.fromkeys(("aggregate", "step"), _STEP),
}


def planning(
    settings: MDGANSettings, models: Models, class_counts: ClassCounts | None
) -> Planning[MDGANSettings]:
    """See `Builder.planning`."""
    discriminator = build_model(models.discriminator, 0)
    num_judges, num_sharing = settings.num_judges, settings.num_sharing
    kappa = resolve_kappa(settings.kappa, num_sharing)
    short = settings.but(kappa=kappa, stale=0, swap_interval=0, swap_epochs=None)
    known = class_counts is not None or settings.swaps.swap_interval is not None
    swap = Exchange(
        "swap",
        "discriminator",
        short.but(swap_interval=_PLAYED_SWAP_INTERVAL),
        settings.swap_every(mean_size(class_counts or [[]])) if known else None,
        "--shard-size or --swap-interval",
        lambda hosts: mean_moved(settings.swaps.swap, hosts) * num_judges / settings.num_workers,
    )
    return Planning(
        short,
        enough_workers=max(min(kappa, num_sharing), settings.aggregation.needs_answers),
        enough_in_a_host=LEAST_TO_SUM * kappa,  # then feedback on any batch is added up
        worker_bytes=training_bytes((discriminator, settings.training.policy("discriminator"))),
        overlaps=settings.stale > 0,
        by_arrival=settings.by_arrival,
        exchange=swap if settings.num_workers > 1 else None,
        remedies=_remedies(settings),
        labels=_LABELS,
        notes=_notes(settings, models, num_judges, num_parameters(discriminator)),
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


def _remedies(settings: MDGANSettings) -> dict[str, list[dict[str, object]]]:
    ahead: list[dict[str, object]] = [] if settings.stale or settings.by_arrival else [{"stale": 1}]
    fewer_bytes: list[dict[str, object]] = []
    if str(settings.wire.images) == "fp32":
        fewer_bytes.append({"wire": "images=int8"})
    if str(settings.wire.feedback) == "fp32":
        fewer_bytes.append({"wire": "images=int8,feedback=int8"})
    return {"link": fewer_bytes + ahead, **dict.fromkeys(("latency", "server", "workers"), ahead)}


def _notes(
    settings: MDGANSettings, models: Models, num_workers: int, num_weights: int
) -> dict[str, tuple[str, float]]:
    """Tables II and III (Hardy et al. 2019), four bytes to a number."""
    batch = _FLOAT_BYTES * settings.training.batch_size * prod(models.shape)
    notes: dict[str, tuple[str, float]] = {
        "server sends": ("Table III: {}, 2bdN", 2 * batch * num_workers),
        "server receives": ("Table III: {}, bdN", batch * num_workers),
        "host receives": ("Table III: {} a worker, 2bd", 2 * batch),
        "host sends": ("Table III: {} a worker, bd", batch),
        "a discriminator": ("with its optimizer; Table III: {}, |θ|", _FLOAT_BYTES * num_weights),
        "a further worker in it": ("Table II: O(|θ|)", 0),
    }
    if (steps := settings.training.local_steps) > 1:
        more = f"{steps} local steps with {steps - 1} more real halves"
        notes[f"worker: {_LEARN}"] = (more, 0)
    return notes
