"""`mdgan.train`, `start`, `compare`, and ParaGAN's Listing 1: `ScalingManager` and `Estimator`."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.interface.child import output_folder, run_child
from mdgan.interface.follow import Callback, Follower, Reached, Screen
from mdgan.interface.messages import ComparisonRequest, TrainingRequest
from mdgan.interface.place import GivenObjects, placed_objects
from mdgan.interface.run import Run
from mdgan.interface.settings import check, check_functions, plain, refuses_in_python, with_file
from mdgan.settings.config_file import ConfigFile

if TYPE_CHECKING:
    from os import PathLike

    from torch import Tensor

    from mdgan.interface.data import Data, Model
    from mdgan.interface.keywords import Keywords


@refuses_in_python()
def train(
    dataset: "str | Data | Any" = None,
    *,
    generator: "Model | None" = None,
    discriminator: "Model | None" = None,
    z_dim: int | None = None,
    config: "str | PathLike[str] | None" = None,
    paper_scale: bool = False,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    scores: "Mapping[str, Callable[[Tensor], float]] | None" = None,
    **settings: "Unpack[Keywords]",
) -> "Run":
    """Trains a GAN as `mdgan train` does, with the same bits, and waits until it is done.

    Ctrl-C, or interrupting a notebook's cell, stops it as on the command line: nothing is lost, and
    `mdgan.Run.open(FOLDER).resume()` goes on.

    Args:
        dataset: the name of a dataset file, by default that of `config`, or digits; `mdgan.Data`
            with samples of your own, or what it takes. An architecture that fits its samples is
            trained if you give no models.
        generator: a class or function that makes G, from z [b, z_dim] to images [b, C, H, W] in
            [−1, 1]; the dataset file's own if not given.
        discriminator: a class or function that makes D, from images to one logit a sample.
        z_dim: the length of z; 100 if not given.
        config, paper_scale: a file of settings as for `--config`; what is given here wins.
        callbacks: functions that are told how far the run is, see `mdgan.Reached`. True stops it.
        scores: by name, functions from samples [n, *shape] to a number, called whenever training
            scores. `Run.own_scores` has what they return.
        settings: any setting of `mdgan train --help`, under its flag's name with _ for -.

    Raises:
        BadInput: something that was given cannot work; nothing was started.
        RunFailed: training failed.
        KeyboardInterrupt: the user stopped it; the run is saved.
    """
    given = with_file(settings, config, paper_scale=paper_scale)
    trained = GivenObjects(dataset, generator, discriminator, z_dim=z_dim)
    return _train(trained, given, quiet=quiet, callbacks=callbacks, scores=scores)


class Background:
    """A run in the background, which a thread follows; `reached` is None before it logs."""

    def __init__(self, train: Callable[[Callback, threading.Event], Run]) -> None:
        self.reached: Reached | None = None
        self._stop = threading.Event()
        self._run: Run | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, args=(train,), daemon=True)
        self._thread.start()

    def _follow(self, train: Callable[[Callback, threading.Event], Run]) -> None:
        try:
            self._run = train(self._look, self._stop)
        except BaseException as error:  # it is raised where the program waits
            self._error = error

    def _look(self, reached: Reached) -> None:
        self.reached = reached

    @property
    def done(self) -> bool:
        """Whether it is over, however it ended; `wait` tells how."""
        return not self._thread.is_alive()

    @property
    def run(self) -> Run | None:
        """The run; None before its first logged iteration."""
        return self._run if self._run or self.reached is None else self.reached.run

    @property
    def path(self) -> Path | None:
        """The run's folder; None before its first logged iteration."""
        return None if self.run is None else self.run.path

    @property
    def losses(self) -> NDArray[Any]:
        """Those of `Run.losses` so far."""
        return np.empty(0) if self.run is None else self.run.losses

    @property
    def scores(self) -> NDArray[Any]:
        """Those of `Run.scores` so far."""
        return np.empty(0) if self.run is None else self.run.scores

    def wait(self, seconds: float | None = None) -> Run:
        """Waits until it is over.

        Raises:
            TimeoutError: it is not over after that many seconds; it goes on.
            BadInput, RunFailed: as `train`.
        """
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise TimeoutError(f"the run goes on after {seconds:g} s; stop() ends it")
        if self._error is not None:
            raise self._error
        assert self._run is not None
        return self._run

    def stop(self) -> Run:
        """Stops it as Ctrl-C does, and waits until it is saved; `Run.resume` goes on.

        Of a run that has not begun, the `state` is `stopped` and the `iteration` 0.
        """
        self._stop.set()
        return self.wait()

    def __repr__(self) -> str:
        if self.reached is None:
            if self._run is not None:
                return f"<{self._run.path}: {self._run.state} before its first logged iteration>"
            return "<a run that could not begin>" if self.done else "<a run that is starting>"
        at = f"iteration {self.reached.iteration} of {self.reached.iterations}"
        return f"<{self.reached.run.path}: {at}{', over' if self.done else ''}>"


