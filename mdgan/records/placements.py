"""What a run with slots records of where its clients trained."""

from functools import cached_property
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct, field

from mdgan.records.rows import Count, Rank, RecordedRow, Seconds

PLACEMENT = "placement"


class Place(NamedTuple):
    """A slot: its kind, such as "Xeon @ 2.5 GHz, 2 slots on 1 core", its host and its number."""

    kind: str
    host: int
    number: int


class Trained(NamedTuple):
    """One client in one slot, in seconds since the round began, as its host says.

    It was expected to take `predicted` seconds; None without a prediction.
    """

    client: int
    batches: float
    begin: float
    seconds: float
    predicted: float | None


class InSlot(Struct, frozen=True, kw_only=True, dict=True):
    """What one slot did in a round, for `work` batches of all its clients.

    The lists are of its clients, in the order in which they trained, as in `Trained`; empty in
    rounds that are recorded in brief.
    """

    host: Rank
    slot: Count
    kind: str = ""
    busy: Seconds
    work: Count = 0
    clients: list[Count] = []
    batches: list[Count] = []
    begin: list[Seconds | None] = []
    seconds: list[Seconds | None] = []
    predicted: list[Seconds | None] = []

    def __post_init__(self) -> None:
        """Raises ValueError unless all lists belong to the same clients."""
        lengths = {len(each) for each in (self.clients, self.batches, self.begin, self.seconds)}
        if len(lengths) > 1 or len(self.predicted) not in (0, *lengths):
            raise ValueError("as many numbers as clients")

    @property
    def place(self) -> Place:
        """Which slot it is."""
        return Place(self.kind, self.host, self.slot)

    @cached_property
    def trained(self) -> list[Trained]:
        """Its clients whose times are known."""
        predicted = self.predicted or [None] * len(self.clients)
        columns = self.clients, self.batches, self.begin, self.seconds, predicted
        return [
            Trained(client, x, begin, seconds, expected)
            for client, x, begin, seconds, expected in zip(*columns, strict=True)
            if begin is not None and seconds is not None
        ]


_Part = Annotated[float, Meta(ge=0, lt=1e12)]


class Placed(RecordedRow, frozen=True):
    """Where the clients of one round trained, as `rr`, `bb`, `lb` or `pull` placed them."""

    number: Count
    strategy: str
    makespan: Seconds  # seconds from the beginning of the round until the last slot was done
    # All slots that were there, also those without a client.
    slots: list[InSlot] = field(default_factory=list)
    num_slots: dict[Rank, Count] = field(default_factory=dict)  # host → how many slots it used
    # Kind of slot → a, b, d of f(x) = a·x + b·log(x) + d seconds (Sani et al. 2024, equation 3), by
    # which the round was placed.
    fits: dict[str, tuple[_Part, _Part, _Part]] = field(default_factory=dict)

    @property
    def detailed(self) -> bool:
        """Whether it says which client trained when."""
        return any(slot.trained for slot in self.slots)
