"""Samples of a Python program as people have them, trained without own models."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mdgan
from tests.processes import QUICK_SETTINGS, REPOSITORY, finish, run_here, start_anew

pytestmark = pytest.mark.usefixtures("quick_start")
SETTINGS: dict[str, Any] = {**QUICK_SETTINGS, "iterations": 2, "world_size": 3, "width": 8}
RANDOM = np.random.default_rng(0)
LABELS = np.arange(24) % 3


def floats(*shape: int) -> Any:
    return RANDOM.uniform(-1, 1, (24, *shape)).astype(np.float32)


def pixels(*shape: int) -> Any:
    return RANDOM.integers(0, 256, (24, *shape), dtype=np.uint8)


@pytest.mark.parametrize(
    ("given", "shape", "says"),
    [
        (floats(6), (6,), "24 vectors of 6 numbers, no classes; architecture: md-gan-mlp"),
        ((floats(2, 20), LABELS), (2, 20), "24 series of 2×20 values, 3 classes; architecture: "),
        ((floats(9, 12), [*"abc"] * 8), (1, 9, 12), "24 pictures of 9×12 pixels, 1 channel, 3 "),
        (
            (pixels(8, 8, 3), LABELS),
            (3, 8, 8),
            "24 pictures of 8×8 pixels, 3 channels, which came last, 3 classes; "
            "architecture: dcgan",
        ),
        (torch.from_numpy(pixels(3, 10, 12)), (3, 10, 12), "architecture: md-gan-mlp"),
        (pixels(8, 8, 8), (1, 8, 8, 8), "24 volumes of 8×8×8 voxels, 1 channel, no classes"),
    ],
    ids=["vectors", "series", "grey", "channels last", "no square", "volumes"],
)
def test_what_people_have_trains_without_models(
    cwd: Path, capsys: pytest.CaptureFixture[str], given: Any, shape: tuple[int, ...], says: str
) -> None:
    run = mdgan.train(given, out="run", **SETTINGS)
    printed = capsys.readouterr().out
    assert says in printed.splitlines()[0]
    assert tuple(run.sample(2).shape) == (2, *shape)
    assert 'mdgan.Run.open("run", data=…).resume(iterations=4)' in printed
    assert "mdgan train" not in printed


@pytest.mark.parametrize(
    ("own", "swap", "rate"),
    [
        ({}, "pairs", 0.0005),
        ({"swap": "means", "discriminator_optimizer": "lr=0.001"}, "means", 0.001),
        ({"architecture": "dcgan"}, "pairs", 0.0002),
        ({"algorithm": "fl-gan"}, None, 0.0005),
    ],
    ids=["suited", "the user's", "the paper's", "another algorithm"],
)
def test_pictures_train_with_settings_that_suit_them_unless_the_user_says_otherwise(
    cwd: Path, own: dict[str, Any], swap: str | None, rate: float
) -> None:
    mdgan.train(pixels(8, 8, 3), out="run", **SETTINGS, **own)
    taken = json.loads((cwd / "run" / "config.json").read_text())
    assert taken.get("swap") == swap
    assert f"lr={rate}," in taken["discriminator_optimizer"]


def test_channels_that_come_last_are_moved(cwd: Path) -> None:
    pictures = pixels(8, 8, 3)
    last, first = mdgan.Data(pictures), mdgan.Data(pictures.transpose(0, 3, 1, 2).copy())
    assert last.sha256 == first.sha256
    assert mdgan.Data(pictures, shape=(8, 8, 3)).shape == (8, 8, 3)


def test_an_architecture_can_be_named(cwd: Path) -> None:
    run = mdgan.train((floats(8, 8), LABELS), out="run", architecture="acgan", **SETTINGS)
    assert tuple(run.sample(3, label=1).shape) == (3, 1, 8, 8)


def test_a_class_is_asked_for_by_its_name(cwd: Path) -> None:
    names = np.array(["cat", "dog", "eel"])[LABELS]
    run = mdgan.train((floats(8, 8), names), out="run", architecture="acgan", **SETTINGS)
    torch.testing.assert_close(run.sample(3, label="dog"), run.sample(3, label=1))
    with pytest.raises(mdgan.BadInput) as refused:
        run.sample(3, label="ape")
    assert str(refused.value) == "label ape: must be cat, dog, eel, or one of 0-2"
    asked = run_here("sample", "run", "-n", "3", "--class", "dog", "-o", "dogs.npz", cwd=cwd)
    assert asked.status == 0, asked
    drawn = torch.from_numpy(np.load(cwd / "dogs.npz")["images"])
    torch.testing.assert_close(drawn, run.sample(3, label=1))


SCRIPT = """
import numpy as np
from torch import nn

