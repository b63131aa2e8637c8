import io
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mdgan.errors import BadInput
from mdgan.observe.tensorboard import TensorBoardWriter, check_tensorboard

MISSING = "--tensorboard: needs the tensorboard package: pip install 'mdgan[tensorboard]'"


def read_back(folder: Path) -> Any:
    pytest.importorskip("tensorboard", reason="an optional package")
    with warnings.catch_warnings():
        # It reads with whatever protobuf and numpy are installed; their quarrels are not ours.
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder))
        events.Reload()
    return events


@pytest.fixture
def writer(tmp_path: Path) -> TensorBoardWriter:
    pytest.importorskip("tensorboard", reason="an optional package")
    return TensorBoardWriter(tmp_path / "run" / "tensorboard")


def test_scalars_come_back_by_iteration(tmp_path: Path, writer: TensorBoardWriter) -> None:
    writer.scalars(50, {"loss/generator": 0.75, "loss/discriminator": 1.25})
    writer.scalars(100, {"loss/generator": 0.5})
    writer.close()
    events = read_back(tmp_path / "run" / "tensorboard")
    assert sorted(events.Tags()["scalars"]) == ["loss/discriminator", "loss/generator"]
    told = [(event.step, event.value) for event in events.Scalars("loss/generator")]
    assert told == [(50, 0.75), (100, 0.5)]


def test_what_is_no_number_is_left_out(tmp_path: Path, writer: TensorBoardWriter) -> None:
    nothing = {"none": None, "nan": float("nan"), "infinite": float("-inf")}
    writer.scalars(1, {**nothing, "zero": 0.0})
    writer.close()
    assert read_back(tmp_path / "run" / "tensorboard").Tags()["scalars"] == ["zero"]


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_grid_comes_back_pixel_for_pixel(
    tmp_path: Path, writer: TensorBoardWriter, mode: str
) -> None:
    gray = np.arange(12 * 20, dtype=np.uint8).reshape(12, 20)
    pixels = gray if mode == "L" else np.stack([gray, gray.T.reshape(12, 20), 255 - gray], axis=-1)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    writer.grid(500, buffer.getvalue())
    writer.close()
    (image,) = read_back(tmp_path / "run" / "tensorboard").Images("samples")
    assert image.step == 500
    with Image.open(io.BytesIO(image.encoded_image_string)) as shown:
        wanted = pixels if mode == "RGB" else np.stack([gray] * 3, axis=-1)
        assert np.array_equal(np.asarray(shown), wanted)


def test_without_the_package_the_way_out_is_told_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdgan.observe.tensorboard.find_spec", lambda name: None)
    with pytest.raises(BadInput) as caught:
        check_tensorboard()
    assert str(caught.value) == MISSING
    with pytest.raises(BadInput) as caught:
        TensorBoardWriter(tmp_path / "run")
    assert str(caught.value) == MISSING
    assert not (tmp_path / "run").exists()


def test_a_package_that_does_not_load_counts_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="an optional package")
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(BadInput) as caught:
        TensorBoardWriter(tmp_path / "run")
    assert str(caught.value) == MISSING
    assert not (tmp_path / "run").exists()


def test_with_the_package_nothing_is_made_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="an optional package")
    monkeypatch.chdir(tmp_path)
    check_tensorboard()
    assert list(tmp_path.iterdir()) == []
