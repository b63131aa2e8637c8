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
from mdgan.interface.place import ProgramObjects, placed_objects
from mdgan.interface.run import Run
from mdgan.interface.settings import (
    check_functions,
    check_settings,
    merge_file,
    plain_settings,
    refuses_in_python,
)
from mdgan.settings.config_file import ConfigFile

if TYPE_CHECKING:
    from os import PathLike

    from torch import Tensor

    from mdgan.interface.data import Data, Model
    from mdgan.interface.keywords import Keywords

_MOST_NAME_BYTES = 200  # of a configuration's name; file systems take a few more
_GLOBAL_BATCH = "global_batch_size"


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
    """Trains a GAN as `mdgan train` does, with the same bits, and waits until training ends.

    Ctrl-C, or interrupting a notebook's cell, stops the run as on the command line. The run is
    saved, and `mdgan.Run.open(FOLDER).resume()` goes on with it.

    Args:
        dataset: the name of a dataset file, by default that of `config`, or digits. Or `mdgan.Data`
            with samples of your own, or what `mdgan.Data` takes; if you give no models, mdgan picks
            an architecture that fits the samples.
        generator: a class or function that makes G, from z [b, z_dim] to images [b, C, H, W] in
            [−1, 1]; the dataset file's own if not given.
        discriminator: a class or function that makes D, from images to one logit a sample.
        z_dim: the length of z; 100 if not given.
        config, paper_scale: a file of settings as for `--config`; arguments here override it.
        quiet: whether to print nothing.
        callbacks: functions that mdgan calls with a `mdgan.Reached` for each logged iteration and
            each score. A callback that returns True stops the run.
        scores: by name, functions from samples [n, *shape] to a number. mdgan calls them whenever
            training scores; `Run.own_scores` has what they return.
        settings: any setting of `mdgan train --help`, under its flag's name with _ for -.

    Raises:
        BadInput: an argument cannot work; no process was started.
        RunFailed: training failed.
        KeyboardInterrupt: the user stopped it; the run is saved.
    """
    merged = merge_file(settings, config, paper_scale=paper_scale)
    objects = ProgramObjects(dataset, generator, discriminator, z_dim=z_dim)
    return _train(objects, merged, quiet=quiet, callbacks=callbacks, scores=scores)


