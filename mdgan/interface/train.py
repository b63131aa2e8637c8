"""`mdgan.train`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdgan.errors import BadInput
from mdgan.interface.child import command, new_folder, plain, scratch, write_settings
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
        if given.get("out") is not None:
            return _train(folder, given, Path(given["out"]), dataset, quiet)
        with new_folder(given["dataset"]) as out:
            return _train(folder, given, out, dataset, quiet)


def _train(
    folder: Path, given: dict[str, Any], out: Path, dataset: "str | Data", quiet: bool
) -> Run:
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
