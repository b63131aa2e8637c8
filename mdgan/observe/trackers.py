"""Sends a run's scalars and pictures to trackers while it trains: TensorBoard, W&B, MLflow.

Trackers get losses, scores, the settings that all ranks share, and grids of generated samples, but
nothing about data, machines or paths. W&B stays offline unless `WANDB_MODE=online` is set, and
MLflow writes into the run's folder unless `MLFLOW_TRACKING_URI` is set.
"""

import io
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from queue import Full, Queue
from typing import TYPE_CHECKING, Any, Protocol

from mdgan.errors import BadInput
from mdgan.records.rows import Losses, RecordedRow, ScoresRow
from mdgan.spelling import flag

if TYPE_CHECKING:
    from PIL.Image import Image

_log = logging.getLogger(__name__)

_MOST_WAITING = 1000
_CLOSING_SECONDS = 15.0


class Tracker(Protocol):
    """What every tracker provides; if it raises, training goes on without the tracker."""

    def scalars(self, iteration: int, values: Mapping[str, float]) -> None:
        """Takes finite numbers by name, such as `loss/generator`."""

    def grid(self, iteration: int, png: bytes) -> None:
        """Takes a picture of generated samples, a PNG file."""

    def close(self) -> None:
        """Writes or sends everything that is still in memory."""


