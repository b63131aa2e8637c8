"""Trackers store what they get, and none of them can stop a training."""

import io
import logging
import sys
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mdgan.cli import main
from mdgan.errors import BadInput
from mdgan.observe import trackers as module
from mdgan.observe.settings import RecordSettings
from mdgan.observe.trackers import TRACKERS, TrackerNames, Trackers, check_trackers

SETTINGS = {"algorithm": "mdgan", "batch_size": 10}


def png(mode: str = "RGB") -> tuple[bytes, Any]:
    """A picture as a file, and its pixels in colour."""
    gray = np.arange(12 * 20, dtype=np.uint8).reshape(12, 20)
    pixels = gray if mode == "L" else np.stack([gray, gray.T.reshape(12, 20), 255 - gray], axis=-1)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue(), pixels if mode == "RGB" else np.stack([gray] * 3, axis=-1)


def pixels_of(data: bytes | Path) -> Any:
    with Image.open(io.BytesIO(data) if isinstance(data, bytes) else data) as shown:
        return np.asarray(shown.convert("RGB"))


def track(name: str, run: Path, mode: str = "RGB") -> Any:
    """Tells a tracker of two iterations and a picture, whose pixels it gives."""
    pytest.importorskip(name, reason="an optional package")
    picture, pixels = png(mode)
    nothing = {"none": None, "nan": float("nan"), "infinite": float("-inf")}
    with warnings.catch_warnings():
        # They work with whatever protobuf and numpy are installed; their quarrels are not ours.
        warnings.simplefilter("ignore")
        trackers = Trackers([name], run, SETTINGS)
        trackers.scalars(50, {"loss/generator": 0.75, "loss/discriminator": 1.25, **nothing})
        trackers.scalars(100, {"loss/generator": 0.5})
        trackers.grid(100, picture)
        trackers.close()
    return pixels


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_tensorboard_has_scalars_and_pictures(tmp_path: Path, mode: str) -> None:
    pixels = track("tensorboard", tmp_path, mode)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(tmp_path / "tensorboard"))
        events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["loss/discriminator", "loss/generator"]
    told = [(event.step, event.value) for event in events.Scalars("loss/generator")]
    assert told == [(50, 0.75), (100, 0.5)]
    (image,) = events.Images("samples")
    assert image.step == 100
    assert np.array_equal(pixels_of(image.encoded_image_string), pixels)


def test_mlflow_writes_into_the_folder_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    pixels = track("mlflow", tmp_path)
    from mlflow.tracking import MlflowClient

    client = MlflowClient((tmp_path / "mlflow").as_uri())
    experiment = client.get_experiment_by_name("mdgan")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params == {"algorithm": "mdgan", "batch_size": "10"}
    assert run.info.status == "FINISHED"
    assert run.data.tags == {"mlflow.runName": tmp_path.name}
    history = client.get_metric_history(run.info.run_id, "loss/generator")
    assert [(metric.step, metric.value) for metric in history] == [(50, 0.75), (100, 0.5)]
    assert sorted(run.data.metrics) == ["loss/discriminator", "loss/generator"]
    (picture,) = tmp_path.rglob("0000100.png")
    assert np.array_equal(pixels_of(picture), pixels)


@pytest.mark.slow
def test_wandb_stays_offline_and_tells_nothing_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr(module, "_CLOSING_SECONDS", 300.0)  # its service starts slowly
    pixels = track("wandb", tmp_path)
    (log,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    content = log.read_bytes()
    for told in (b"batch_size", b"loss/generator", b"iteration", b"0.75"):
        assert told in content
    for private in (b"nan", str(tmp_path).encode(), sys.executable.encode(), b"requirements"):
        assert private not in content
    (picture,) = tmp_path.rglob("media/images/*.png")
    assert np.array_equal(pixels_of(picture), pixels)


class Odd:
    """A tracker that does what the test says when it is told numbers."""

    def __init__(self, run: Path, settings: Mapping[str, Any]) -> None:
        self.run = run

    def scalars(self, iteration: int, values: Mapping[str, float]) -> None:
        raise OSError(f"no route\nto host at {iteration}")

    def grid(self, iteration: int, picture: bytes) -> None:
        (self.run / "told").write_bytes(picture)

    def close(self) -> None:
        (self.run / "closed").touch()


def offer(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    monkeypatch.setitem(TRACKERS, "odd", make)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def test_a_tracker_that_fails_is_told_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    offer(monkeypatch, Odd)
    Trackers(["odd"], tmp_path, {}).close()  # of a run that did not begin
    trackers = Trackers(["odd"], tmp_path, {})
    for iteration in range(3):
        trackers.scalars(iteration, {"loss": 1.0})
    trackers.close()
    trackers.grid(5, b"")
    assert warned(caplog) == ["odd gets no more records: no route to host at 0; training goes on"]
    assert list(tmp_path.iterdir()) == []


def test_a_slow_tracker_does_not_hold_up_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    goes_on = threading.Event()

    class Slow(Odd):
        def scalars(self, iteration: int, values: Mapping[str, float]) -> None:
            goes_on.wait(60)

    offer(monkeypatch, Slow)
    monkeypatch.setattr(module, "_CLOSING_SECONDS", 0.01)
    first, second = Trackers(["odd"], tmp_path, {}), Trackers(["odd"], tmp_path, {})
    for iteration in range(module._MOST_WAITING + 2):
        first.scalars(iteration, {"loss": 1.0})
    second.scalars(1, {"loss": 1.0})
    second.close()
    goes_on.set()
    assert warned(caplog) == [
        "odd gets no more records: it is too slow; training goes on",
        "odd did not take all records in 0.01 s",
    ]


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_without_the_package_the_way_out_is_told(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(BadInput) as caught:
        check_trackers([name])
    way_out = f"needs the {name} package: pip install 'mdgan[{name}]'"
    assert str(caught.value) == f"--tracker {name}: {way_out}"


def test_a_package_that_does_not_load_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow.entities", None)
    trackers = Trackers(["mlflow"], tmp_path / "run", {})
    trackers.scalars(1, {"loss": 1.0})
    trackers.close()
    (line,) = warned(caplog)
    assert line.startswith("mlflow gets no more records: ")
    assert not (tmp_path / "run").exists()


def test_names_are_read_and_written(capsys: pytest.CaptureFixture[str]) -> None:
    settings = RecordSettings.read({"tracker": "tensorboard,wandb,tensorboard"})
    assert settings.trackers() == ("tensorboard", "wandb")
    assert settings.as_json()["tracker"] == "tensorboard,wandb,tensorboard"
    assert RecordSettings.read(settings.as_json()) == settings
    assert RecordSettings().trackers() == ()
    assert str(TrackerNames(["mlflow"])) == "mlflow"
    with pytest.raises(SystemExit) as ended:
        main(["train", "--dry-run", "--tracker", "wandb", "--tracker", "neptune"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "mdgan: --tracker wandb,neptune: 'neptune' is none of tensorboard, wandb, mlflow\n"
    )


def test_an_error_in_a_thread_of_tensorboard_is_told_once_and_others_as_before() -> None:
    told: list[object] = []
    hook = module._without_writer_errors(told.append)
    writer = type("Writer", (threading.Thread,), {"__module__": "tensorboard.summary.writer"})
    hook(SimpleNamespace(thread=writer()))
    hook(other := SimpleNamespace(thread=threading.Thread()))
    assert told == [other], "the next call raises the other"
