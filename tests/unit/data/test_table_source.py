"""Tables as data sets: `--dataset table` and `--dataset breast-cancer`."""

from pathlib import Path

import pytest
import torch

from mdgan.data.dataset_file import DatasetFile, load
from mdgan.data.partitioner import Partitioner
from mdgan.data.settings import DataSettings
from mdgan.errors import BadInput
from mdgan.samples.table.schema import Schema, schema_text
from tests.unit.samples.table.tables import HEADER, ROW, STUDY, written


def prepared(folder: Path, **settings: str | None) -> DatasetFile:
    path = folder / "study.json"
    path.write_text(schema_text(STUDY), encoding="utf-8")
    given = {"schema": str(path), "target": "smoker", **settings}
    return load("table", None).prepared(DataSettings.read(given))


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


def test_equal_rows_are_of_different_people(tmp_path: Path) -> None:
    source = prepared(tmp_path).open(written(tmp_path, HEADER, ROW, OTHER, ROW))
    assert len(set(source.contents(torch.arange(3)))) == 3
    again = prepared(tmp_path).open(written(tmp_path, HEADER, OTHER, ROW, ROW))
    assert set(source.contents(torch.arange(3))) == set(again.contents(torch.arange(3)))


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
        prepared(tmp_path, schema=None)
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
        dataset.check_folder("--data-dir", "here")
