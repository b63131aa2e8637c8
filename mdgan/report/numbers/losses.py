"""How steady the losses of a run are at its end (ParaGAN, section 5.2, figure 6)."""

from statistics import stdev

from mdgan.records.recorded_run import RecordedRun

_LAST = 0.25
_LEAST_LOGGED = 3


def deviations_at_end(run: RecordedRun) -> tuple[float | None, float | None]:
    """The standard deviations of J_gen and J_disc over the logged iterations of the last quarter.

    Each is None if fewer than three were logged, or one of them was not finite.
    """
    rows = run.state.losses
    begin = rows[-1][0] * (1 - _LAST) if rows else 0.0
    late = [losses for i, *losses in rows if i > begin]
    generator, discriminator = (_deviation([both[k] for both in late]) for k in (0, 1))
    return generator, discriminator


def _deviation(losses: list[float | None]) -> float | None:
    finite = [loss for loss in losses if loss is not None]
    return stdev(finite) if _LEAST_LOGGED <= len(finite) == len(losses) else None
