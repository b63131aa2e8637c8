"""What happens in a run, as typed events, and who listens to them."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from mdgan.records.rows import RecordedRow

# Commands that only look at a run start quickly, without torch.
if TYPE_CHECKING:
    from torch import Tensor

EventKind = TypeVar("EventKind")


@dataclass(frozen=True)
class Advanced:
    """Iteration `number` is done, from 1 on; `before` was the last done before it.

    Attributes:
        losses: float32 [N, 2], J_disc and J_gen of each worker that answered; [0, 2] if untold.
        measures: name in the row → worker → JSON value, of what else the algorithm records.
    """

    number: int
    before: int
    losses: "Tensor"
    workers: Sequence[int]
    measures: Mapping[str, Mapping[int, Any]]

    @cached_property
    def means(self) -> tuple[float, float]:
        """J_disc and J_gen, means over what is finite."""
        from mdgan.gan.losses import finite_means

        discriminator_loss, generator_loss = finite_means(self.losses).tolist()
        return discriminator_loss, generator_loss


@dataclass(frozen=True)
class Recorded:
    """A row for `metrics.jsonl` was made; `row` is its value if it is of losses, scores or ε."""

    record: Mapping[str, Any]
    row: RecordedRow | None = None


@dataclass(frozen=True)
class Pictured:
    """A grid of samples was drawn, a PNG file."""

    iteration: int
    png: bytes


class Bus:
    """Hands events to those who listen, in the order in which they began to."""

    def __init__(self) -> None:
        self._listeners: defaultdict[type, list[Callable[[Any], None]]] = defaultdict(list)

    def on(self, kind: type[EventKind], listener: Callable[[EventKind], None]) -> None:
        """Calls `listener` with every event of a kind from now on."""
        self._listeners[kind].append(listener)

    def tell(self, event: object) -> None:
        """An event has happened."""
        for listener in self._listeners[type(event)]:
            listener(event)
