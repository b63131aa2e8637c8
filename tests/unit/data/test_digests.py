"""How samples are recognized, and when held-out samples are the training samples."""

from pathlib import Path

import numpy as np
import pytest
import torch

from mdgan.data.digests import digests_of, num_common, shared_samples
from mdgan.data.table_source import TablePartitioner
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.schema import NumberColumn, Schema, YesNoColumn
from mdgan.storage.foreign_file import ends_of

NUMBERS = Schema(columns=tuple(NumberColumn(name=name, low=-9, high=9) for name in "abc"))
ANSWERS = Schema(columns=tuple(YesNoColumn(name=name) for name in "abcd"))


def table(schema: Schema, values: "np.typing.NDArray[np.float64]") -> TablePartitioner:
    return TablePartitioner(TableKind(schema), Rows(schema, values))


def everything(*sources: TablePartitioner) -> list[tuple[TablePartitioner, torch.Tensor]]:
    return [(source, torch.arange(len(source))) for source in sources]


def answers(seed: int, number: int) -> "np.typing.NDArray[np.float64]":
    return np.random.default_rng(seed).integers(0, 2, (number, 4)).astype(float)


def numbers(seed: int, number: int) -> "np.typing.NDArray[np.float64]":
    return np.random.default_rng(seed).normal(size=(number, 3)).round(6)


def test_zeros_have_no_sign_and_missing_values_are_alike() -> None:
    some, others = (table(NUMBERS, np.array([[zero, np.nan, 1.0]])) for zero in (0.0, -0.0))
    assert digests_of(some, torch.arange(1)) == digests_of(others, torch.arange(1))


def test_common_samples_count_as_often_as_both_have_them() -> None:
    some, others = np.array([1, 1, 1, 2, 3], np.uint64), np.array([1, 1, 3, 3, 4], np.uint64)
    assert num_common(some, others) == 3
    assert num_common(some, some[:0]) == 0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("num_trained", "num_held_out"), [(40, 20), (300, 100), (100, 1000)])
def test_rows_that_equal_each_other_by_nature_are_no_overlap(
    seed: int, num_trained: int, num_held_out: int
) -> None:
    trained = table(ANSWERS, answers(seed, num_trained))
    shared = shared_samples(everything(trained), table(ANSWERS, answers(100 + seed, num_held_out)))
    assert shared.number > 0
    assert shared.is_chance


@pytest.mark.parametrize("seed", range(5))
def test_a_whole_source_that_is_held_out_is_known_however_few_its_columns_are(seed: int) -> None:
    values = answers(seed, 40)
    one, other = table(ANSWERS, values), table(ANSWERS, answers(50 + seed, 40))
    assert not shared_samples(everything(other, one), table(ANSWERS, values[::-1])).is_chance


@pytest.mark.parametrize(("number", "is_chance"), [(0, True), (1, True), (8, False), (50, False)])
def test_rows_with_numbers_are_hardly_alike_by_chance(number: int, is_chance: bool) -> None:
    trained, held_out = numbers(1, 400), numbers(2, 50)
    held_out[:number] = trained[:number]
    shared = shared_samples(everything(table(NUMBERS, trained)), table(NUMBERS, held_out))
    assert shared == (number, 50, is_chance)


def test_workers_that_all_hold_the_same_rows_make_them_no_more_alike() -> None:
    source = table(NUMBERS, numbers(1, 40))
    shared = shared_samples(everything(source, source, source), table(NUMBERS, numbers(1, 20)))
    assert shared == (20, 20, False)


def test_the_ends_of_files_tell_them_from_others(tmp_path: Path) -> None:
    content = bytes(100_000)
    for name, changed in (
        *(("same", content), ("begin", b"x" + content[1:]), ("end", content[:-1] + b"x")),
        *(("longer", content + b"\0"), ("empty", b""), ("short", b"abc")),
    ):
        (tmp_path / name).write_bytes(changed)
    (tmp_path / "again").write_bytes(content)
    ends = {path.name: ends_of(path) for path in tmp_path.iterdir()}
    assert ends["same"] == ends.pop("again")
    assert len(set(ends.values())) == len(ends)
    assert len(ends_of(tmp_path)) == sum(map(len, ends.values())) + len(ends["same"])
