"""What `mdgan.Data` takes, what it refuses, and what becomes of models."""

import inspect
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import mdgan
from mdgan.data import dataset_file
from mdgan.interface.dataset_text import dataset_text, samples_text
from mdgan.interface.place import ProgramObjects, placed_objects
from mdgan.models.check import check_models
from tests.processes import environment

PIXELS = torch.arange(3 * 2 * 4, dtype=torch.uint8).reshape(3, 1, 2, 4) * 10
FLOATS = PIXELS.float() / 127.5 - 1
LABELS = torch.tensor([0, 2, 1])


class Pairs(Dataset[tuple[Tensor, int]]):
    def __init__(self, images: Tensor) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], int(LABELS[index])


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        return iter(FLOATS)


def rows(image: str = "image", label: str = "label") -> list[dict[str, Any]]:
    return [{image: x, label: y} for x, y in zip(FLOATS, LABELS, strict=True)]


def generator() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Unflatten(1, (1, 2, 4)))


def discriminator() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(8, 1))


def test_what_a_private_run_keeps_does_not_depend_on_what_samples_show() -> None:
    def kept(given: dict[str, Any], samples: Tensor) -> str:
        objects = ProgramObjects(mdgan.Data(samples), generator, discriminator, 5)
        with placed_objects(given, objects) as placed:
            return Path(placed.settings["datasets_dir"], "own.py").read_text()

    for given in ({"dp_noise": 1.0}, {"dp_epsilon": 8.0}):
        assert kept(given, FLOATS) == kept(given, -FLOATS)
    assert kept({}, FLOATS) != kept({}, -FLOATS)


def text_of(data: mdgan.Data, build: Any = generator) -> str:
    models = {"Generator": build, "Discriminator": discriminator}
    return dataset_text(samples_text(data, data.num_classes), data.shape, 5, models, {})[0]


def opened(data: mdgan.Data, folder: Path) -> dataset_file.DatasetFile:
    (folder / "own.py").write_text(text_of(data))
    return dataset_file.load_path(folder / "own.py")


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(Pairs(FLOATS), id="a torch data set of floats"),
        pytest.param(Pairs(PIXELS), id="a torch data set of pixels"),
        pytest.param(TensorDataset(FLOATS, LABELS), id="tensors"),
        pytest.param(rows(), id="dicts"),
        pytest.param(
            [(x[0].numpy(), y) for x, y in zip(FLOATS.double(), LABELS, strict=True)],
            id="grey arrays",
        ),
        pytest.param(
            [(Image.fromarray(x[0].numpy()), y) for x, y in zip(PIXELS, LABELS, strict=True)],
            id="pictures",
        ),
    ],
)
def test_samples_arrive_as_they_were_given(samples: Any, tmp_path: Path) -> None:
    data = mdgan.Data(samples, held_out=samples)
    dataset = opened(data, tmp_path)
    for source in (dataset.open(Path(data.folder)), dataset.open_held_out(Path(data.folder))):
        torch.testing.assert_close(source.images(torch.arange(3)), FLOATS)
        assert source.labels.tolist() == LABELS.tolist()
    assert (dataset.shape, dataset.num_classes) == ((1, 2, 4), 3)


NAMES = ["dog", "cat", "eel"]


@pytest.mark.parametrize(
    "samples",
    [
        (FLOATS.numpy(), np.array(NAMES)),
        (FLOATS, NAMES),
        [*zip(FLOATS, NAMES, strict=True)],
        [{"image": x, "label": y} for x, y in zip(FLOATS, NAMES, strict=True)],
    ],
    ids=["arrays", "a list of names", "pairs", "dicts"],
)
def test_classes_may_be_texts(samples: Any, tmp_path: Path) -> None:
    data = mdgan.Data(samples, held_out=[(FLOATS[0], "ant")])
    assert data.about == "3 and 1 pictures of 2×4 pixels, 1 channel, 4 classes (ant, cat, dog, eel)"
    source = opened(data, tmp_path).open(Path(data.folder))
    assert source.labels.tolist() == [2, 1, 3]
    assert source.class_names == ("ant", "cat", "dog", "eel")
    assert mdgan.Data(samples).sha256 != mdgan.Data((FLOATS, LABELS)).sha256


@pytest.mark.parametrize(
    ("samples", "kind", "about"),
    [
        (torch.zeros(3, 2, 40) - 1, None, "3 series of 2×40 values, no classes"),
        (torch.zeros(3, 40, 2) - 1, None, "3 series of 40×2 values, no classes"),
        (torch.zeros(3, 2, 40) - 1, "pictures", "3 pictures of 2×40 pixels, 1 channel, no classes"),
        (torch.zeros(3, 8, 8) - 1, "series", "3 series of 8×8 values, no classes"),
        (torch.zeros(3, 40) - 1, "series", "3 series of 1×40 values, no classes"),
        (torch.zeros(3, 6, 8) - 1, None, "3 pictures of 6×8 pixels, 1 channel, no classes"),
        (PIXELS.repeat(1, 1, 1, 2)[:, 0], None, "3 pictures of 2×8 pixels, 1 channel, no classes"),
    ],
)
def test_what_is_long_is_a_series_or_what_the_user_says(
    samples: Tensor, kind: str | None, about: str
) -> None:
    assert mdgan.Data(samples, kind=kind).about == about


def test_a_kind_must_fit() -> None:
    with pytest.raises(mdgan.BadInput, match="kind='serie': must be 'series' or 'pictures'"):
        mdgan.Data(FLOATS, kind="serie")
    with pytest.raises(
        mdgan.BadInput, match=r"kind='series': train\[0\] has the shape \[1, 2, 4\]"
    ):
        _ = mdgan.Data(FLOATS, kind="series").folder


