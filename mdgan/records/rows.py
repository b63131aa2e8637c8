"""The rows of a run's files, typed; all that is read here may be foreign or damaged.

A field that a row lacks has its default, one that nobody knows is passed over, and a row with an
impossible value makes no sense as a whole.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, field

Count = Annotated[int, Meta(ge=0, lt=1 << 53)]
Rank = Annotated[int, Meta(gt=0, lt=10**9)]
Seconds = Annotated[float, Meta(ge=0, lt=1e12)]

Kind = TypeVar("Kind")


def json_object(text: bytes) -> dict[str, Any]:
    """Reads one JSON object.

    Raises:
        ValueError: it is none.
    """
    try:
        content = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def typed(record: object, kind: type[Kind]) -> Kind:
    """A value out of JSON as one of a type.

    Raises:
        ValueError: it makes no sense.
    """
    return msgspec.convert(record, kind, str_keys=True)


class Row(Struct, frozen=True, kw_only=True, dict=True):
    """One row of `metrics.jsonl`.

    Attributes:
        iteration: that it is about.
        seconds: since training began; None if it was not recorded.
    """

    iteration: Count
    seconds: Seconds | None = None


class Losses(Row, frozen=True):
    """A logged iteration; a loss is None where it was not finite.

    Attributes:
        generator_loss: mean over the workers that answered.
        discriminator_loss: likewise.
        workers: how many answered.
    """

    generator_loss: float | None = None
    discriminator_loss: float | None = None
    workers: int = 0


class Extractor(Struct, frozen=True):
    """The network whose features scores are computed from.

    Attributes:
        name: for people.
        sha256: of its file.
        accuracy: on held-out data, in [0, 1], if it is a classifier.
    """

    name: str | None = None
    sha256: str | None = None
    accuracy: float | None = None


Values = dict[str, float | list[int] | None]


class Scores(Row, frozen=True):
    """What a generator was worth.

    Attributes:
        scores: by name.
        left_out: the scores that could not be computed, and why.
        warnings: in words.
        extractor: the network.
        n: how many samples were scored.
        n_real: how many real ones they were compared with.
        floor: what one half of the real data gets against the other, by name.
        real: what real data gets, by name.
        class_histogram: generated samples by class.
        real_class_histogram: real samples by class.
    """

    scores: dict[str, float | None] = {}
    left_out: dict[str, str] = {}
    warnings: list[str] = []
    extractor: Extractor | None = None
    n: int | None = None
    n_real: int | None = None
    floor: Values = {}
    real: Values = {}
    class_histogram: list[float] = []
    real_class_histogram: list[float] = []


class Swap(Row, frozen=True):
    """One swap of discriminators, with the digests of what left and of what arrived.

    Attributes:
        pairs: (giver, taker), those that were ordered.
        given: giver → digest.
        taken: taker → digest, of those that told; None in old records.
        told_exact: whether every digest was the right one, as the server said.
    """

    pairs: tuple[tuple[Rank, Rank], ...] = field(name="moves")
    given: dict[Rank, str] = {}
    taken: dict[Rank, str] | None = None
    told_exact: bool | None = field(name="exact", default=None)

    @cached_property
    def moves(self) -> dict[int, int]:
        """Giver → taker, those that were ordered."""
        return dict(self.pairs)

    @cached_property
    def arrived(self) -> frozenset[int]:
        """The takers that got what was sent to them; all others keep their own."""
        return frozenset(self.moves.values() if self.taken is None else self.taken)

    @cached_property
    def exact(self) -> bool | None:
        """Whether every bit of what arrived is as it left; None if it was not recorded."""
        if self.taken is None:
            return self.told_exact
        told = [
            (self.given.get(giver), self.taken[taker])
            for giver, taker in self.moves.items()
            if taker in self.arrived
        ]
        if any(left not in (None, came) for left, came in told):
            return False
        # A giver may have died before it told.
        return None if any(left is None for left, _ in told) else True

    @property
    def complete(self) -> bool:
        """Whether every taker got its discriminator: no worker died or was out of reach."""
        return self.arrived >= set(self.moves.values())


class Round(Row, frozen=True):
    """One round.

    Attributes:
        iteration: local iterations that a worker could have done by its end.
        number: its number, from 0.
        answered: the workers that took part.
        shares: their weights in the average, in the same order; they sum to 1.
        told_asked: the workers that were asked.
        iterations: worker → local iterations that it did.
        batch_sizes: worker → samples in each of its batches.
        aborted: whether the model stayed as it was.
    """

    number: Count
    answered: tuple[Rank, ...] = field(name="took_part")
    shares: tuple[float, ...] = field(name="weights")
    told_asked: tuple[Rank, ...] = field(name="asked", default=())
    iterations: dict[Rank, int] = {}
    batch_sizes: dict[Rank, int] = {}
    aborted: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError unless every worker that took part has a weight."""
        if len(self.shares) != len(self.answered):
            raise ValueError("as many weights as workers")

    @cached_property
    def weights(self) -> Mapping[int, float]:
        """Worker → its weight in the average, of those that took part."""
        return dict(zip(self.answered, self.shares, strict=True))

    @cached_property
    def asked(self) -> tuple[int, ...]:
        """The workers that were asked, in increasing order."""
        return tuple(sorted({*self.told_asked, *self.answered}))

    @property
    def took_part(self) -> tuple[int, ...]:
        """The workers that took part, in increasing order."""
        return tuple(sorted(self.weights))

    @property
    def counted(self) -> tuple[int, ...]:
        """The workers whose models went into the average: none if the round was aborted."""
        return () if self.aborted else self.took_part


class Attended(Row, frozen=True):
    """The server's own counts at the end.

    Attributes:
        workers: worker → how often it answered, was late, was refused and was lost.
    """

    workers: dict[Rank, dict[str, Count]] = {}


class Unsaved(Row, frozen=True):
    """A checkpoint that went wrong, and why."""

    reason: str = ""


class Unscored(Row, frozen=True):
    """A run that cannot be scored, and why."""

    reason: str = ""
