"""DataFrames of all kinds: mdgan trains on what a frame holds, or says in one line why not."""

from collections.abc import Callable
from datetime import time
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from mdgan import Data
from mdgan.errors import BadInput
from mdgan.interface.data import is_frame
from mdgan.interface.frames import Frames
from mdgan.samples.table.reading import read_rows
from mdgan.samples.table.schema import Schema, read_schema

pandas = pytest.importorskip("pandas")

NUMBER = 60
DRAW = np.random.default_rng(0)
SEX = ["F", "M"] * (NUMBER // 2)


def frame(**columns: Any) -> Any:
    """A number, F or M, and others."""
    return pandas.DataFrame({"x": DRAW.uniform(-1, 1, size=NUMBER), "sex": SEX, **columns})


def objects(*values: object) -> Any:
    """A column that holds these objects, again and again."""
    return pandas.Series([*values] * (NUMBER // len(values)), dtype=object)


def numbers(columns: Any) -> Any:
    return pandas.DataFrame(DRAW.uniform(-1, 1, size=(NUMBER, len(columns))), columns=columns)


def placed(train: Any, **others: Any) -> tuple[Frames, Schema]:
    """The frames as they lie, and their schema; their rows fit it."""
    data = Data(train, **others)
    assert is_frame(train)
    frames = data.frames
    assert frames is not None
    schema = read_schema(frames.schema)
    for case, part in data.parts.items():
        place = {"train": "data_dir", "held_out": "held_out"}[case]
        rows = read_rows(frames.schema.parent / frames.places[place], schema, frames.target)
        assert len(rows) == len(part)
    KEPT.append(data)
    return frames, schema


KEPT: list[Data] = []
"""Their folders go with them."""


def test_names_that_are_numbers_are_names() -> None:
    frames, schema = placed(numbers(range(4)))
    assert schema.names == ["0", "1", "2", "3"]
    assert frames.target is None
    assert placed(pandas.DataFrame({0: SEX, 1: range(NUMBER, 0, -1)}), label=0)[0].target == "0"
    assert placed(numbers([1.5, True]))[1].names == ["1.5", "True"]


def test_spaces_around_names_do_not_count() -> None:
    given = frame().rename(columns={"x": " x", "sex": "sex "})
    frames, schema = placed(given, label="sex ")
    assert (schema.names, frames.target) == (["x", "sex"], "sex")
    assert placed(given, held_out=frame()[["sex", "x"]], label=" sex")[0].target == "sex"


@pytest.mark.parametrize(
    "values",
    [range(NUMBER), range(5, 5 + 3 * NUMBER, 3), [*range(NUMBER // 2)] * 2],
    ids=["all", "some", "twice"],
)
def test_an_index_that_was_written_out_is_left_out(values: Any) -> None:
    frames, schema = placed(frame(**{"Unnamed: 0": [*values]}))
    assert schema.names == ["x", "sex"]
    assert "left out: Unnamed: 0: has no name" in frames.about


def test_what_a_frame_is_read_as_is_said() -> None:
    costs = [f"{1000 + 7 * n:,}" for n in range(NUMBER)]
    regions = (["NA", "EU", "AS"] * NUMBER)[:NUMBER]
    about = placed(frame(cost=costs, region=regions))[0].about
    assert "cost: numbers are read with commas between thousands" in about
    assert "region: 'NA' in " in about


def test_an_index_is_no_column() -> None:
    twice = pandas.concat([frame(), frame()])
    assert twice.index.has_duplicates
    assert "index" not in placed(twice, label="sex")[0].about
    about = placed(frame().assign(y=DRAW.uniform(-1, 1, size=NUMBER)).set_index("sex"))[0].about
    assert "the index sex is no column; reset_index makes it" in about


def test_categories_are_what_their_texts_say() -> None:
    ordered = pandas.Categorical(["mid", "low"] * 30, ["low", "mid", "high"], ordered=True)
    cut = pandas.cut(np.arange(NUMBER), 3)
    codes = pandas.Categorical([1, 2, 3] * 20)
    _, schema = placed(frame(ordered=ordered, cut=cut, codes=codes), label="ordered")
    choices = {c.name: getattr(c, "categories", ()) for c in schema.columns}
    assert choices["ordered"] == ("low", "mid")
    assert len(choices["cut"]) == 3


def test_values_may_be_missing_sparse_or_of_other_libraries() -> None:
    _, schema = placed(
        frame(
            whole=pandas.array([1, None, 3, 2] * 15, dtype="Int64"),
            yes=pandas.array([True, None, False] * 20, dtype="boolean"),
            sparse=pandas.arrays.SparseArray([0.0, 0.0, 1.25] * 20),
            exact=objects(Decimal("1.5"), 2, float("nan")),
            text=pandas.array(["a", "b"] * 30, dtype="string"),
            gaps=objects("a", None, "b"),
            day=pandas.period_range("2024-01-01", periods=NUMBER, freq="D"),
            clock=objects(time(1, 2), time(3, 4)),
        )
    )
    kinds = {column.name: column.kind for column in schema.columns}
    assert kinds == {
        **{"x": "number", "sex": "category", "whole": "whole", "yes": "yes_no"},
        **{"sparse": "number", "exact": "number", "text": "category", "gaps": "category"},
        **{"day": "date", "clock": "category"},
    }


def test_times_of_a_zone_are_told_without_it() -> None:
    times = pandas.date_range("2024-01-01", periods=NUMBER, freq="7h", tz="Europe/Berlin")
    frames, schema = placed(frame(seen=times), held_out=frame(seen=times))
    assert schema.columns[-1].kind == "time"
    assert frames.about.count("seen has the times of Europe/Berlin, without the zone") == 1


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: numbers(["a", "a"]), "train, column a: a name occurs twice"),
        (lambda: numbers([" a", "a "]), "train, column a: a name occurs twice"),
        (lambda: numbers([1, "1"]), "train, column 1: a name occurs twice"),
        (lambda: numbers(["a", None]), "train: a column is called"),
        (lambda: numbers(["a", ""]), "train: a column is called ''"),
        (lambda: numbers(["a", "b\nc"]), "train: a column is called 'b\\nc'"),
        (
            lambda: numbers(pandas.MultiIndex.from_tuples([("a", "b"), ("a", "c")])),
            "names of several levels",
        ),
        (lambda: frame(z=DRAW.uniform(-1, 1, size=NUMBER) * 1j), "column z: holds complex numbers"),
        (lambda: frame(z=objects(1 + 2j, 2)), "column z: holds values of type complex"),
        (lambda: frame(z=[np.inf, 1.5, -2.5] * 20), "column z: holds infinite numbers; make them"),
        (lambda: frame(z=objects(np.complex64(1j), 2)), "column z: holds values of type complex64"),
        (lambda: frame(z=objects(np.timedelta64(1, "s"))), "holds values of type timedelta64"),
        (lambda: frame(z=objects(1, "1")), "column z: mixes numbers and texts; make it one kind"),
        (lambda: frame(z=objects(True, 1, 0)), "column z: mixes numbers and true and false"),
        (lambda: frame(z=pandas.Categorical([1, "a"] * 30)), "mixes numbers and texts"),
        (lambda: frame(z=objects([1], [2])), "column z: holds values of type list"),
        (lambda: frame(z=objects({"a": 1}, {})), "column z: holds values of type dict"),
        (lambda: frame(z=objects(b"a", b"b")), "column z: holds values of type bytes"),
        (
            lambda: frame(z=pandas.to_timedelta(np.arange(NUMBER), unit="h")),
            "column z: holds durations; give numbers, such as .dt.total_seconds()",
        ),
        (lambda: frame(z=objects("\ud800", "b")), "train: UnicodeEncodeError"),
        (lambda: frame().iloc[:0], "train: DataFrame has no sample"),
        (pandas.DataFrame, "train: DataFrame has no sample"),
        (lambda: pandas.DataFrame(index=range(5)), "train: has no column"),
        (lambda: pandas.DataFrame({"a": [np.nan] * 5}), "train: has no row"),
    ],
)
def test_what_no_table_can_hold_is_refused_in_a_line(made: Callable[[], Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        placed(made())
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"label": "outcome"}, "label='outcome': is no column; there are x, sex"),
        ({"label": "same"}, "label='same': says 'v' in every row"),
        (
            {"held_out": frame()},
            "held_out: must be a DataFrame with the columns of train; look at same",
        ),
        ({"held_out": np.zeros((3, 4))}, "held_out: must be a DataFrame with the columns of train"),
        ({"held_out": frame().iloc[:0]}, "held_out: DataFrame has no sample"),
        ({"held_out": frame(same=[1j] * NUMBER)}, "held_out, column same: holds complex numbers"),
    ],
)
def test_what_goes_with_a_frame_must_fit_it(others: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        placed(frame(same="v"), **others)
    assert message in str(caught.value)
