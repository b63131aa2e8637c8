"""Tables as data sets: `--dataset table` and `--dataset breast-cancer`."""

from pathlib import Path

import msgspec
import pytest
import torch

from mdgan.data.dataset_file import DatasetFile, load
from mdgan.data.partition import partition
from mdgan.data.partitioner import Partitioner
from mdgan.data.settings import DataSettings, parse_partition
from mdgan.errors import BadInput
from mdgan.samples.table.schema import (
    AnyColumn,
    CategoryColumn,
    DateColumn,
    NumberColumn,
    Schema,
    WholeColumn,
    schema_text,
)
from tests.unit.samples.table.tables import HEADER, ROW, STUDY, written


def prepared(folder: Path, schema: Schema = STUDY, **settings: str | int | None) -> DatasetFile:
    path = folder / "study.json"
    path.write_text(schema_text(schema), encoding="utf-8")
    values = {"schema": str(path), "target": "smoker", **settings}
    return load("table", None).prepared(DataSettings.read(values))


def learnt(dataset: DatasetFile, source: Partitioner) -> Partitioner:
    dataset.kind.learn(source.counts(torch.arange(len(source))))
    return source


OTHER = ROW.replace("yes", "no").replace("44", "66")


def test_rows_are_samples_and_the_target_is_their_class(tmp_path: Path) -> None:
    dataset = prepared(tmp_path)
    source = dataset.open(written(tmp_path, HEADER, ROW, OTHER, OTHER))
    assert source.labels.tolist() == [1, 0, 0]
    assert source.class_names == ("no", "yes")
    assert dataset.num_classes == 2
    assert dataset.agreed == {"schema_sha256": STUDY.sha256}
    samples = learnt(dataset, source).images(torch.arange(3))
    assert samples.dtype == torch.float32
    assert samples.shape == (3, *dataset.shape)
    assert samples.abs().max() <= 1
    assert not torch.equal(samples[0], samples[1])
    assert torch.equal(samples[1], samples[2])
    assert torch.equal(source.images(torch.tensor([1])), samples[1:2])


def test_counts_of_sites_add_up_to_those_of_all(tmp_path: Path) -> None:
    source = prepared(tmp_path).open(written(tmp_path, HEADER, ROW, OTHER))
    both = source.counts(torch.arange(2))
    assert torch.equal(source.counts(torch.tensor([0])) + source.counts(torch.tensor([1])), both)


@pytest.mark.parametrize("independent", [False, True])
def test_equal_rows_are_one_person_unless_the_schema_says_so(
    tmp_path: Path, independent: bool
) -> None:
    schema = msgspec.structs.replace(STUDY, rows_are_independent=independent)
    source = prepared(tmp_path, schema).open(written(tmp_path, HEADER, ROW, OTHER, ROW))
    assert len(set(source.contents(torch.arange(3)))) == (3 if independent else 2)
    again = prepared(tmp_path, schema).open(written(tmp_path, HEADER, OTHER, ROW, ROW))
    assert set(source.contents(torch.arange(3))) == set(again.contents(torch.arange(3)))


def test_rows_are_known_again_whatever_the_schema_makes_of_them(tmp_path: Path) -> None:
    others: list[AnyColumn] = [
        CategoryColumn(name="site", categories=("Bonn", "Aachen", "Cologne")),
        WholeColumn(name="age", low=0, high=200, may_be_missing=True),
        NumberColumn(name="weight", low=-10, high=400, decimals=3, may_be_missing=True),
        DateColumn(name="born", low="1850-01-01", high="2030-12-31"),
    ]
    before = [c for c in STUDY.columns if c.name not in {each.name for each in others}]
    path = written(tmp_path, HEADER, ROW, OTHER)
    known = [
        prepared(tmp_path, schema, target=None).open(path).contents(torch.arange(2))
        for schema in (STUDY, Schema(columns=(*others, *before)))
    ]
    assert known[0] == known[1]
    spelt = ROW.replace("70.5", "70.500").replace("1980-02-03", "03.02.1980")
    again = prepared(tmp_path).open(written(tmp_path, f"{HEADER}", spelt, name="site-2.csv"))
    assert again.contents(torch.arange(1)) == known[0][:1]


NAMED = msgspec.structs.replace(STUDY, person="patient")


def test_rows_of_a_person_are_one_unit_and_known_by_their_texts_too(tmp_path: Path) -> None:
    lines = [f"{ROW},7", f"{OTHER},8", f"{OTHER},7.0", f"{ROW},9"]
    source = prepared(tmp_path, NAMED).open(written(tmp_path, f"{HEADER},patient", *lines))
    known = source.known(torch.arange(4))
    assert known[0].content == known[2].content
    assert len({each.content for each in known}) == 3
    assert source.groups is not None
    assert source.groups[0] == source.groups[2]
    parts = partition(source.labels, parse_partition("iid"), 2, 0, source.groups)
    assert any({0, 2} <= set(part.tolist()) for part in parts)
    unnamed = prepared(tmp_path).open(written(tmp_path, HEADER, ROW, OTHER, name="site-2.csv"))
    assert {row.content for row in unnamed.known(torch.arange(2))} == {r.alias for r in known}
    assert len({row.row for row in known}) == 4


