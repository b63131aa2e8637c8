"""Reports the progress of a run to programs, such as notebooks, as records of the log.

The records are of level DEBUG, so the log does not show them; a handler finds the event in `event`.
"""

import logging

from msgspec import Struct

from mdgan.records.rows import Losses, RecordedRow, ScoresRow

_log = logging.getLogger(__name__)


class TrainingBegun(Struct, frozen=True, tag=True):
    """Training begins, for the first time or again."""

    path: str  # the run's folder
    iteration: int  # the last iteration that is done; 0 for a new run
    iterations: int  # how many iterations the run will have


class IterationLogged(Struct, frozen=True, tag=True):
    """The server has recorded losses, by network; a loss is None if it was not finite."""

    iteration: int
    losses: dict[str, float | None]


class GeneratorScored(Struct, frozen=True, tag=True):
    """The scorer has scored the generator of an iteration; a score is None if it has no value."""

    iteration: int
    scores: dict[str, float | None]


ProgressEvent = TrainingBegun | IterationLogged | GeneratorScored


def tell_program(event: ProgressEvent) -> None:
    """Passes an event to the program that follows this run, if there is one."""
    _log.debug("%s", event, extra={"event": event})


def tell_program_of_row(row: RecordedRow) -> None:
    """Passes a new row of losses or scores to the program that follows this run."""
    if isinstance(row, Losses):
        tell_program(IterationLogged(row.iteration, row.both))
    elif isinstance(row, ScoresRow):
        tell_program(GeneratorScored(row.iteration, row.scores))
