"""Which network scores, its training samples, its cache, and its way to other machines."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mdgan.data.dataset_file import DatasetFile, load
from mdgan.data.partitioner import Partitioner
from mdgan.errors import BadInput
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.metrics.chosen import (
    cached_classifier,
    judging,
    make_extractor,
    open_held_out,
    pack,
    unpack,
)
from mdgan.metrics.classifier import Classifier, random_network, train_classifier
from mdgan.metrics.distances import Moments, frechet_distance
from mdgan.metrics.extractor import Extractor
from mdgan.metrics.network_files import from_file
from tests.claims.registry import claim
from tests.unit.metrics.small import SHAPE, MoreStripes, OneClass, Stripes

OPEN = MDGANSettings()
PRIVATE = MDGANSettings(dp_noise=1.0, dp_delta=0.1)
SHAPE_OF_DIGITS = (1, 8, 8)
SHA256_OF_RANDOM = "3f0fba4b30e57970a99e01066591e0b53ab977f6321bed102551c33359e5871f"
STRIPES = """
from torch import nn
from tests.unit.metrics.small import Stripes

SHAPE, Z_DIM = (1, 4, 4), 5
Generator = Discriminator = nn.Identity


def Partitioner(folder):
    return Stripes()
"""
NETWORKS = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(16, 5))

class Other(Net):
    pass
"""
IMAGES = MoreStripes().images(torch.arange(30))


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
    (tmp_path / "stripes.py").write_text(STRIPES)
    return load("stripes", str(tmp_path))


def of_workers() -> Partitioner:
    raise AssertionError("workers' samples are not looked at")


def which(half: Partitioner) -> set[int]:
    pixels = half.images(torch.arange(len(half)))[:, 0, 0, 0]
    return set(((pixels + 1) * 100).round().long().tolist())


def test_one_half_of_each_class_trains_and_the_other_judges(dataset: DatasetFile) -> None:
    held_out = Others()
    extractor = make_extractor(PRIVATE, dataset, of_workers, lambda: held_out)
    judges = judging(PRIVATE, dataset, held_out)
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
        assert judging(settings, dataset, held_out) is held_out
    assert judging(PRIVATE, dataset, None) is None


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


