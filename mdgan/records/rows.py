"""The rows of a run's files as typed values.

The files may be damaged, or of another version. A missing field has its default, an unknown field
is ignored, and a row with an impossible value is dropped.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from math import inf
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct, field

Count = Annotated[int, Meta(ge=0, lt=1 << 53)]
Rank = Annotated[int, Meta(gt=0, lt=10**9)]
Seconds = Annotated[float, Meta(ge=0, lt=1e12)]
_Number = Annotated[float, Meta(gt=-1e12, lt=1e12)]

Kind = TypeVar("Kind")

_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML forbids, that control a terminal, or that are halves of a character."""
_MAY_BE_NO_TEXT = (b"\\u", b"\\b", b"\\f", b"\xed", b"\xef\xbf", b"\xc2", b"\x7f")
"""JSON in UTF-8 that has none of these bytes has no such characters."""


def json_object(text: bytes) -> dict[str, Any]:
    """Reads a JSON object; ValueError if it is none. Replaces characters of `_NO_TEXT`."""
    try:
        # The parser would guess the encoding of bytes, but the marks below assume UTF-8.
        content = json.loads(text.decode("utf-8-sig", "surrogatepass"))
        if any(mark in text for mark in _MAY_BE_NO_TEXT):
            content = presentable(content)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def presentable(value: Any) -> Any:
    """Replaces characters of `_NO_TEXT` in JSON values, or in a text."""
    if isinstance(value, str):
        return _NO_TEXT.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, dict):
        return {presentable(name): presentable(item) for name, item in value.items()}
    return [presentable(item) for item in value] if isinstance(value, list) else value


def typed(record: object, kind: type[Kind]) -> Kind:
    """Converts JSON values to a type; ValueError if they do not fit the type."""
    return msgspec.convert(record, kind, str_keys=True)


class RecordedRow(Struct, frozen=True, kw_only=True, dict=True):
    """One row of `metrics.jsonl`, with its iteration and the seconds of training."""

    iteration: Count
    seconds: Seconds | None = None


class Losses(RecordedRow, frozen=True):
    """The losses of a logged iteration; None if not finite. A mean is over the finite ones."""

    generator_loss: float | None = None
    discriminator_loss: float | None = None
    workers: int = 0
    # Worker → J_disc and J_gen; empty in records of versions before 0.7.
    by_worker: dict[Rank, tuple[float | None, float | None]] = {}
    # Key → worker → one or more numbers, from all other keys of the row with such values. Families
    # declare their meaning; see `WorkerNumbers`.
    numbers: dict[str, dict[Rank, tuple[float, ...]]] = {}

    @property
    def both(self) -> dict[str, float | None]:
        """The losses by network."""
        return {"generator": self.generator_loss, "discriminator": self.discriminator_loss}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Losses":
        """Reads a row; ValueError if the row makes no sense."""
        numbers: dict[str, dict[int, tuple[float, ...]]] = {}
        for key in record.keys() - set(cls.__struct_fields__):
            with suppress(ValueError):
                by_worker = typed(record[key], dict[Rank, _Number | tuple[_Number, ...]])
                tuples = {n: x if isinstance(x, tuple) else (x,) for n, x in by_worker.items()}
                numbers[key] = {n: x for n, x in tuples.items() if x}
        return typed({**record, "numbers": numbers}, cls)


class Neighbours(Struct, frozen=True):
    """Median distances of generated, and of real, samples to the nearest held-out sample."""

    n: int
    generated: float
    real: float


class FeatureNetwork(Struct, frozen=True):
    """The network that computed the features; its accuracy on held-out data is in [0, 1]."""

    name: str | None = None
    sha256: str | None = None
    accuracy: float | None = None


class ClassScores(Struct, frozen=True):
    """The scores of each class, in lists of K."""

    asked: list[Count] = []  # how many samples of the class were generated
    # The share of them that the extractor takes for this class; None if none was generated. Empty
    # if the extractor's classes are not those of the data.
    right: list[float | None] = []
    # The FID between them and the real samples of the class (Miyato and Koyama 2018, "cGANs with
    # Projection Discriminator"); None if either are too few. Empty without real samples.
    fid: list[float | None] = []


