"""Which samples the network learns from, and which it is judged by, under differential privacy."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from mdgan.data.dataset_file import DatasetFile, load
from mdgan.data.partitioner import Partitioner
from mdgan.errors import BadInput
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.metrics.chosen import judging, make_extractor, open_held_out
from tests.unit.metrics.small import Stripes

OPEN = MDGANSettings()
PRIVATE = MDGANSettings(dp_noise=1.0, dp_delta=0.1)
FROM_FOLDERS = """
from torch import nn
from tests.unit.metrics.small import Stripes

SHAPE, Z_DIM = (1, 4, 4), 5
Generator = Discriminator = nn.Identity


def Partitioner(folder):
    return Stripes()
"""


class Others(Stripes):
    """201 samples; each is told by one of its pixels."""

    num_samples = 201
    seed = 1

    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        images, labels = super().read(data_dir)
        images[:, 0, 0, 0] = torch.linspace(-1, 1, len(images))
        return images, labels


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DatasetFile:
    monkeypatch.setattr("mdgan.metrics.classifier._LEAST_STEPS", 20)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "stripes.py").write_text(FROM_FOLDERS)
    return load("stripes", str(tmp_path))


def of_workers() -> Partitioner:
    raise AssertionError("workers' samples are not looked at")


def cached(folder: Path) -> list[Path]:
    return list((folder / "cache").rglob("*.safetensors"))


def which(half: Partitioner) -> set[int]:
    pixels = half.images(torch.arange(len(half)))[:, 0, 0, 0]
    return set(((pixels + 1) * 100).round().long().tolist())


def test_one_half_of_each_class_trains_and_the_other_judges(dataset: DatasetFile) -> None:
    held_out = Others()
    extractor = make_extractor(PRIVATE, dataset, of_workers, lambda: held_out)
    judges = judging(PRIVATE, held_out)
    assert judges is not None
    assert torch.bincount(judges.labels).tolist() == [33, 33, 33]
    assert extractor.accuracy is not None
    assert extractor.accuracy > 0.9
    # Whatever becomes of those that judge, the network is the same: it has not learnt from them.
    places = torch.tensor(sorted(which(judges)))
    held_out._pixels[places] = -1
    assert make_extractor(PRIVATE, dataset, of_workers, lambda: held_out).sha256 == extractor.sha256
    held_out._pixels[:] = -1
    assert make_extractor(PRIVATE, dataset, of_workers, lambda: held_out).sha256 != extractor.sha256


def test_a_users_own_network_and_runs_without_privacy_judge_by_all(dataset: DatasetFile) -> None:
    held_out = Others()
    for settings in (OPEN, PRIVATE.but(extractor="mine.pt")):
        assert judging(settings, held_out) is held_out
    assert judging(PRIVATE, None) is None


@pytest.mark.parametrize("folder", ["data", "data/test", "."])
def test_held_out_samples_do_not_lie_where_workers_samples_do(
    dataset: DatasetFile, tmp_path: Path, folder: str
) -> None:
    data, named = tmp_path / "data", str(tmp_path / folder)
    with pytest.raises(BadInput, match=r"--held-out .*: workers train on samples that lie there"):
        open_held_out(PRIVATE.but(held_out=named), dataset, data)
    assert open_held_out(OPEN.but(held_out=named), dataset, data) is not None
    beside = PRIVATE.but(held_out=str(tmp_path / "beside"))
    assert open_held_out(beside, dataset, data) is not None