@pytest.mark.parametrize("is_there", [True, False])
def test_a_folder_that_cannot_be_used_is_named_as_the_user_did(
    tmp_path: Path, is_there: bool
) -> None:
    named = tmp_path / "held"
    if is_there:
        named.mkdir()
        (named / "1.png").write_text("no picture")
    with pytest.raises(BadInput, match="--held-out") as refused:
        open_held_out(OPEN.but(held_out=str(named)), load("folder", None), tmp_path)
    assert "--data-dir" not in str(refused.value)


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one for every training."""
    calls: list[str] = []

    def counted(name: str, source: Partitioner, held_out: Partitioner | None) -> Extractor:
        calls.append(name)
        return train_classifier(name, source, held_out)

    monkeypatch.setattr("mdgan.metrics.classifier.train_classifier", counted)
    return calls


@pytest.mark.parametrize("damage", ["none", "empty", "cut", "text", "other key", "folder"])
def test_a_network_is_trained_once_but_again_if_its_file_is_damaged(
    damage: str, dataset: DatasetFile, tmp_path: Path, trainings: list[str]
) -> None:
    first = cached_classifier(dataset, Stripes(), MoreStripes())
    (path,) = (tmp_path / "cache" / "mdgan" / "classifiers").iterdir()
    assert path.name.startswith("stripes-")
    whole = path.read_bytes()
    key = whole.index(path.stem.partition("-")[2].encode())
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        damaged = {
            "none": whole,
            "empty": b"",
            "cut": whole[: len(whole) // 2],
            "text": b"<html>quota exceeded</html>",
            "other key": whole[:key] + b"0" * 64 + whole[key + 64 :],
        }
        path.write_bytes(damaged[damage])
    again = cached_classifier(dataset, Stripes(), MoreStripes())
    assert len(trainings) == (1 if damage == "none" else 2)
    assert again.describe() == first.describe()
    assert torch.equal(again(IMAGES).values, first(IMAGES).values)
    if damage != "folder":
        assert path.read_bytes() == whole


class OtherLabels(Stripes):
    def read(self, data_dir: Path) -> tuple[Tensor, Tensor]:
        images, labels = super().read(data_dir)
        labels[7] = (labels[7] + 1) % 3
        return images, labels


class OtherImages(Stripes):
    seed = 5


def test_other_data_and_another_file_get_networks_of_their_own(
    dataset: DatasetFile, tmp_path: Path, trainings: list[str]
) -> None:
    (tmp_path / "stripes.py").write_text(STRIPES + "\n")
    for kind in (dataset, load("stripes", str(tmp_path))):
        cached_classifier(kind, Stripes(), MoreStripes())
    for source in (OtherLabels(), OtherImages()):
        cached_classifier(dataset, source, MoreStripes())
    for held_out in (None, OtherImages()):
        cached_classifier(dataset, Stripes(), held_out)
    assert len(trainings) == len(list((tmp_path / "cache").rglob("*.safetensors"))) == 6


def test_a_cache_that_cannot_be_written_is_done_without(
    dataset: DatasetFile, tmp_path: Path, trainings: list[str]
) -> None:
    (tmp_path / "cache").write_text("in the way")
    assert cached_classifier(dataset, Stripes(), MoreStripes()).num_classes == 3
    assert len(trainings) == 1


@pytest.mark.parametrize("cache_home", ["relative", ""])
def test_a_cache_folder_is_the_users_home_unless_it_is_absolute(
    cache_home: str, dataset: DatasetFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", cache_home)
    cached_classifier(dataset, Stripes(), MoreStripes())
    assert len(list((tmp_path / "home" / ".cache" / "mdgan" / "classifiers").iterdir())) == 1
    assert not (tmp_path / "relative").exists()


@pytest.fixture(scope="module")
def classifier() -> Extractor:
    return train_classifier("stripes", Stripes(), MoreStripes())


def test_the_classifier_travels_with_its_weights(classifier: Extractor) -> None:
    fields, tensors = pack(classifier)
    state = torch.get_rng_state()
    sent = {name: tensor.clone() for name, tensor in tensors.items()}
    arrived = unpack(json.loads(json.dumps(fields)), sent, None)
    for tensor in sent.values():
        tensor.zero_()
    assert torch.equal(torch.get_rng_state(), state)
    assert arrived.describe() == classifier.describe()
    there, here = arrived(IMAGES), classifier(IMAGES)
    assert torch.equal(there.values, here.values)
    assert there.probabilities is not None
    assert here.probabilities is not None
    assert torch.equal(there.probabilities, here.probabilities)


def test_weights_that_are_not_the_servers_are_refused(classifier: Extractor) -> None:
    fields, tensors = pack(classifier)
    bias = tensors["logits.bias"]
    for damaged in (
        {},
        {**tensors, "logits.bias": torch.zeros(7)},
        {**tensors, "another": torch.zeros(7)},
        {**tensors, "logits.bias": bias + 1e-6},
    ):
        with pytest.raises(BadInput, match=r"does not fit .* same version") as told:
            unpack(fields, damaged, None)
        assert len(str(told.value).splitlines()) == 1
    with pytest.raises(BadInput, match=r"names mine\.pt; give every rank the same extractor"):
        unpack(fields, tensors, Path("mine.pt"))


@claim("no-pickle", "No dataset file or extractor comes from another machine")
def test_a_users_file_stays_where_it_is(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(NETWORKS)
    extractor = from_file(Path(f"{file}:Net"), SHAPE)
    fields, tensors = pack(extractor)
    assert tensors == {}
    arrived = unpack(json.loads(json.dumps(fields)), tensors, Path(f"{file}:Net"))
    assert torch.equal(arrived(IMAGES).values, extractor(IMAGES).values)
    with pytest.raises(BadInput, match=r"mine\.py:Net .* does not travel; copy its file"):
        unpack(fields, tensors, None)
    with pytest.raises(BadInput, match=r"…:Other, the server's is .*…:Net"):
        unpack(fields, tensors, Path(f"{file}:Other"))
    file.write_text(NETWORKS + "\n")
    with pytest.raises(BadInput, match="copy the server's file") as caught:
        unpack(fields, tensors, Path(f"{file}:Net"))
    assert extractor.sha256[:12] in str(caught.value)


# The classifier learns in seconds, the same way every time, for images of any shape.


@pytest.fixture(scope="module")
def digits() -> Extractor:
    dataset = load("digits", None)
    # Other tests of this process score digits, too.
    return cached_classifier(dataset, dataset.open(Path()), dataset.open_held_out(Path()))


def everything(source: Partitioner) -> Tensor:
    return source.images(torch.arange(len(source)))


def test_digits_are_told_apart(digits: Extractor) -> None:
    assert digits.accuracy is not None
    assert digits.accuracy >= 0.97
    held_out = load("digits", None).open_held_out(Path())
    probabilities = digits(everything(held_out)).probabilities
    assert probabilities is not None
    measured = (probabilities.argmax(1) == held_out.labels).double().mean()
    assert float(measured) == pytest.approx(digits.accuracy)


def test_the_same_data_give_the_same_weights_and_random_numbers_are_left() -> None:
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first = train_classifier("stripes", Stripes(), MoreStripes())
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    with torch.no_grad():
        again = train_classifier("stripes", Stripes(), MoreStripes())
    assert first.sha256 == again.sha256
    assert torch.equal(first(everything(Stripes())).values, again(everything(Stripes())).values)


def test_without_held_out_samples_a_tenth_is_kept_back() -> None:
    class Counted(Stripes):
        """Counts how often each sample is read, and how many are at most at once."""

        def __init__(self) -> None:
            super().__init__()
            self.times_read = torch.zeros(len(self), dtype=torch.int64)
            self.most_at_once = 0

        def images(self, indices: Tensor) -> Tensor:
            self.times_read += torch.bincount(indices, minlength=len(self))
            self.most_at_once = max(self.most_at_once, len(indices))
            return super().images(indices)

    source = Counted()
    assert train_classifier("stripes", source, None).accuracy == 1.0
    assert (
        int((source.times_read <= 2).sum()) == 9
    )  # once for the accuracy, once for the shape at most
    assert source.most_at_once == 64


@pytest.mark.parametrize("settings", [OPEN, PRIVATE, OPEN.but(partition="none")])
def test_without_classes_the_network_has_random_weights(
    dataset: DatasetFile, settings: MDGANSettings
) -> None:
    extractor = make_extractor(settings, dataset, OneClass, OneClass)
    assert extractor.kind == "random"
    held_out = OneClass()
    assert judging(settings, dataset, held_out) is held_out


def test_random_weights_are_the_same_for_everybody() -> None:
    """Else scores of different machines and versions would not compare."""
    first, second = random_network(SHAPE_OF_DIGITS), random_network(SHAPE_OF_DIGITS)
    assert first.sha256 == second.sha256
    assert first.sha256 == SHA256_OF_RANDOM
    assert unpack(json.loads(json.dumps(pack(first)[0])), {}, None).describe() == first.describe()


def test_random_weights_tell_spoilt_digits_from_real_ones() -> None:
    samples = everything(load("digits", None).open(Path()))
    extractor, others = random_network(SHAPE_OF_DIGITS), samples[1::2]
    real = Moments.of(extractor(samples[::2]).values)
    noise = torch.randn(others.shape, generator=torch.Generator().manual_seed(0))

    def distance(images: Tensor) -> float:
        return frechet_distance(real, Moments.of(extractor(images.clamp(-1, 1)).values))

    spoilt = [others, others + 0.3 * noise, others + noise, 2 * noise]
    results = [distance(images) for images in spoilt]
    assert results == sorted(results)
    assert results[0] > 0.05  # a number that tables show
    assert results[1] > 2 * results[0]
    assert results[2] > 10 * results[0]
    assert distance(torch.nn.functional.avg_pool2d(others, 3, 1, 1)) > 20 * results[0]


@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (3, 2, 5), (1, 8, 8), (1, 28, 28), (3, 32, 32), (2, 1, 40), (3, 64, 48), (4, 9, 7)],
)
def test_any_shape(shape: tuple[int, int, int]) -> None:
    features, logits = Classifier(shape, 5)(torch.randn(3, *shape))
    assert features.shape == (3, 64)
    assert logits.shape == (3, 5)


@pytest.mark.parametrize("shape", [(3, 65, 64), (3, 256, 256), (1, 1, 1000), (3, 300, 200)])
def test_large_images_cost_no_more_than_those_of_64(shape: tuple[int, int, int]) -> None:
    model = Classifier(shape, 5)
    assert model(torch.randn(2, *shape))[0].shape == (2, 64)
    assert model.num_multiplications <= Classifier((3, 64, 64), 5).num_multiplications