class Broken(Pairs):
    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return super().__getitem__(index * 7)


def test_an_error_of_a_data_set_names_its_line() -> None:
    line = inspect.getsourcelines(Pairs.__getitem__)[1] + 1
    said = rf"train\[1\]: cannot be read: .* \(test_data.py:{line}\)"
    with pytest.raises(mdgan.BadInput, match=said):
        _ = mdgan.Data(Broken(FLOATS)).folder


def test_dicts_may_have_other_keys_and_no_class() -> None:
    data = mdgan.Data(rows(image="img", label="kind"), image="img")
    assert np.load(Path(data.folder) / "train-labels.npy").tolist() == [0, 0, 0]
    assert data.num_classes is None
    assert mdgan.Data(rows("img"), image="img").sha256 != data.sha256


def test_samples_go_with_the_object_that_holds_them() -> None:
    data = mdgan.Data(rows())
    folder = Path(data.folder)
    assert (folder / "train.npy").exists()
    del data
    assert not folder.exists()


ODD = torch.zeros(1, 2, 5)


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        pytest.param(Stream(), "train: Stream has no length", id="no length"),
        pytest.param((x for x in FLOATS), "train: generator has no length", id="a generator"),
        pytest.param([], "train: list has no sample", id="empty"),
        pytest.param(
            [*FLOATS, ODD], r"train\[3\]: is torch.float32 \[1, 2, 5\], must", id="ragged"
        ),
        pytest.param([*FLOATS, PIXELS[0]], r"train\[3\]: is torch.uint8", id="two types"),
        pytest.param([*FLOATS, FLOATS[0] * 3], r"train\[3\]: has values from -3", id="range"),
        pytest.param(
            [FLOATS[0], torch.where(PIXELS[0] == 50, torch.nan, FLOATS[0])],
            r"train\[1\]: cannot be read: its value at \[0, 1, 1\] is nan",
            id="not a number",
        ),
        pytest.param(
            FLOATS.numpy() * np.inf, r"train\[0\]: .* at \[0, 0, 0\] is -inf", id="infinite"
        ),
        pytest.param((FLOATS, LABELS[:2]), "train: has 3 samples, but 2 classes", id="few labels"),
        pytest.param((FLOATS.numpy(), [0] * 4), "train: has 3 samples, but 4", id="many labels"),
        pytest.param([LABELS.reshape(1, 1, 3)], "values are torch.int64", id="integers"),
        pytest.param([torch.zeros(())], r"shape is \[\], must be \[C, H, W\]", id="a number"),
        pytest.param(["cat.png"], r"train\[0\]: cannot be read", id="a path"),
        pytest.param(rows("img"), "no 'image' among img, label", id="another key"),
        pytest.param([(FLOATS[0], -1)], "its class is -1", id="a negative class"),
        pytest.param([(FLOATS[0], 0.5)], "its class is 0.5", id="half a class"),
    ],
)
def test_what_cannot_be_trained_on_is_named(samples: Any, said: str) -> None:
    with pytest.raises(mdgan.BadInput, match=said) as refused:
        _ = mdgan.Data(samples).folder
    assert "\n" not in str(refused.value)


def test_held_out_samples_must_be_like_the_others() -> None:
    with pytest.raises(mdgan.BadInput, match=r"held_out\[0\]: is torch.float32 \[1, 2, 5\]"):
        _ = mdgan.Data(FLOATS, held_out=[ODD]).folder


def test_images_that_fill_half_the_range_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="no value is below 0"):
        _ = mdgan.Data(FLOATS.clamp(min=0)).folder


LOCK = [threading.Lock()]
locked = types.FunctionType((lambda: LOCK[0]).__code__, {"LOCK": LOCK, "__name__": "__main__"})
"""Refers to what no other process can be given, as a function of a notebook may."""


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (generator(), "generator: is one model, but each worker needs its own"),
        ("dcgan", "generator: must be a class, or a function"),
        (locked, "cannot be handed to the processes of the run"),
    ],
)
def test_models_that_cannot_be_used_are_named(build: Any, said: str) -> None:
    with pytest.raises(mdgan.BadInput, match=said):
        text_of(mdgan.Data(FLOATS), build)


ONE = nn.Linear(5, 8)


def same() -> nn.Module:
    return ONE


def elsewhere() -> nn.Module:
    return nn.Linear(5, 8, device="meta")


def test_models_are_checked_before_training(tmp_path: Path) -> None:
    data = mdgan.Data(FLOATS)
    for build, said in ((same, "gives the same model twice"), (elsewhere, "its weights on meta")):
        (tmp_path / "own.py").write_text(text_of(data, build))
        with pytest.raises(mdgan.BadInput, match=said):
            check_models(dataset_file.load_path(tmp_path / "own.py").models)


def test_importing_mdgan_is_quick() -> None:
    program = "import sys, mdgan; mdgan.BadInput, mdgan.train; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], env=environment()).returncode == 0
    assert set(mdgan.__all__) <= set(dir(mdgan))
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = mdgan.trian


@pytest.mark.parametrize("classes", [[0, 2, 1], ["a", "c", "b"], LABELS, np.array(["a", "b", "c"])])
def test_classes_in_place_of_held_out_samples_are_told_from_samples(classes: Any) -> None:
    with pytest.raises(mdgan.BadInput, match=r"has classes in it.*\(samples, classes\)"):
        mdgan.Data(FLOATS, classes)
