"""How steady the losses of a run are at its end (ParaGAN, section 5.2, figure 6)."""

from collections.abc import Callable
from statistics import stdev

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Losses

_LAST = 0.25
_LEAST_LOGGED = 3


def generator_loss(row: Losses) -> float | None:
    """J_gen of a logged iteration."""
    return row.generator_loss


def discriminator_loss(row: Losses) -> float | None:
    """J_disc of a logged iteration."""
    return row.discriminator_loss


def deviation_at_end(run: RecordedRun, loss: Callable[[Losses], float | None]) -> float | None:
    """The standard deviation of a loss over the logged iterations of the last quarter.

    Args:
        run: as recorded.
        loss: of a logged iteration.

    Returns:
        None if fewer than three were logged, or one of them was not finite.
    """
    rows = run.of(Losses)
    if not rows:
        return None
    begin = rows[-1].iteration * (1 - _LAST)
    losses = [loss(row) for row in rows if row.iteration > begin]
    finite = [value for value in losses if value is not None]
    return stdev(finite) if _LEAST_LOGGED <= len(finite) == len(losses) else None