@refuses_in_python()
def start(
    dataset: "str | Data | Any" = None,
    *,
    generator: "Model | None" = None,
    discriminator: "Model | None" = None,
    z_dim: int | None = None,
    config: "str | PathLike[str] | None" = None,
    paper_scale: bool = False,
    quiet: bool = True,
    callbacks: Sequence[Callback] = (),
    scores: "Mapping[str, Callable[[Tensor], float]] | None" = None,
    **settings: "Unpack[Keywords]",
) -> Background:
    """Begins to train as `train` does, in the background; arguments and errors are the same.

    Returns:
        A handle, once processes start. Its thread calls callbacks, and is `quiet` unless told not.
    """
    given = with_file(settings, config, paper_scale=paper_scale)
    check(given.settings)  # what is plainly wrong is said here
    check_functions(callbacks, scores)
    trained = GivenObjects(dataset, generator, discriminator, z_dim=z_dim)

    def follow(own: Callback, stop: threading.Event) -> Run:
        each = [own, *callbacks]  # what these raise is of a run that the handle knows
        return _train(trained, given, quiet=quiet, callbacks=each, scores=scores, stop=stop)

    return Background(follow)


@refuses_in_python()
def _train(
    trained: GivenObjects,
    given: ConfigFile,
    *,
    quiet: bool,
    callbacks: Sequence[Callback],
    scores: "Mapping[str, Callable[[Tensor], float]] | None",
    stop: threading.Event | None = None,
) -> Run:
    named = given.settings.pop("dataset", "digits")
    if trained.dataset is None:
        trained = trained._replace(dataset=named)
    with placed_objects(given.settings, trained) as placed:
        settings = given.settings | placed.settings
        check(settings)
        screen = Screen(placed.about, quiet=quiet)
        with output_folder(settings.get("out"), settings["dataset"]) as out:
            run = Run(out, placed.data)
            objects = run.own(has_handed=bool(placed.handed))
            request = TrainingRequest(
                {**settings, "out": str(out)}, faults=given.faults, objects=objects
            )
            Follower(run, screen, callbacks, scores=scores).train(request, placed.handed, stop)
            if stop is not None and stop.is_set() and not run.has_begun:
                return run
            return Run.open(out, placed.data)


@dataclass(frozen=True)
class Comparison:
    """What `compare` returns."""

    path: Path
    page: Path
    table: dict[str, Any]  # of each configuration the numbers in `comparison.json`
    runs: dict[str, list[Run]]  # of each configuration a run a seed


@refuses_in_python()
def compare(
    configurations: Mapping[str, Mapping[str, Any]],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    dataset: "str | Data | Any" = "digits",
    generator: "Model | None" = None,
    discriminator: "Model | None" = None,
    z_dim: int | None = None,
    jobs: int = 1,
    resume: bool = False,
    quiet: bool = False,
    **settings: "Unpack[Keywords]",
) -> Comparison:
    """Trains several configurations with the same data and seeds, as `mdgan compare` does.

    Args:
        configurations: of each name the settings that it alone has.
        seeds: every configuration is trained once with each.
        dataset, generator, discriminator, z_dim, quiet: as for `train`.
        resume: goes on with the comparison in `out`, of a named data set and its models.
        settings: that hold for all; those of a configuration win.

    Raises:
        BadInput, RunFailed, KeyboardInterrupt: as `train`; every run is saved.
    """
    shared = plain(settings)
    out = shared.pop("out", None)
    check({"out": out})
    if not isinstance(configurations, Mapping) or not configurations:
        why = "must have settings by name"
        raise BadInput("configurations", why, 'such as {"few": {"batch_size": 4}}')
    own = {name: _own_settings(name, each) for name, each in configurations.items()}
    seeds = [plain({"seed": seed})["seed"] for seed in seeds]
    for seed in seeds:
        check({"seed": seed})
    if not seeds:
        raise BadInput("seeds", "has none", "give one or more")
    if not isinstance(jobs, Integral) or jobs < 1:
        raise BadInput(f"jobs={jobs!r}", "must be a whole number, at least 1")
    trained = GivenObjects(dataset, generator, discriminator, z_dim=z_dim)
    with (
        placed_objects(shared, trained, list(own.values())) as placed,
        output_folder(out, "compare") as path,
    ):
        each = {name: {**shared, **placed.settings, **those} for name, those in own.items()}
        request = ComparisonRequest(each, seeds, out=str(path), jobs=int(jobs), resume=resume)
        run_child(request, placed.handed, show=Screen(placed.about, quiet=quiet).show)
    table = json.loads((path / "comparison.json").read_bytes())["configurations"]
    runs = {
        name: [Run.open(path / f"{name}-seed{seed}", placed.data) for seed in dict.fromkeys(seeds)]
        for name in configurations
    }
    return Comparison(path, path / "report.html", table, runs=runs)


