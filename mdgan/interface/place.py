"""Where the objects of a program lie for the processes of a run: samples, models and others."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mdgan.errors import BadInput
from mdgan.interface.settings import plain
from mdgan.storage.private_folders import make_private_folder

if TYPE_CHECKING:
    from mdgan.interface.data import Data, Model

Z_DIM = 100  # the length of G's input where the user does not say
_DCGAN, _MLP = "dcgan", "md-gan-mlp"
_USUAL = ((_DCGAN, 64), ("dcgan3d", 32), (_MLP, 512))
"""Architectures and widths, of which the first is taken that makes samples of the data's shape."""
_ROWS_OF_A_BATCH = 128  # by default, with the architecture `table`
_DP = {"dp_epsilon", "dp_noise"}


class GivenObjects(NamedTuple):
    """What a program gives to be trained."""

    dataset: "str | Data | Any" = "digits"
    generator: "Model | None" = None
    discriminator: "Model | None" = None
    z_dim: int | None = None

    @property
    def models(self) -> "dict[str, Model]":
        """By the names in a dataset file; none if the user gives none."""
        both = {"Generator": self.generator, "Discriminator": self.discriminator}
        return {name: build for name, build in both.items() if build is not None}


class PlacedObjects(NamedTuple):
    """Where all of that is."""

    settings: dict[str, Any]  # that say which data set and models are trained
    handed: bytes = b""  # models for `mdgan.data.handed`; empty if the dataset file has them
    data: "Data | None" = None  # the samples, if they are objects of the program
    about: str = ""  # what was understood, in a line


@contextmanager
def placed_objects(
    given: Mapping[str, Any], trained: GivenObjects, others: Sequence[Mapping[str, Any]] = ()
) -> Iterator[PlacedObjects]:
    """Writes, while the block lasts, what processes need of a program's objects.

    Says that z_dim is missing where that may be why the generator fails.

    Args:
        given: settings, which may name some, too; so may those of `others`.
    """
    try:
        with make_private_folder() as folder:
            yield _place(Path(folder), trained, given, *others)
    except BadInput as error:
        fails = error.marked.partition(": ")[2]
        if trained.z_dim or not trained.models or "Generator fails on a batch" not in fails:
            raise
        why = f"was not given, so the generator is called with [b, {Z_DIM}]"
        raise BadInput("z_dim", why, f"give z_dim=, the length of its input: {fails}") from error


def _place(
    folder: Path, trained: GivenObjects, given: Mapping[str, Any], *others: Mapping[str, Any]
) -> PlacedObjects:
    from mdgan.interface.register import things_named

    layers = (given, *others)
    if isinstance(trained.dataset, str):
        trained = trained._replace(**plain({"dataset": trained.dataset}))
    if not isinstance(trained.z_dim, Integral | None) or (trained.z_dim or 1) < 1:
        raise BadInput(f"z_dim={trained.z_dim!r}", "must be a whole number, at least 1")
    models, registered = trained.models, things_named(layers)
    if len(models) == 1:
        missing = "generator" if trained.generator is None else "discriminator"
        way_out = "give the class, or a function, that makes it"
        raise BadInput(missing, "models go in pairs", way_out)
    if isinstance(trained.dataset, str):
        if not (models or registered):
            return PlacedObjects({"dataset": trained.dataset})
        return _beside_a_file(folder, given, trained, name=trained.dataset, registered=registered)
    from mdgan.interface.data import Data
    from mdgan.interface.dataset_text import dataset_text, samples_of
    from mdgan.models.dcgan import SUITED

    data = trained.dataset if isinstance(trained.dataset, Data) else Data(trained.dataset)
    for name in data.places:
        if given.get(name) is not None:
            raise BadInput(name, "the samples are those of mdgan.Data", "leave it out")
    told = f"data: {data.about}"
    if data.frames is not None:
        if models or registered:
            why = "rows of a table have models of their own"
            raise BadInput("generator", why, "leave both out")
        partition = given.get("partition") or "iid"
        settings = {**data.frames.settings, "partition": partition}
        if given.get("batch_size") is None and len(data) < _ROWS_OF_A_BATCH:
            settings["batch_size"] = len(data)
        return PlacedObjects(settings, data=data, about=f"{told}; architecture: table")
    num_classes, defaults = data.num_classes, ""
    if not models and not any(own.get("architecture") for own in layers):
        name, width = usual_architecture(data.shape)
        num_classes = num_classes or (1 if name == _MLP else None)  # it is told classes
        suited = SUITED if name == _DCGAN else {}
        chosen = {"architecture": name, "width": width, **suited}
        defaults = f"\nDEFAULTS = {chosen!r}"
        told += f"; architecture: {name}, width {given.get('width') or width}"
    privately = any(_DP & own.keys() for own in layers)
    samples = samples_of(data, num_classes, privately=privately) + defaults
    z_dim = trained.z_dim or Z_DIM
    text, handed = dataset_text(samples, data.shape, z_dim, models=models, registered=registered)
    (folder / f"{data.name}.py").write_text(text, encoding="utf-8")
    settings = {**data.places, "dataset": data.name, "datasets_dir": str(folder)}
    return PlacedObjects(settings, handed, data=data, about=told)


def usual_architecture(shape: tuple[int, ...]) -> tuple[str, int]:
    """The architecture and its width that samples of a shape are trained with by default."""
    from mdgan.models.registry import architecture

    for name, width in _USUAL:
        try:
            architecture(name).make(shape, 1, width)
        except ValueError:  # it makes no samples of this shape
            continue
        return name, width
    raise BadInput(f"shape={shape}", "no architecture makes such samples", "give both models")


def _beside_a_file(
    folder: Path,
    given: Mapping[str, Any],
    trained: GivenObjects,
    *,
    name: str,
    registered: Mapping[str, Any],
) -> PlacedObjects:
    """The samples of a named data set, with models of the program or things that it registers."""
    from mdgan.data import dataset_file
    from mdgan.interface.dataset_text import dataset_text, samples_of_file

    models = trained.models
    file = dataset_file.load(name, given.get("datasets_dir"))
    samples = samples_of_file(file, given.get("datasets_dir"), models=not models)
    z_dim = trained.z_dim or Z_DIM
    if not models:
        samples += f"\nZ_DIM = {file.models.z_dim}"
    text, handed = dataset_text(samples, file.shape, z_dim, models=models, registered=registered)
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return PlacedObjects({"dataset": name, "datasets_dir": str(folder)}, handed)