class RareValue(Struct, frozen=True):
    """A value of a column that few real rows have."""

    column: str
    value: str
    expected: float  # how many generated rows should have it, by the counts of all sites
    generated: Count  # how many have it


Values = dict[str, float | list[int] | None]


class ScoresRow(RecordedRow, frozen=True):
    """The scores of one generator; `real` has those of real data."""

    scores: dict[str, float | None] = {}
    left_out: dict[str, str] = {}
    warnings: list[str] = []
    extractor: FeatureNetwork | None = None
    by: str | None = None
    n: int | None = None
    n_real: int | None = None
    n_held_out: int | None = None
    real: Values = {}
    class_histogram: list[float] = []
    real_class_histogram: list[float] = []
    neighbours: Neighbours | None = None
    by_class: ClassScores | None = None
    rare: list[RareValue] = []  # for tables; the values that lack most come first


class Swap(RecordedRow, frozen=True):
    """One swap of discriminators."""

    pairs: tuple[tuple[Rank, Rank], ...] = field(name="moves")
    given: dict[Rank, str] = {}
    # Taker → digest of the discriminator that arrived; None in records of old versions.
    taken: dict[Rank, str] | None = None
    means: bool = False  # whether workers went on with the mean of both discriminators of a pair
    said_exact: bool | None = field(name="exact", default=None)

    @cached_property
    def moves(self) -> dict[int, int]:
        """Giver → taker, for every discriminator that was to move."""
        return dict(self.pairs)

    @cached_property
    def arrived(self) -> frozenset[int]:
        """The takers that got a discriminator; other workers keep their discriminator."""
        return frozenset(self.moves.values() if self.taken is None else self.taken)

    @cached_property
    def exact(self) -> bool | None:
        """Whether all discriminators arrived bit for bit as they left; None if not recorded."""
        if self.taken is None:
            return self.said_exact
        digests = [
            (self.given.get(giver), self.taken[taker])
            for giver, taker in self.moves.items()
            if taker in self.arrived
        ]
        if any(before not in (None, after) for before, after in digests):
            return False
        # A giver may have died before it reported its digest.
        return None if any(before is None for before, _ in digests) else True

    @property
    def complete(self) -> bool:
        """Whether every taker got a discriminator, so that no giver was lost or unreachable."""
        return self.arrived >= set(self.moves.values())


class RoundRow(RecordedRow, frozen=True):
    """One round: `number` counts from 0, and `iteration` is the round's last local iteration."""

    number: Count
    took_part: tuple[Rank, ...]
    shares: tuple[float, ...] = field(name="weights")
    asked: tuple[Rank, ...] = ()
    iterations: dict[Rank, int] = {}
    batch_sizes: dict[Rank, int] = {}
    aborted: bool = False

    def __post_init__(self) -> None:
        if len(self.shares) != len(self.took_part):
            raise ValueError("as many weights as workers")

    @cached_property
    def weights(self) -> dict[int, float]:
        """Worker → its weight in the average, for the workers that took part."""
        return dict(zip(self.took_part, self.shares, strict=True))

    @property
    def counted(self) -> tuple[int, ...]:
        """The workers whose models went into the average: none if the round was aborted."""
        return () if self.aborted else self.took_part


class Attended(RecordedRow, frozen=True):
    """The server's counts: worker → how often it answered, was late, refused or lost."""

    workers: dict[Rank, dict[str, Count]] = {}


class Fetching(RecordedRow, frozen=True):
    """How long a process waited, since the row before, for data that its threads read ahead."""

    role: str
    batches: Annotated[int, Meta(gt=0, lt=1 << 53)]
    waited_seconds: Seconds
    longest_seconds: Seconds
    threads: Count
    buffer: Count


Operators = Literal[
    "convolution",
    "multiplication",
    "normalisation",
    "optimizer",
    "elementwise and others",
    "copies",
    "sending",
    "waiting",
    "between operators",
]
OPERATORS: tuple[Operators, ...] = get_args(Operators)
"""The uses of a profiled process's time: kinds of operators, sending, waiting, and the rest."""