_MOST_OF_A_NAME = 200  # bytes; file systems take a few more


def _own_settings(name: object, settings: object) -> dict[str, Any]:
    """Those of one configuration."""
    known = name if isinstance(name, str) and name.isprintable() else ""
    if not known or Path(known).name != known or len(known.encode()) > _MOST_OF_A_NAME:
        raise BadInput(f"{name!r:.99}", "a configuration's name becomes that of a folder")
    if not isinstance(settings, Mapping):
        raise BadInput(known, f"{type(settings).__name__} holds no settings", "give a dict")
    return plain(settings)


_GLOBAL = "global_batch_size"


@dataclass(frozen=True)
class Estimator:
    """A generator and a discriminator that are trained together."""

    # A class or function that makes G; None for the dataset file's own.
    generator: "Model | None" = None
    # A class or function that makes D; None for the dataset file's own.
    discriminator: "Model | None" = None
    z_dim: int | None = None  # the length of G's input; 100 if not given


class ScalingManager:
    """Trains data-parallel, with batch sizes and learning rates for the number of workers.

    Args:
        config: settings that are good for one worker, under their flags' names with _ for -. The
            learning rates are for `batch_size` samples an iteration there. `lr_scaling` says how
            they grow with the samples of all workers; linearly if not given.
        batch_size: samples of an iteration, of all workers together.
    """

    def __init__(self, config: Mapping[str, Any], batch_size: int, num_workers: int) -> None:
        own = {_GLOBAL: batch_size, "world_size": num_workers + 1}
        for name in own.keys() & config.keys():
            why = f"{name} is what batch_size and num_workers say"
            raise BadInput("config", why, "leave it out")
        (algorithm,) = registry.with_setting(_GLOBAL)
        self._settings = {"algorithm": algorithm, "lr_scaling": "linear", **config, **own}
        self.run: Run | None = None  # that was trained last; None before `train`

    def train(
        self,
        model: Estimator,
        dataset: "str | Data" = "digits",
        *,
        steps: int | None = None,
        quiet: bool = False,
    ) -> Run:
        """Trains a model; called again, goes on with it.

        Args:
            steps: iterations; those of `config` if not given.
        """
        done = 0 if self.run is None else self.run.iteration
        some: dict[str, Any] = {} if steps is None else {"iterations": done + steps}
        if self.run is not None:
            self.run = self.run.resume(quiet=quiet, **some)
            return self.run
        self.run = train(
            dataset,
            generator=model.generator,
            discriminator=model.discriminator,
            z_dim=model.z_dim,
            quiet=quiet,
            **{**self._settings, **some},
        )
        return self.run

    def eval(self, metric: str = "fid", n: int = 10_000) -> float:
        """One score of the newest generator.

        Args:
            metric: its name in `Run.scores`, such as `fid`.

        Raises:
            BadInput: nothing was trained, or the run has no score of that name.
        """
        if self.run is None:
            raise BadInput("eval", "nothing was trained", "call train first")
        scores: dict[str, float] = self.run.evaluate(n)["scores"]
        if metric not in scores:
            way_out = f"one of {', '.join(scores)}"
            raise BadInput(f"metric={metric}", "is no score of this run", way_out)
        return scores[metric]
