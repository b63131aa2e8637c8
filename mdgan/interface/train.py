"""`mdgan.train`, `mdgan.compare`, and ParaGAN's Listing 1: `ScalingManager` and `Estimator`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.interface.child import command, output_folder, plain, scratch, write_settings
from mdgan.interface.run import Run
from mdgan.launch.resolve import resolve

if TYPE_CHECKING:
    from mdgan.interface.data import Data, Model

Z_DIM = 100


def train(
    dataset: "str | Data" = "digits",
    *,
    generator: "Model | None" = None,
    discriminator: "Model | None" = None,
    z_dim: int = Z_DIM,
    quiet: bool = False,
    **settings: Any,
) -> "Run":
    """Trains a GAN as `mdgan train` does, with the same bits, and waits until it is done.

    Ctrl-C, or interrupting a notebook's cell, stops it as on the command line: nothing is lost, and
    `mdgan.Run.open(FOLDER).resume()` goes on.

    Args:
        dataset: the name of a dataset file, or `mdgan.Data` with samples of your own.
        generator: a class or function that makes G, from z [b, z_dim] to images [b, C, H, W] in
            [−1, 1]; the dataset file's own if not given.
        discriminator: a class or function that makes D, from images to one logit a sample.
        settings: any setting of `mdgan train --help`, under its flag's name with _ for -.

    Raises:
        BadInput: something that was given cannot work; nothing was started.
        RunFailed: training failed.
        KeyboardInterrupt: the user stopped it; the run is saved.
    """
    given = plain(settings)
    with scratch() as folder:
        given |= place(folder, given, dataset, generator, discriminator, z_dim)
        resolve([given])
        with output_folder(given.get("out"), given["dataset"]) as out:
            file = write_settings(folder / "settings.json", {**given, "out": str(out)})
            command("train", "--launcher", "processes", "--config", file, quiet=quiet)
            return Run.open(out, None if isinstance(dataset, str) else dataset)


def place(
    folder: Path,
    given: dict[str, Any],
    dataset: "str | Data",
    generator: "Model | None",
    discriminator: "Model | None",
    z_dim: int,
    others: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The settings that say which data set and models are trained.

    Args:
        others: more settings that may name what the user has registered.
    """
    own = not isinstance(dataset, str)
    no_models = not own and generator is None and discriminator is None
    from mdgan.interface.register import things_named

    registered = things_named([given, *others])
    if no_models and not registered:
        return {"dataset": dataset}
    if not no_models:
        _check_both(generator, discriminator, own=own)
    from mdgan.data import dataset_file
    from mdgan.interface.data import Data, dataset_text, samples_of, samples_of_file

    if isinstance(dataset, Data):
        if given.get("data_dir") is not None:
            raise BadInput("data_dir: the samples are those of mdgan.Data; leave it out")
        layers = (given, *others)
        privately = any({"dp_epsilon", "dp_noise"} & layer.keys() for layer in layers)
        name, shape = dataset.name, dataset.shape
        samples = samples_of(dataset, privately=privately)
        changes = {"data_dir": dataset.folder}
    elif isinstance(dataset, str):
        file = dataset_file.load(dataset, given.get("datasets_dir"))
        shape, z_dim = file.shape, file.models.z_dim if no_models else z_dim
        name, samples = dataset, samples_of_file(file, given.get("datasets_dir"), models=no_models)
        changes = {}
    else:
        kind = type(dataset).__name__
        raise BadInput(f"dataset: {kind} is no name; put your samples into mdgan.Data(train=…)")
    text = dataset_text(samples, shape, z_dim, generator, discriminator, registered)
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return {**changes, "dataset": name, "datasets_dir": str(folder)}


def _check_both(generator: object, discriminator: object, *, own: bool) -> None:
    missing = "generator" if generator is None else "discriminator"
    if generator is None or discriminator is None:
        why = "samples of your own need both models" if own else "models go in pairs"
        raise BadInput(f"{missing}: {why}; give the class, or a function, that makes it")


if TYPE_CHECKING:
    from mdgan.interface.data import Data, Model


@dataclass(frozen=True)
class Comparison:
    """What `compare` returns.

    Attributes:
        table: of each configuration the numbers in `comparison.json`.
        runs: of each configuration a run a seed.
    """

    path: Path
    page: Path
    table: dict[str, Any]
    runs: dict[str, list[Run]]


def compare(
    configurations: Mapping[str, Mapping[str, Any]],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    dataset: "str | Data" = "digits",
    generator: "Model | None" = None,
    discriminator: "Model | None" = None,
    z_dim: int = Z_DIM,
    jobs: int = 1,
    quiet: bool = False,
    **settings: Any,
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
    shared = plain(settings)
    out = shared.pop("out", None)
    for name in configurations:
        if not name or Path(name).name != name:
            raise BadInput(f"{name!r}: a configuration's name becomes that of a folder")
    with scratch() as folder:
        others = [plain(own) for own in configurations.values()]
        shared |= place(folder, shared, dataset, generator, discriminator, z_dim, others)
        configs = folder / "configs"
        configs.mkdir()
        files = [
            write_settings(configs / f"{name}.json", {**shared, **plain(own)})
            for name, own in configurations.items()
        ]
        with output_folder(out, "compare") as path:
            said = ("--seeds", ",".join(map(str, seeds)), "--out", str(path), "--jobs", str(jobs))
            try:
                command("compare", *said, *files, quiet=quiet)
            except BadInput as error:
                raise BadInput(str(error).replace(f"{configs}/", "")) from error
    data = None if isinstance(dataset, str) else dataset
    table = json.loads((path / "comparison.json").read_bytes())["configurations"]
    runs = {
        name: [Run.open(path / f"{name}-seed{seed}", data) for seed in dict.fromkeys(seeds)]
        for name in configurations
    }
    return Comparison(path, path / "report.html", table, runs)


if TYPE_CHECKING:
    from mdgan.interface.data import Data, Model

_GLOBAL = "global_batch_size"


@dataclass(frozen=True)
class Estimator:
    """A generator and a discriminator that are trained together.

    Attributes:
        generator: a class or function that makes G; None for the dataset file's own.
        discriminator: a class or function that makes D; None for the dataset file's own.
        z_dim: the length of G's input.
    """

    generator: "Model | None" = None
    discriminator: "Model | None" = None
    z_dim: int = Z_DIM


class ScalingManager:
    """Trains data-parallel, with batch sizes and learning rates for the number of workers.

    Args:
        config: settings that are good for one worker, under their flags' names with _ for -. The
            learning rates are for `batch_size` samples an iteration there. `lr_scaling` says how
            they grow with the samples of all workers; linearly if not given.
        batch_size: samples of an iteration, of all workers together.

    Attributes:
        run: that was trained last; None before `train`.
    """

    def __init__(self, config: Mapping[str, Any], batch_size: int, num_workers: int) -> None:
        own = {_GLOBAL: batch_size, "world_size": num_workers + 1}
        for name in own.keys() & config.keys():
            raise BadInput(f"config: {name} is what batch_size and num_workers say; leave it out")
        (algorithm,) = registry.with_setting(_GLOBAL)
        self._settings = {"algorithm": algorithm, "lr_scaling": "linear", **config, **own}
        self.run: Run | None = None

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
