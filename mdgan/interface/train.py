"""`mdgan.train`, `mdgan.compare`, and ParaGAN's Listing 1: `ScalingManager` and `Estimator`."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Unpack

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.interface import child
from mdgan.interface.background import Background
from mdgan.interface.child import Audience
from mdgan.interface.follow import Callback, Follower, shown_to_user
from mdgan.interface.place import GivenObjects, naming_z_dim, place
from mdgan.interface.run import Run
from mdgan.interface.wording import refusals_in_python
from mdgan.launch.resolve import resolve

if TYPE_CHECKING:
    from os import PathLike

    from torch import Tensor

    from mdgan.interface.data import Data, Model
    from mdgan.interface.keywords import Keywords


@refusals_in_python()
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
            scores. `Run.scores` has what they return.
        settings: any setting of `mdgan train --help`, under its flag's name with _ for -.

    Raises:
        BadInput: something that was given cannot work; nothing was started.
        RunFailed: training failed.
        KeyboardInterrupt: the user stopped it; the run is saved.
    """
    given = child.plain(settings, config, paper_scale=paper_scale)
    name = given.pop("dataset", "digits")
    trained = GivenObjects(name if dataset is None else dataset, generator, discriminator, z_dim)
    return _train(trained, given, quiet, callbacks, scores)


@refusals_in_python()
def start(
    dataset: "str | Data | Any" = None,
    *,
    generator: "Model | None" = None,
    discriminator: "Model | None" = None,
    z_dim: int | None = None,
    config: "str | PathLike[str] | None" = None,
    paper_scale: bool = False,
    callbacks: Sequence[Callback] = (),
    scores: "Mapping[str, Callable[[Tensor], float]] | None" = None,
    **settings: "Unpack[Keywords]",
) -> Background:
    """Begins to train as `train` does, in the background; arguments and errors are the same.

    Returns:
        A handle, once the run's processes are being started. Callbacks are called in its thread.
    """
    given = child.plain(settings, config, paper_scale=paper_scale)
    resolve([given])  # what is plainly wrong is said here
    name = given.pop("dataset", "digits")
    trained = GivenObjects(name if dataset is None else dataset, generator, discriminator, z_dim)

    def follow(own: Callback, stop: Event) -> Run:
        return _train(trained, given, True, [*callbacks, own], scores, stop)

    return Background(follow)


@refusals_in_python()
def _train(
    trained: GivenObjects,
    given: dict[str, Any],
    quiet: bool,
    callbacks: Sequence[Callback],
    scores: "Mapping[str, Callable[[Tensor], float]] | None",
    stop: Event | None = None,
) -> Run:
    with child.scratch() as folder:
        placed = place(folder, given, trained)
        given = given | placed.settings
        resolve([given])
        if not quiet:
            child.say(*placed.about)
        with child.output_folder(given.get("out"), given["dataset"]) as out:
            file = child.write_settings(folder / "settings.json", {**given, "out": str(out)})
            run = Run(out, placed.data)
            follower = Follower(run, callbacks, scores, stop)
            own = run.own(has_handed=bool(placed.handed))
            with shown_to_user(quiet, follower, own) as shown, naming_z_dim(trained):
                arguments = ("train", "--launcher", "processes", "--config", file)
                child.command(*arguments, shown=shown, handed=placed.handed)
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


@refusals_in_python()
def compare(
    configurations: Mapping[str, Mapping[str, Any]],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    dataset: "str | Data | Any" = "digits",
    generator: "Model | None" = None,
    discriminator: "Model | None" = None,
    z_dim: int | None = None,
    jobs: int = 1,
    quiet: bool = False,
    **settings: "Unpack[Keywords]",
) -> Comparison:
    """Trains several configurations with the same data and seeds, as `mdgan compare` does.

    Args:
        configurations: of each name the settings that it alone has.
        seeds: every configuration is trained once with each.
        dataset, generator, discriminator, z_dim, quiet: as for `train`.
        settings: that hold for all; those of a configuration win.

    Raises:
        BadInput, RunFailed, KeyboardInterrupt: as `train`; every run is saved.
    """
    shared = child.plain(settings)
    out = shared.pop("out", None)
    for name in configurations:
        if not name or Path(name).name != name:
            raise BadInput(f"{name!r}: a configuration's name becomes that of a folder")
    with child.scratch() as folder:
        others = [child.plain(own) for own in configurations.values()]
        trained = GivenObjects(dataset, generator, discriminator, z_dim)
        placed = place(folder, shared, trained, others)
        shared |= placed.settings
        if not quiet:
            child.say(*placed.about)
        configs = folder / "configs"
        configs.mkdir()
        files = [
            child.write_settings(configs / f"{name}.json", {**shared, **child.plain(own)})
            for name, own in configurations.items()
        ]
        with child.output_folder(out, "compare") as path:
            said = ("--seeds", ",".join(map(str, seeds)), "--out", str(path), "--jobs", str(jobs))
            try:
                with naming_z_dim(trained):
                    child.command(
                        "compare", *said, *files, shown=Audience(quiet), handed=placed.handed
                    )
            except BadInput as error:
                raise BadInput(str(error).replace(f"{configs}/", "")) from error
    table = json.loads((path / "comparison.json").read_bytes())["configurations"]
    runs = {
        name: [Run.open(path / f"{name}-seed{seed}", placed.data) for seed in dict.fromkeys(seeds)]
        for name in configurations
    }
    return Comparison(path, path / "report.html", table, runs)


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
            raise BadInput(f"config: {name} is what batch_size and num_workers say; leave it out")
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
            raise BadInput("eval: nothing was trained; call train first")
        scores: dict[str, float] = self.run.evaluate(n)["scores"]
        if metric not in scores:
            raise BadInput(f"metric={metric}: is no score of this run; one of {', '.join(scores)}")
        return scores[metric]
