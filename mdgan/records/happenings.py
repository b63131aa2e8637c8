"""Rows of `metrics.jsonl` about workers that join, leave, are lost, or do not answer in time."""

from functools import cached_property
from typing import Annotated

from msgspec import Meta, Struct, field

from mdgan.records.rows import Rank, RecordedRow

BEGAN, RESUMED = "holdings", "resumed"
JOINED, LEFT, LOST, SHUT_OUT = "joined", "left", "lost", "shut out"
LATE, BACK, REFUSED = "late", "back", "refused"
KINDS = (BEGAN, RESUMED, JOINED, LEFT, LOST, SHUT_OUT, LATE, BACK, REFUSED)
COMING, GOING = (BEGAN, RESUMED, JOINED), (LEFT, LOST, SHUT_OUT)


class Holding(Struct, frozen=True):
    """How many samples of each class a worker holds; only the sum if it does not say classes."""

    classes: list[int] = []
    samples: Annotated[int, Meta(ge=0)] = 0


class Happening(RecordedRow, frozen=True):
    """What happened to some workers. At the beginning of training, `named` also has holdings."""

    kind: str = field(name="event")
    time: float | None = None
    reason: str = ""
    strikes: int = 1
    named: dict[Rank, Holding] | list[Rank] = field(name="workers", default_factory=list)
    worker: Rank | None = None
    held: dict[Rank, Holding] = field(name="holdings", default_factory=dict)

    def __post_init__(self) -> None:
        if not self.workers and self.kind not in (BEGAN, RESUMED):
            raise ValueError("it names no worker")

    @cached_property
    def workers(self) -> tuple[int, ...]:
        """The workers concerned, in order; at the beginning of training, all that take part."""
        return tuple(sorted({*self.named, *([self.worker] if self.worker else [])}))

    @cached_property
    def holdings(self) -> dict[int, Holding]:
        """Worker → its samples, of the workers for which the row has them."""
        return {**(self.named if isinstance(self.named, dict) else {}), **self.held}