def test_of_a_person_so_many_rows_are_kept(tmp_path: Path) -> None:
    lines = [f"{ROW.replace('44', str(40 + n))},{n % 2}" for n in range(10)]
    path = written(tmp_path, f"{HEADER},patient", *lines)
    dataset = prepared(tmp_path, NAMED, rows_per_person=3)
    source = dataset.open(path)
    assert source.groups is not None
    assert torch.bincount((source.groups == source.groups[0]).long()).tolist() == [3, 3]
    assert len(source.known(torch.arange(6))) == 6
    assert len(prepared(tmp_path, NAMED).open(path)) == 10
    with pytest.raises(
        BadInput, match=r"^--rows-per-person 3: --schema .*study.json names no pers"
    ):
        prepared(tmp_path, rows_per_person=3)


@pytest.mark.parametrize(
    ("header", "lines", "says"),
    [
        (HEADER, [ROW], ", column patient: is missing, and the schema names it as the person"),
        (f"{HEADER},patient", [f"{ROW},"], ", row 2, column patient: is missing, and the schema"),
    ],
)
def test_rows_of_nobody_are_refused(
    header: str, lines: list[str], says: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as refused:
        prepared(tmp_path, NAMED).open(written(tmp_path, header, *lines))
    assert says in str(refused.value)


def test_without_a_target_it_is_one_class(tmp_path: Path) -> None:
    dataset = prepared(tmp_path, target=None)
    source = dataset.open(written(tmp_path, HEADER, ROW, OTHER))
    assert source.labels.tolist() == [0, 0]
    assert dataset.num_classes is None


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (
            "smokes",
            "the schema has no such column; it has weight, age, smoker, site, stage, born, seen",
        ),
        (
            "weight",
            'the schema lets it be missing, and every row needs one; say "may_be_missing": false',
        ),
        (
            "age",
            "a column of numbers with many values cannot be a target; name one of categories, or "
            "of at most 50 whole numbers",
        ),
    ],
)
def test_targets_that_cannot_be_one(target: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        prepared(tmp_path, target=target)
    assert str(refused.value) == f"--target {target}: {says}"


def test_what_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        load("table", None).prepared(DataSettings.read({}))
    assert str(refused.value).startswith("--dataset table: needs --schema FILE")
    with pytest.raises(BadInput) as refused:
        prepared(tmp_path).open(tmp_path / "site-1.csv")
    assert str(refused.value) == (
        f"--data-dir {tmp_path}/site-1.csv: no such file; give a CSV or Parquet file, or a folder "
        "of them; {rank} in it stands for the number of the site"
    )


def test_one_letter_changes_the_hash() -> None:
    first, *others = STUDY.columns
    renamed = Schema(columns=(*others, first))
    assert renamed.sha256 != STUDY.sha256


def test_breast_cancer_holds_out_a_fifth_of_each_diagnosis(tmp_path: Path) -> None:
    dataset = load("breast-cancer", None).prepared(DataSettings.read({}))
    source, held_out = dataset.open(tmp_path), dataset.open_held_out(tmp_path)
    assert (len(source), len(held_out)) == (456, 113)
    assert torch.bincount(held_out.labels).tolist() == [42, 71]
    assert source.class_names == ("malignant", "benign")
    all_contents = source.contents(torch.arange(456)) + held_out.contents(torch.arange(113))
    assert len(set(all_contents)) == 569
    assert learnt(dataset, source).images(torch.arange(456)).abs().max() <= 1
    with pytest.raises(BadInput, match="reads no files"):
        dataset.check_folder("data_dir", "here")


@pytest.mark.parametrize(
    ("data_dir", "site_map", "path", "result"),
    [
        ("s-{rank}.csv", "m-{rank}.json", "s-12.csv", "m-12.json"),
        ("./s-{rank}.csv", "m.json", "s-1.csv", "m.json"),
        ("s.csv", "m.json", "s.csv", "m.json"),
        ("s-{rank}.csv", "m-{rank}.json", "held-out.csv", None),
        ("s.csv", "m.json", "held-out.csv", None),
        ("s.csv", None, "s.csv", None),
        (None, "m.json", "data/table", "m.json"),
    ],
)
def test_a_map_is_for_the_files_of_data_dir(
    data_dir: str | None, site_map: str | None, path: str, result: str | None
) -> None:
    values = {"dataset": "table", "data_dir": data_dir, "map": site_map}
    settings = DataSettings.read({name: value for name, value in values.items() if value})
    assert settings.map_of(Path(path)) == (None if result is None else Path(result))


def test_maps_of_ranks_need_files_of_ranks() -> None:
    settings = DataSettings.read({"dataset": "table", "data_dir": "s.csv", "map": "m-{rank}.json"})
    with pytest.raises(BadInput, match=r"--map m-\{rank\}.json: names a map for each rank"):
        settings.map_of(Path("s.csv"))
