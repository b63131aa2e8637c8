"""How far a run is, as it happens: for programs that follow it, in records of the log.

The log shows none of it: the records are of level DEBUG, and handlers find the event in `event`.
"""

import logging

from msgspec import Struct

from mdgan.records.rows import Losses, RecordedRow, ScoresRow

_log = logging.getLogger(__name__)


class TrainingBegun(Struct, frozen=True, tag=True):
    """Training begins, for the first time or again."""

    path: str  # of the run's folder
    iteration: int  # the last one that is done; 0 for a new run
    iterations: int  # that the run will have


class IterationLogged(Struct, frozen=True, tag=True):
    """A row of losses was recorded, by networks; a loss is None where it was not finite."""

    iteration: int
    losses: dict[str, float | None]


class GeneratorScored(Struct, frozen=True, tag=True):
    """Training has scored the generator of an iteration; a score is None if it has no value."""

    iteration: int
    scores: dict[str, float | None]


ProgressEvent = TrainingBegun | IterationLogged | GeneratorScored


def tell_program(event: ProgressEvent) -> None:
    """Tells the program that follows this run, if there is one."""
    _log.debug("%s", event, extra={"event": event})


def tell_program_of_row(row: RecordedRow) -> None:
    """Tells it of a new row of losses or scores."""
    if isinstance(row, Losses):
        tell_program(IterationLogged(row.iteration, row.both))
    elif isinstance(row, ScoresRow):
        tell_program(GeneratorScored(row.iteration, row.scores))
