"""Programs that take a run's scalars and pictures while it trains: TensorBoard, W&B, MLflow.

They are told losses, scores, the settings that all ranks share, and grids of generated samples:
nothing of the data, of machines or of paths. W&B stays offline, and MLflow writes into the run's
folder, unless `WANDB_MODE=online` or `MLFLOW_TRACKING_URI` is set.
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
    """What a tracker does; whatever it raises, training goes on without it."""

    def scalars(self, iteration: int, values: Mapping[str, float]) -> None:
        """Takes finite numbers by name, such as `loss/generator`."""

    def grid(self, iteration: int, png: bytes) -> None:
        """Takes a picture of generated samples, a PNG file."""

    def close(self) -> None:
        """Writes or sends what is still in memory."""


class _TensorBoard:
    """Writes event files into the run's folder."""

    def __init__(self, run: Path, settings: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        del settings
        threading.excepthook = _telling_no_writer(threading.excepthook)
        self._writer = SummaryWriter(str(run / "tensorboard"))
        self.close = self._writer.close

    def scalars(self, iteration: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, iteration)

    def grid(self, iteration: int, png: bytes) -> None:
        import numpy as np

        pixels = np.asarray(_picture(png))
        self._writer.add_image("samples", pixels, iteration, dataformats="HWC")


def _telling_no_writer(tell: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Leaves out errors of TensorBoard's own thread, which its next call raises once more."""

    def hook(about: Any) -> None:
        if not type(about.thread).__module__.startswith("tensorboard."):
            tell(about)

    return hook


class _WandB:
    """Logs to Weights & Biases; offline, into the run's folder, unless `WANDB_MODE` is set."""

    def __init__(self, run: Path, settings: Mapping[str, Any]) -> None:
        import wandb

        # Neither the terminal's text, nor code, nor what it finds out about the machine.
        kept_back = wandb.Settings(
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
            project=project, name=run.name, dir=str(run), config={**settings}, settings=kept_back
        )
        self._run.define_metric("*", step_metric="iteration")  # scores come late
        self._wandb = wandb

    def scalars(self, iteration: int, values: Mapping[str, float]) -> None:
        self._run.log({"iteration": iteration, **values})

    def grid(self, iteration: int, png: bytes) -> None:
        self._run.log({"iteration": iteration, "samples": self._wandb.Image(_picture(png))})

    def close(self) -> None:
        self._run.finish()
        self._wandb.teardown()  # ends its own process, which writes the rest first


class _MLflow:
    """Logs to `MLFLOW_TRACKING_URI`, or into the run's folder if that is not set."""

    def __init__(self, run: Path, settings: Mapping[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # else it refuses folders
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        folder = (run / "mlflow").absolute().as_uri()
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI", folder))
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "mdgan")
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
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
"""All trackers, by the names of `--tracker`, of the package that each needs, and of its extra."""


class TrackerNames(tuple[str, ...]):
    """Names of trackers; as text, with commas between them."""

    @classmethod
    def parse(cls, text: str) -> "TrackerNames":
        """Reads names with commas between them, or raises ValueError if one is not known."""
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
    """Tells all trackers of a run, each from a thread of its own; none holds up training."""

    def __init__(self, names: Iterable[str], run: Path, settings: Mapping[str, Any]) -> None:
        self._threads = [_TrackerThread(name, run, settings) for name in names]

    def take(self, row: RecordedRow) -> None:
        """Tells what a row of losses or scores says."""
        match row:
            case Losses():
                losses = {f"loss/{name}": loss for name, loss in row.both.items()}
                self.scalars(row.iteration, {**losses, "workers": row.workers})
            case ScoresRow():
                scores = {f"scores/{name}": value for name, value in row.scores.items()}
                self.scalars(row.iteration, scores)

    def scalars(self, iteration: int, values: Mapping[str, float | None]) -> None:
        """Tells numbers by name, and leaves out those that are not finite."""
        finite = {name: x for name, x in values.items() if x is not None and isfinite(x)}
        for thread in self._threads:
            thread.tell(lambda tracker: tracker.scalars(iteration, finite))

    def grid(self, iteration: int, png: bytes) -> None:
        """Tells a picture of generated samples."""
        for thread in self._threads:
            thread.tell(lambda tracker: tracker.grid(iteration, png))

    def close(self) -> None:
        """Gives every tracker some seconds to take what it was told."""
        for thread in self._threads:
            thread.close()


class _TrackerThread:
    """One tracker and its thread; the first failure is logged, and nothing is told any more."""

    def __init__(self, name: str, run: Path, settings: Mapping[str, Any]) -> None:
        self._name = name
        self._over = False
        self._waiting: Queue[Callable[[Tracker], None] | None] = Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._work, args=(run, settings), daemon=True)

    def tell(self, what: Callable[[Tracker], None] | None) -> None:
        if self._over:
            return
        if not self._thread.ident:  # a run that does not begin leaves nothing of it
            self._thread.start()
        try:
            self._waiting.put_nowait(what)
        except Full:
            self._give_up("it is too slow")

    def close(self) -> None:
        if not self._thread.ident:
            return
        self.tell(lambda tracker: tracker.close())
        self.tell(None)
        if not self._over:
            self._thread.join(_CLOSING_SECONDS)
        if self._thread.is_alive() and not self._over:
            _log.warning(
                "%s was not told everything: it took more than %g s", self._name, _CLOSING_SECONDS
            )

    def _work(self, run: Path, settings: Mapping[str, Any]) -> None:
        try:
            tracker = TRACKERS[self._name](run, settings)
            while (what := self._waiting.get()) is not None and not self._over:
                what(tracker)
        except Exception as error:  # of any of these packages
            self._give_up(error)

    def _give_up(self, reason: object) -> None:
        if not self._over:
            words = " ".join(str(reason).split())[:200] or type(reason).__name__
            _log.warning("%s is not told any more: %s; training goes on", self._name, words)
            self._over = True