class _TensorBoard:
    """Writes event files into the run's folder."""

    def __init__(self, run: Path, settings: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        del settings
        threading.excepthook = _without_writer_errors(threading.excepthook)
        self._writer = SummaryWriter(str(run / "tensorboard"))
        self.close = self._writer.close

    def scalars(self, iteration: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, iteration)

    def grid(self, iteration: int, png: bytes) -> None:
        import numpy as np

        pixels = np.asarray(_picture(png))
        self._writer.add_image("samples", pixels, iteration, dataformats="HWC")


def _without_writer_errors(tell: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wraps an excepthook to skip errors of TensorBoard's thread: its next call raises them."""

    def hook(about: Any) -> None:
        if not type(about.thread).__module__.startswith("tensorboard."):
            tell(about)

    return hook


class _WandB:
    """Logs to Weights & Biases; offline, into the run's folder, unless `WANDB_MODE` is set."""

    def __init__(self, run: Path, settings: Mapping[str, Any]) -> None:
        import wandb

        # W&B must not send the terminal's text, code, or facts about the machine.
        private = wandb.Settings(
            mode=os.environ.get("WANDB_MODE", "offline"),
            console="off",
            silent=True,
            disable_git=True,
            disable_code=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        )
        project = os.environ.get("WANDB_PROJECT", "mdgan")
        self._run = wandb.init(
            project=project, name=run.name, dir=str(run), config={**settings}, settings=private
        )
        self._run.define_metric("*", step_metric="iteration")  # as scores come later than losses
        self._wandb = wandb

    def scalars(self, iteration: int, values: Mapping[str, float]) -> None:
        self._run.log({"iteration": iteration, **values})

    def grid(self, iteration: int, png: bytes) -> None:
        self._run.log({"iteration": iteration, "samples": self._wandb.Image(_picture(png))})

    def close(self) -> None:
        self._run.finish()
        self._wandb.teardown()  # ends W&B's process, which writes the rest first


class _MLflow:
    """Logs to `MLFLOW_TRACKING_URI`, or into the run's folder if that is not set."""

    def __init__(self, run: Path, settings: Mapping[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # else MLflow refuses folders
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        folder = (run / "mlflow").absolute().as_uri()
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI", folder))
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "mdgan")
        old = self._client.get_experiment_by_name(name)
        experiment = old.experiment_id if old else self._client.create_experiment(name)
        self._id = self._client.create_run(experiment, run_name=run.name).info.run_id
        self._metric = Metric
        self._client.log_batch(self._id, params=[Param(n, str(v)) for n, v in settings.items()])

    def scalars(self, iteration: int, values: Mapping[str, float]) -> None:
        now = round(1e3 * time.time())
        metrics = [self._metric(name, value, now, iteration) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def grid(self, iteration: int, png: bytes) -> None:
        self._client.log_image(self._id, _picture(png), f"samples/{iteration:07d}.png")

    def close(self) -> None:
        self._client.set_terminated(self._id)


def _picture(png: bytes) -> "Image":
    from PIL import Image

    with Image.open(io.BytesIO(png)) as picture:
        return picture.convert("RGB")


TRACKERS: dict[str, Callable[[Path, Mapping[str, Any]], Tracker]] = {
    "tensorboard": _TensorBoard,
    "wandb": _WandB,
    "mlflow": _MLflow,
}
"""All trackers by name: in `--tracker`, of the package that each needs, and of mdgan's extra."""


class TrackerNames(tuple[str, ...]):
    """Names of trackers; `str` joins them by commas."""

    @classmethod
    def parse(cls, text: str) -> "TrackerNames":
        """Reads names with commas between them; ValueError if one is no tracker's."""
        names = cls(text.split(","))
        for name in names:
            if name not in TRACKERS:
                raise ValueError(f"{name!r} is none of {', '.join(TRACKERS)}")
        return names

    def __str__(self) -> str:
        return ",".join(self)


def check_trackers(names: Iterable[str]) -> None:
    """Raises BadInput if the package of a tracker is missing; imports and creates nothing."""
    for name in names:
        if find_spec(name) is None:
            why = f"needs the {name} package: pip install 'mdgan[{name}]'"
            raise BadInput(flag("tracker", name), why)


class Trackers:
    """All trackers of a run. Each has its own thread, so none delays training."""

    def __init__(self, names: Iterable[str], run: Path, settings: Mapping[str, Any]) -> None:
        self._threads = [_TrackerThread(name, run, settings) for name in names]

    def take(self, row: RecordedRow) -> None:
        """Sends a row of losses or scores to all trackers."""
        match row:
            case Losses():
                losses = {f"loss/{name}": loss for name, loss in row.both.items()}
                self.scalars(row.iteration, {**losses, "workers": row.workers})
            case ScoresRow():
                scores = {f"scores/{name}": value for name, value in row.scores.items()}
                self.scalars(row.iteration, scores)

    def scalars(self, iteration: int, values: Mapping[str, float | None]) -> None:
        """Sends numbers by name to all trackers, without those that are not finite."""
        finite = {name: x for name, x in values.items() if x is not None and isfinite(x)}
        for thread in self._threads:
            thread.tell(lambda tracker: tracker.scalars(iteration, finite))

    def grid(self, iteration: int, png: bytes) -> None:
        """Sends a picture of generated samples to all trackers."""
        for thread in self._threads:
            thread.tell(lambda tracker: tracker.grid(iteration, png))

    def close(self) -> None:
        """Gives every tracker some seconds to process what waits for it."""
        for thread in self._threads:
            thread.close()


class _TrackerThread:
    """One tracker and its thread; its first failure is logged, and then it gets nothing more."""

    def __init__(self, name: str, run: Path, settings: Mapping[str, Any]) -> None:
        self._name = name
        self._has_failed = False
        self._waiting: Queue[Callable[[Tracker], None] | None] = Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._work, args=(run, settings), daemon=True)

    def tell(self, job: Callable[[Tracker], None] | None) -> None:
        if self._has_failed:
            return
        if not self._thread.ident:  # started late, so that a run that fails first leaves no files
            self._thread.start()
        try:
            self._waiting.put_nowait(job)
        except Full:
            self._give_up("it is too slow")

    def close(self) -> None:
        if not self._thread.ident:
            return
        self.tell(lambda tracker: tracker.close())
        self.tell(None)
        if not self._has_failed:
            self._thread.join(_CLOSING_SECONDS)
        if self._thread.is_alive() and not self._has_failed:
            _log.warning("%s did not take all records in %g s", self._name, _CLOSING_SECONDS)

    def _work(self, run: Path, settings: Mapping[str, Any]) -> None:
        try:
            tracker = TRACKERS[self._name](run, settings)
            while (job := self._waiting.get()) is not None and not self._has_failed:
                job(tracker)
        except Exception as error:  # the packages may raise anything
            self._give_up(error)

    def _give_up(self, reason: object) -> None:
        if not self._has_failed:
            words = " ".join(str(reason).split())[:200] or type(reason).__name__
            _log.warning("%s gets no more records: %s; training goes on", self._name, words)
            self._has_failed = True