import mdgan


class Flat(nn.Linear):
    def forward(self, z):
        return super().forward(z)


def generator():
    return Flat(8, 64)


def discriminator():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 1))


images = np.linspace(-1, 1, 24 * 64, dtype=np.float32).reshape(24, 1, 8, 8)
mdgan.train(images, generator=GENERATOR, discriminator=discriminator, z_dim=8, quiet=True)
"""


@pytest.mark.parametrize("build", ["generator", "lambda: generator()"])
def test_a_wrong_shape_names_the_line_of_the_program(cwd: Path, build: str) -> None:
    (cwd / "mine.py").write_text(SCRIPT.replace("GENERATOR", build))
    ended = finish(start_anew([sys.executable, "mine.py"], cwd, PYTHONPATH=str(REPOSITORY)))
    said = "mine.py: Generator gives [2, 64] for 2 vectors of noise, SHAPE says [2, 1, 8, 8] "
    assert ended.errors.splitlines()[-1] == f"BadInput: {said}(mine.py:9)"


def frame(rows: int) -> Any:
    pandas = pytest.importorskip("pandas")
    age = RANDOM.integers(20, 80, rows)
    return pandas.DataFrame(
        {
            "patient_id": np.arange(1000, 1000 + rows),
            "age": age,
            "pressure": np.round(age + RANDOM.normal(80, 5, rows), 1),
            "sex": RANDOM.choice(["female", "male"], rows),
            "ill": np.where(age > 50, "yes", "no"),
        }
    )


def test_a_data_frame_is_rows_of_a_table(
    cwd: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SETTINGS, "width": 16}
    data = mdgan.Data(frame(60), frame(40), label="ill")
    run = mdgan.train(data, out="run", **settings)
    output = capsys.readouterr().out.splitlines()[0]
    assert output.startswith("data: 60 and 40 rows of a table with 4 columns, ill to be predicted")
    assert "left out: patient_id: " in output
    assert output.endswith("; architecture: table")
    assert run.resume(iterations=3, quiet=True).iteration == 3
    rows = run.sample(5)
    assert [*rows.columns] == ["age", "pressure", "sex", "ill"]
    assert [*map(str, rows.dtypes[:2])] == ["int64", "float64"]
    assert len(rows) == 5
    assert set(rows["ill"]) <= {"yes", "no"}
    assert torch.is_tensor(run.sample(5, raw=True))
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "pandas", None)
        with pytest.raises(mdgan.BadInput, match=r"pip install 'mdgan\[tables\]'; raw=True gives"):
            run.sample(5)
    with pytest.raises(mdgan.BadInput, match="held_out: must be a DataFrame with the columns"):
        _ = mdgan.Data(frame(60), frame(60)[["age"]]).about
    with pytest.raises(mdgan.BadInput, match="rows of a table have models of their own"):
        mdgan.train(data, generator=nn.Identity, discriminator=nn.Identity)


def test_a_missing_z_dim_is_named(cwd: Path) -> None:
    def generator() -> nn.Module:
        return nn.Sequential(nn.Linear(32, 64), nn.Unflatten(1, (1, 8, 8)))

    def discriminator() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 1))

    models: dict[str, Any] = {"generator": generator, "discriminator": discriminator}
    with pytest.raises(
        mdgan.BadInput, match=r"^z_dim: was not given, .*; give z_dim=, .*: Generator fails"
    ) as refused:
        mdgan.train(floats(8, 8), quiet=True, iterations=2, **models)
    assert refused.value._render_traceback_() == [f"BadInput: {refused.value}"]
