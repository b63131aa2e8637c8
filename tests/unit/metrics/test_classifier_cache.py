"""The second call reads what the first trained; if anything is wrong with the file, it trains."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from mdgan.data.dataset_file import DatasetFile, load
from mdgan.data.partitioner import Partitioner
from mdgan.metrics.classifier import train_classifier
from mdgan.metrics.classifier_cache import cache_key, cached_classifier
from mdgan.metrics.extractor import Extractor
from tests.unit.metrics.small import MoreStripes, Stripes

STRIPES = """
from torch import nn
from tests.unit.metrics.small import Stripes

SHAPE, Z_DIM = (1, 4, 4), 5
Partitioner, Generator, Discriminator = Stripes, nn.Identity, nn.Identity
"""


@pytest.fixture(autouse=True)
def short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdgan.metrics.classifier._LEAST_STEPS", 20)


@pytest.fixture
def dataset(tmp_path: Path) -> DatasetFile:
    (tmp_path / "stripes.py").write_text(STRIPES)
    return load("stripes", str(tmp_path))


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one for every training."""
    calls: list[str] = []

    def counted(name: str, source: Partitioner, held_out: Partitioner | None) -> Extractor:
        calls.append(name)
        return train_classifier(name, source, held_out)

    monkeypatch.setattr("mdgan.metrics.classifier_cache.train_classifier", counted)
    return calls


def test_the_second_call_reads(dataset: DatasetFile, tmp_path: Path, trainings: list[str]) -> None:
    cache = tmp_path / "a" / "cache"
    first = cached_classifier(dataset, Stripes(), MoreStripes(), cache)
    second = cached_classifier(dataset, Stripes(), MoreStripes(), cache)
    assert trainings == ["stripes"]
    assert first.describe() == second.describe()
    images = MoreStripes().images(torch.arange(30))
    assert torch.equal(first(images).values, second(images).values)
    (path,) = cache.iterdir()
    assert path.name == f"stripes-{cache_key(dataset, Stripes(), MoreStripes())[:12]}.safetensors"


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "text", "other key", "folder"])
def test_a_damaged_file_is_trained_again_and_overwritten(
    damage: str, dataset: DatasetFile, tmp_path: Path, trainings: list[str]
) -> None:
    cache = tmp_path / "cache"
    first = cached_classifier(dataset, Stripes(), MoreStripes(), cache)
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    key = cache_key(dataset, Stripes(), MoreStripes())
    assert key.encode() in whole
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(
            {
                "empty": b"",
                "cut": whole[: len(whole) // 2],
                "flipped": whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:],
                "text": b"<html>quota exceeded</html>",
                "other key": whole.replace(key.encode(), b"0" * len(key)),
            }[damage]
        )
    again = cached_classifier(dataset, Stripes(), MoreStripes(), cache)
    assert again.describe() == first.describe()
    assert len(trainings) == 2
    if damage != "folder":
        assert path.read_bytes() == whole
        cached_classifier(dataset, Stripes(), MoreStripes(), cache)
        assert len(trainings) == 2


class OtherLabels(Stripes):
    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        images, labels = super().read(data_dir)
        labels[7] = (labels[7] + 1) % 3
        return images, labels


class OtherImages(Stripes):
    seed = 5


def test_the_key_follows_the_data_and_the_file(dataset: DatasetFile, tmp_path: Path) -> None:
    (tmp_path / "stripes.py").write_text(STRIPES + "\n")
    keys = {
        cache_key(dataset, Stripes(), MoreStripes()),
        cache_key(dataset, Stripes(), None),
        cache_key(dataset, Stripes(), OtherImages()),
        cache_key(dataset, OtherLabels(), MoreStripes()),
        cache_key(dataset, OtherImages(), MoreStripes()),
        cache_key(load("stripes", str(tmp_path)), Stripes(), MoreStripes()),
    }
    assert len(keys) == 6
    assert cache_key(dataset, Stripes(), MoreStripes()) in keys


def test_a_cache_that_cannot_be_written_is_done_without(
    dataset: DatasetFile, tmp_path: Path, trainings: list[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    extractor = cached_classifier(dataset, Stripes(), MoreStripes(), tmp_path / "file" / "cache")
    assert extractor.num_classes == 3
    assert len(trainings) == 1


@pytest.mark.parametrize("cache_home", ["xdg", "relative", ""])
def test_where_the_cache_is(
    cache_home: str, dataset: DatasetFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    value = str(tmp_path / "xdg") if cache_home == "xdg" else cache_home
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    cached_classifier(dataset, Stripes(), MoreStripes())
    expected = tmp_path / ("xdg" if cache_home == "xdg" else "home/.cache") / "mdgan/classifiers"
    assert len(list(expected.iterdir())) == 1
    assert not (tmp_path / "relative").exists()