class Background:
    """A run in the background, which a thread follows; `reached` is None before it logs."""

    def __init__(self, train: Callable[[Callback, threading.Event], Run]) -> None:
        self.reached: Reached | None = None
        self._stop = threading.Event()
        self._run: Run | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run_thread, args=(train,), daemon=True)
        self._thread.start()

    def _run_thread(self, train: Callable[[Callback, threading.Event], Run]) -> None:
        try:
            self._run = train(self._note_progress, self._stop)
        except BaseException as error:  # `wait` raises it
            self._error = error

    def _note_progress(self, reached: Reached) -> None:
        self.reached = reached

    @property
    def done(self) -> bool:
        """Whether the run is over; `wait` returns it, or raises the error that ended it."""
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
        """The losses so far, as `Run.losses` has them."""
        return np.empty(0) if self.run is None else self.run.losses

    @property
    def scores(self) -> NDArray[Any]:
        """The scores so far, as `Run.scores` has them."""
        return np.empty(0) if self.run is None else self.run.scores

    def wait(self, seconds: float | None = None) -> Run:
        """Waits until the run is over, but at most for `seconds`.

        Raises:
            TimeoutError: the run is not over after that time, and goes on.
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
        """Stops the run as Ctrl-C does, and waits until it is saved; `Run.resume` goes on.

        A run that has not begun then has the `state` `stopped` and the `iteration` 0.
        """
        self._stop.set()
        return self.wait()

    def __repr__(self) -> str:
        if self.reached is None:
            if self._run is not None:
                return f"<{self._run.path}: {self._run.state} before its first logged iteration>"
            return "<a run that could not begin>" if self.done else "<a run that is starting>"
        progress = f"iteration {self.reached.iteration} of {self.reached.iterations}"
        return f"<{self.reached.run.path}: {progress}{', over' if self.done else ''}>"


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
    """Starts training in the background, with the arguments and errors of `train`.

    Returns:
        A handle of the run, whose thread calls the callbacks. It prints only if `quiet` is False.
    """
    merged = merge_file(settings, config, paper_scale=paper_scale)
    check_settings(merged.settings)  # so that `start` itself refuses wrong settings
    check_functions(callbacks, scores)
    objects = ProgramObjects(dataset, generator, discriminator, z_dim=z_dim)

    def follow(note_progress: Callback, stop: threading.Event) -> Run:
        functions = [note_progress, *callbacks]  # the first tells the handle of the run
        return _train(objects, merged, quiet=quiet, callbacks=functions, scores=scores, stop=stop)

    return Background(follow)


@refuses_in_python()
def _train(
    objects: ProgramObjects,
    merged: ConfigFile,
    *,
    quiet: bool,
    callbacks: Sequence[Callback],
    scores: "Mapping[str, Callable[[Tensor], float]] | None",
    stop: threading.Event | None = None,
) -> Run:
    dataset = merged.settings.pop("dataset", "digits")
    if objects.dataset is None:
        objects = objects._replace(dataset=dataset)
    with placed_objects(merged.settings, objects) as placed:
        settings = merged.settings | placed.settings
        check_settings(settings)
        screen = Screen(placed.about, quiet=quiet)
        with output_folder(settings.get("out"), settings["dataset"]) as out:
            run = Run(out, placed.data)
            pickled = placed.pickled_models
            needs = run.open_arguments(has_pickled=bool(pickled))
            settings = {**settings, "out": str(out)}
            request = TrainingRequest(settings, faults=merged.faults, open_arguments=needs)
            Follower(run, screen, callbacks, scores=scores).train(request, pickled, stop)
            if stop is not None and stop.is_set() and not run.has_begun:
                return run
            return Run.open(out, placed.data)


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`."""

    path: Path  # the folder of all runs
    page: Path  # the report
    table: dict[str, Any]  # the numbers in `comparison.json`, by configuration
    runs: dict[str, list[Run]]  # a run for each seed, by configuration


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
        configurations: the settings of each configuration, by its name.
        seeds: mdgan trains every configuration once with each seed.
        dataset, generator, discriminator, z_dim, quiet: as for `train`.
        jobs: how many runs train at once.
        resume: goes on with the comparison in `out`, if it is of a named data set and its models.
        settings: of all configurations, unless a configuration overrides them.

    Raises:
        BadInput, RunFailed, KeyboardInterrupt: as `train`; every run is saved.
    """
    shared = plain_settings(settings)
    out = shared.pop("out", None)
    check_settings({"out": out})
    if not isinstance(configurations, Mapping) or not configurations:
        why = "must have settings by name"
        raise BadInput("configurations", why, 'such as {"few": {"batch_size": 4}}')
    by_name = {name: _check_configuration(name, each) for name, each in configurations.items()}
    seeds = [plain_settings({"seed": seed})["seed"] for seed in seeds]
    for seed in seeds:
        check_settings({"seed": seed})
    if not seeds:
        raise BadInput("seeds", "has none", "give one or more")
    if not isinstance(jobs, Integral) or jobs < 1:
        raise BadInput(f"jobs={jobs!r}", "must be a whole number, at least 1")
    objects = ProgramObjects(dataset, generator, discriminator, z_dim=z_dim)
    with (
        placed_objects(shared, objects, list(by_name.values())) as placed,
        output_folder(out, "compare") as path,
    ):
        settled = {name: {**shared, **placed.settings, **each} for name, each in by_name.items()}
        request = ComparisonRequest(settled, seeds, out=str(path), jobs=int(jobs), resume=resume)
        run_child(request, placed.pickled_models, show=Screen(placed.about, quiet=quiet).show)
    table = json.loads((path / "comparison.json").read_bytes())["configurations"]
    runs = {
        name: [Run.open(path / f"{name}-seed{seed}", placed.data) for seed in dict.fromkeys(seeds)]
        for name in configurations
    }
    return Comparison(path, path / "report.html", table, runs=runs)


def _check_configuration(name: object, settings: object) -> dict[str, Any]:
    """Checks the name and the settings of one configuration, and returns the settings."""
    folder = name if isinstance(name, str) and name.isprintable() else ""
    if not folder or Path(folder).name != folder or len(folder.encode()) > _MOST_NAME_BYTES:
        raise BadInput(f"{name!r:.99}", "a configuration's name becomes that of a folder")
    if not isinstance(settings, Mapping):
        raise BadInput(folder, f"{type(settings).__name__} holds no settings", "give a dict")
    return plain_settings(settings)


@dataclass(frozen=True)
class Estimator:
    """A generator and a discriminator that `ScalingManager.train` trains together."""

    # A class or function that makes G; None for the dataset file's own.
    generator: "Model | None" = None
    # A class or function that makes D; None for the dataset file's own.
    discriminator: "Model | None" = None
    z_dim: int | None = None  # the length of G's input; 100 if not given


class ScalingManager:
    """Trains data-parallel, and adapts batch sizes and learning rates to the number of workers.

    Args:
        config: settings that suit one worker, under their flags' names with _ for -. The learning
            rates in it suit its `batch_size`. `lr_scaling` says how they grow with the samples of
            all workers; linearly if absent.
        batch_size: samples of an iteration, of all workers together.
    """

    def __init__(self, config: Mapping[str, Any], batch_size: int, num_workers: int) -> None:
        sizes = {_GLOBAL_BATCH: batch_size, "world_size": num_workers + 1}
        for name in sizes.keys() & config.keys():
            why = f"{name} is what batch_size and num_workers say"
            raise BadInput("config", why, "leave it out")
        (algorithm,) = registry.with_setting(_GLOBAL_BATCH)
        self._settings = {"algorithm": algorithm, "lr_scaling": "linear", **config, **sizes}
        self.run: Run | None = None  # the run trained last; None before `train`

    def train(
        self,
        model: Estimator,
        dataset: "str | Data" = "digits",
        *,
        steps: int | None = None,
        quiet: bool = False,
    ) -> Run:
        """Trains a model; a second call goes on with the same run.

        Args:
            steps: how many iterations to train; None for those of `config`.
        """
        done = 0 if self.run is None else self.run.iteration
        changes: dict[str, Any] = {} if steps is None else {"iterations": done + steps}
        if self.run is not None:
            self.run = self.run.resume(quiet=quiet, **changes)
            return self.run
        self.run = train(
            dataset,
            generator=model.generator,
            discriminator=model.discriminator,
            z_dim=model.z_dim,
            quiet=quiet,
            **{**self._settings, **changes},
        )
        return self.run

    def eval(self, metric: str = "fid", n: int = 10_000) -> float:
        """Computes one score of the newest generator.

        Args:
            metric: the name of the score in `Run.scores`, such as `fid`.
            n: how many samples to generate.

        Raises:
            BadInput: there is no run yet, or it has no score of that name.
        """
        if self.run is None:
            raise BadInput("eval", "nothing was trained", "call train first")
        scores: dict[str, float] = self.run.evaluate(n)["scores"]
        if metric not in scores:
            way_out = f"one of {', '.join(scores)}"
            raise BadInput(f"metric={metric}", "is no score of this run", way_out)
        return scores[metric]
