"""Which entries of a sample stand for which column.

A sample is float32 [width]. A column of numbers has one entry for its *score*, in [−1, 1]; if it
has common values or may be missing, a *choice* follows: one entry each for "another value", for
every common value and for "missing", of which one is 1 and the others are 0. A column of categories
is a choice alone.
"""

from dataclasses import dataclass

from mdgan.samples.table.schema import AnyColumn, ScaledColumn, Schema


@dataclass(frozen=True)
class ColumnPlace:
    """The entries of one column.

    Attributes:
        index: of the column in the schema.
        score: the entry of its score; None if it has none.
        choice: its other entries; empty if it has none.
    """

    index: int
    column: AnyColumn
    score: int | None
    choice: range


class RowLayout:
    """The entries of a sample.

    Args:
        without: the index of a column that is no part of samples, since it is their label.

    Attributes:
        scores: the entries that are scores.
        choices: the entries of each choice.
    """

    def __init__(self, schema: Schema, without: int | None = None) -> None:
        self.schema = schema
        self.places: list[ColumnPlace] = []
        width = 0
        for index, column in enumerate(schema.columns):
            if index == without:
                continue
            score = width if isinstance(column, ScaledColumn) else None
            begin = width + (score is not None)
            choice = range(begin, begin + num_options(column))
            self.places.append(ColumnPlace(index, column, score, choice))
            width = choice.stop
        self.width = width
        self.scores = [place.score for place in self.places if place.score is not None]
        self.choices = [place.choice for place in self.places if place.choice]


def num_options(column: AnyColumn) -> int:
    """How many entries a column's choice has; 0 if it has none."""
    if isinstance(column, ScaledColumn):
        has_any = bool(column.common) or column.may_be_missing
        return has_any + len(column.common) + column.may_be_missing
    return len(column.choices) + column.may_be_missing
