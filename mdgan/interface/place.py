"""Writes samples, models and other objects of a program where a run's processes find them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mdgan.errors import BadInput
from mdgan.interface.settings import plain_settings
from mdgan.storage.private_folders import make_private_folder

if TYPE_CHECKING:
    from mdgan.interface.data import Data, Model

Z_DIM = 100  # the length of G's input where the user does not say
_DCGAN, _MLP = "dcgan", "md-gan-mlp"
_USUAL_ARCHITECTURES = ((_DCGAN, 64), ("dcgan3d", 32), (_MLP, 512))
"""Architectures and widths; mdgan takes the first that makes samples of the data's shape."""
_BATCH_ROWS = 128  # of the architecture `table`
_DP = {"dp_epsilon", "dp_noise"}


class ProgramObjects(NamedTuple):
    """The data set and models that a program passes to `mdgan.train` or `mdgan.compare`."""

    dataset: "str | Data | Any" = "digits"
    generator: "Model | None" = None
    discriminator: "Model | None" = None
    z_dim: int | None = None

    @property
    def models(self) -> "dict[str, Model]":
        """The models by their names in a dataset file; empty if the program has none."""
        both = {"Generator": self.generator, "Discriminator": self.discriminator}
        return {name: build for name, build in both.items() if build is not None}


class PlacedObjects(NamedTuple):
    """The same objects, once the processes of a run can find them."""

    settings: dict[str, Any]  # name the data set and the models
    pickled_models: bytes = b""  # for `mdgan.data.handed`; empty if the dataset file has them
    data: "Data | None" = None  # the samples, if they are objects of the program
    about: str = ""  # says in a line how mdgan reads the samples


@contextmanager
def placed_objects(
    settings: Mapping[str, Any], objects: ProgramObjects, others: Sequence[Mapping[str, Any]] = ()
) -> Iterator[PlacedObjects]:
    """Writes a program's objects into a folder that exists as long as the block.

    Args:
        settings: may name registered objects, such as losses.
        others: the settings of each configuration of a comparison, which may name some as well.

    Raises:
        BadInput: an object cannot be used; if the generator fails without z_dim, it asks for z_dim.
    """
    try:
        with make_private_folder() as folder:
            yield _place_objects(Path(folder), objects, settings, *others)
    except BadInput as error:
        failure = error.marked.partition(": ")[2]
        if objects.z_dim or not objects.models or "Generator fails on a batch" not in failure:
            raise
        why = f"was not given, so the generator is called with [b, {Z_DIM}]"
        raise BadInput("z_dim", why, f"give z_dim=, the length of its input: {failure}") from error


def _place_objects(
    folder: Path, objects: ProgramObjects, settings: Mapping[str, Any], *others: Mapping[str, Any]
) -> PlacedObjects:
    """Writes a dataset file with the objects into `folder`, unless all of them have names."""
    from mdgan.interface.register import registered_objects

    layers = (settings, *others)
    if isinstance(objects.dataset, str):
        objects = objects._replace(**plain_settings({"dataset": objects.dataset}))
    if not isinstance(objects.z_dim, Integral | None) or (objects.z_dim or 1) < 1:
        raise BadInput(f"z_dim={objects.z_dim!r}", "must be a whole number, at least 1")
    models, registered = objects.models, registered_objects(layers)
    if len(models) == 1:
        missing = "generator" if objects.generator is None else "discriminator"
        way_out = "give the class, or a function, that makes it"
        raise BadInput(missing, "models go in pairs", way_out)
    if isinstance(objects.dataset, str):
        if not (models or registered):
            return PlacedObjects({"dataset": objects.dataset})
        return _place_models(folder, settings, objects, name=objects.dataset, registered=registered)
    from mdgan.interface.data import Data
    from mdgan.interface.dataset_text import dataset_text, samples_text
    from mdgan.models.dcgan import SUITED

    data = objects.dataset if isinstance(objects.dataset, Data) else Data(objects.dataset)
    for name in data.places:
        if settings.get(name) is not None:
            raise BadInput(name, "the samples are those of mdgan.Data", "leave it out")
    remarks = f"data: {data.about}"
    if data.frames is not None:
        if models or registered:
            why = "rows of a table have models of their own"
            raise BadInput("generator", why, "leave both out")
        partition = settings.get("partition") or "iid"
        placed = {**data.frames.settings, "partition": partition}
        if settings.get("batch_size") is None and len(data) < _BATCH_ROWS:
            placed["batch_size"] = len(data)
        return PlacedObjects(placed, data=data, about=f"{remarks}; architecture: table")
    num_classes, defaults_text = data.num_classes, ""
    if not models and not any(layer.get("architecture") for layer in layers):
        name, width = usual_architecture(data.shape)
        num_classes = num_classes or (1 if name == _MLP else None)  # its models need classes
        defaults = SUITED if name == _DCGAN else {}
        chosen = {"architecture": name, "width": width, **defaults}
        defaults_text = f"\nDEFAULTS = {chosen!r}"
        remarks += f"; architecture: {name}, width {settings.get('width') or width}"
    privately = any(_DP & layer.keys() for layer in layers)
    samples = samples_text(data, num_classes, privately=privately) + defaults_text
    z_dim = objects.z_dim or Z_DIM
    text, pickled = dataset_text(samples, data.shape, z_dim, models=models, registered=registered)
    (folder / f"{data.name}.py").write_text(text, encoding="utf-8")
    placed = {**data.places, "dataset": data.name, "datasets_dir": str(folder)}
    return PlacedObjects(placed, pickled, data=data, about=remarks)


def usual_architecture(shape: tuple[int, ...]) -> tuple[str, int]:
    """Chooses the architecture and width for samples of a shape if the user gives no models."""
    from mdgan.models.registry import architecture

    for name, width in _USUAL_ARCHITECTURES:
        try:
            architecture(name).make(shape, 1, width)
        except ValueError:  # it makes no samples of this shape
            continue
        return name, width
    raise BadInput(f"shape={shape}", "no architecture makes such samples", "give both models")


def _place_models(
    folder: Path,
    settings: Mapping[str, Any],
    objects: ProgramObjects,
    *,
    name: str,
    registered: Mapping[str, Any],
) -> PlacedObjects:
    """Writes a dataset file with the samples of a named one and the program's models or others."""
    from mdgan.data import dataset_file
    from mdgan.interface.dataset_text import dataset_text, samples_text_of_file

    models = objects.models
    file = dataset_file.load(name, settings.get("datasets_dir"))
    samples = samples_text_of_file(file, settings.get("datasets_dir"), models=not models)
    z_dim = objects.z_dim or Z_DIM
    if not models:
        samples += f"\nZ_DIM = {file.models.z_dim}"
    text, pickled = dataset_text(samples, file.shape, z_dim, models=models, registered=registered)
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return PlacedObjects({"dataset": name, "datasets_dir": str(folder)}, pickled)