class Profile(RecordedRow, frozen=True):
    """How a process spent its time in the iterations from `first` to `last`."""

    role: str  # of the process; the server's, if all roles share one process
    first: Count
    last: Count
    profiled_seconds: Seconds
    operators: dict[Operators, Seconds]
    busy_cores: Annotated[float, Meta(ge=0, lt=1e6)]
    cores: Annotated[int, Meta(gt=0, lt=10**6)]
    # The share of the time in which its GPU was busy; None if that is not known.
    gpu: Annotated[float, Meta(ge=0, le=1)] | None = None


PLACEMENT = "placement"  # the event of a round with slots: where its clients trained


class Place(NamedTuple):
    """A slot: its kind, such as "Xeon @ 2.5 GHz, 2 slots on 1 core", its host and its number."""

    kind: str
    host: int
    number: int


class Trained(NamedTuple):
    """One client in one slot, by its host's clock, in seconds since the round began.

    `predicted` is how many seconds the server expected; None without a prediction.
    """

    client: int
    batches: float
    begin: float
    seconds: float
    predicted: float | None


class InSlot(Struct, frozen=True, kw_only=True, dict=True):
    """What one slot did in a round; `work` counts the batches of all its clients.

    The lists hold the fields of `Trained` for its clients, in the order in which they trained. They
    are empty in rounds that are recorded in brief.
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
        lengths = {len(row) for row in (self.clients, self.batches, self.begin, self.seconds)}
        if len(lengths) > 1 or len(self.predicted) not in (0, *lengths):
            raise ValueError("as many numbers as clients")

    @property
    def place(self) -> Place:
        """The slot's kind, host and number."""
        return Place(self.kind, self.host, self.slot)

    @cached_property
    def trained(self) -> list[Trained]:
        """The clients of the slot whose times are known."""
        predicted = self.predicted or [None] * len(self.clients)
        columns = self.clients, self.batches, self.begin, self.seconds, predicted
        return [
            Trained(client, x, begin, seconds=seconds, predicted=expected)
            for client, x, begin, seconds, expected in zip(*columns, strict=True)
            if begin is not None and seconds is not None
        ]


_Part = Annotated[float, Meta(ge=0, lt=1e12)]


class Placed(RecordedRow, frozen=True):
    """Where the clients of one round trained."""

    number: Count
    strategy: str  # `rr`, `bb`, `lb` or `pull`
    makespan: Seconds  # seconds from the beginning of the round until the last slot was done
    slots: list[InSlot] = field(default_factory=list)  # all slots, also those without a client
    num_slots: dict[Rank, Count] = field(default_factory=dict)  # host → how many slots it used
    # Kind of slot → a, b, d of f(x) = a·x + b·log(x) + d seconds (Sani et al. 2024, equation 3), by
    # which the server placed the clients.
    fits: dict[str, tuple[_Part, _Part, _Part]] = field(default_factory=dict)

    @property
    def detailed(self) -> bool:
        """Whether the row has the times of single clients."""
        return any(slot.trained for slot in self.slots)


class WithReason(RecordedRow, frozen=True):
    """Why a checkpoint could not be made, or why the run cannot be scored."""

    event: str
    reason: str = ""


EVERY_CLIENT = 0  # the number that stands for all clients in place of a worker's


class Epsilon(RecordedRow, frozen=True):
    """Worker → ε that its samples have spent in all runs; `EVERY_CLIENT`: each client as a whole.

    `epsilon` compares a sample with one without a gradient, `replaced` with any other sample.
    """

    epsilon: dict[Count, Seconds] = {}
    replaced: dict[Count, Seconds] = {}


class WorkerNumbers(NamedTuple):
    """Declares numbers of each worker in the rows of logged iterations, and how they are shown."""

    key: str  # in a row of `metrics.jsonl`: worker → a number, or a mean and a greatest number
    title: str
    label: str
    caption: str
    column: str = ""  # the heading in `mdgan watch`; empty for no column
    alarm: float = inf  # a number is alarming from here on, a dashed line in figures
    alarming: str = ""
