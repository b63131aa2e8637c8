"""Samples and models that are objects of the user's program, as a dataset file that ranks load."""

import hashlib
import json
import shutil
import sys
import tempfile
import warnings
import weakref
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.lib.format import open_memmap
from torch import Tensor, nn
from torchvision.transforms.functional import pil_to_tensor

from mdgan.data.arrays import file_names
from mdgan.data.dataset_file import DatasetFile
from mdgan.errors import BadInput, reason_of
from mdgan.interface.source import text_defining
from mdgan.samples.contract import Shape

Model = Callable[[], nn.Module]
"""A class, or a function without arguments, that makes a model."""


class MapStyle(Protocol):
    """A `torch.utils.data.Dataset` with a length, a list, or what else gives samples by number."""

    def __getitem__(self, index: int, /) -> Any:
        """One sample."""


class Data:
    """Samples of your own.

    A sample is an image, a pair of image and class, or a dict with both. An image is a tensor, an
    array or a PIL picture: uint8 in [0, 255] or float in [−1, 1], [C, H, W], or [H, W] if grey.

    Each sample is read once, in order, and written to a temporary folder, which goes when this
    object does. Nothing of it is kept with a run.

    Args:
        train: what workers train on: anything with a length that gives samples by number.
        held_out: samples that no worker trains on; KID, precision and recall need them.
        shape: (C, H, W); that of the first sample if not given.
        image: the key of the image, where samples are dicts.
        label: the key of the class, where samples are dicts; samples without it are of class 0.
        name: what runs and reports call the data set.

    Raises:
        BadInput: one of them has no length, or no sample.
    """

    def __init__(
        self,
        train: MapStyle,
        held_out: MapStyle | None = None,
        shape: Shape | None = None,
        *,
        image: str = "image",
        label: str = "label",
        name: str = "own",
    ) -> None:
        if not name.isidentifier():
            raise BadInput(f"name={name!r}: must be a word of letters, digits and _")
        given = {"train": train, "held_out": held_out}
        self.name = name
        self._parts = {what: part for what, part in given.items() if part is not None}
        self._image, self._label = image, label
        self._sizes = {what: _size(what, part) for what, part in self._parts.items()}
        self._labelled = False
        self._shape = None if shape is None else tuple(shape)

    @property
    def shape(self) -> Shape:
        """Of one sample, such as (C, H, W)."""
        if self._shape is None:
            self._shape = tuple(self._sample("train", 0)[0].shape)
        return self._shape

    def save(self, folder: str | Path) -> str:
        """Writes the samples as arrays, for `--data-dir` of a run that goes on without this object.

        Returns:
            The SHA-256 of all samples and classes.

        Raises:
            BadInput: a sample cannot be read, or is not like the others.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        for what in self._parts:
            self._write(what, folder, digest)
        return digest.hexdigest()

    @cached_property
    def _saved(self) -> tuple[str, str]:
        folder = tempfile.mkdtemp(prefix="mdgan-data-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder, self.save(folder)

    @property
    def folder(self) -> str:
        """Where the samples lie for the processes of runs, as long as this object lives."""
        return self._saved[0]

    @property
    def sha256(self) -> str:
        """Of all samples and classes."""
        return self._saved[1]

    def known_as(self, *, privately: bool) -> str:
        """What a run says of the samples: their SHA-256, or their numbers alone.

        By their SHA-256 can be told whether a given set of samples is this one, to the last sample.
        """
        return " and ".join(map(str, self._sizes.values())) if privately else self.sha256

    @cached_property
    def num_classes(self) -> int | None:
        """One more than the highest class of any sample; None if no sample has one."""
        labels = [np.load(Path(self.folder, file_names(what)[1])) for what in self._parts]
        return int(max(part.max() for part in labels)) + 1 if self._labelled else None

    def _write(self, what: str, folder: Path, digest: "hashlib._Hash") -> None:
        size, dtype = self._sizes[what], self._sample(what, 0)[0].numpy().dtype
        paths = [folder / name for name in file_names(what)]
        images = open_memmap(paths[0], "w+", dtype, (size, *self.shape))
        labels = open_memmap(paths[1], "w+", np.int64, (size,))
        lowest = np.inf
        for index in range(size):
            image, label = self._sample(what, index)
            labels[index] = 0 if label is None else label
            self._labelled |= label is not None
            if tuple(image.shape) != self.shape or image.numpy().dtype != dtype:
                raise BadInput(
                    f"{what}[{index}]: is {image.dtype} {list(image.shape)}, must be {dtype} "
                    f"{list(self.shape)} as the others; bring all to one size and type"
                )
            low, high = float(image.min()), float(image.max())
            if dtype != np.uint8 and not -1 <= low <= high <= 1:
                raise BadInput(
                    f"{what}[{index}]: has values from {low:g} to {high:g}; scale them to [-1, 1], "
                    "or give uint8"
                )
            lowest = min(lowest, low)
            images[index] = image.numpy()
        if dtype != np.uint8 and lowest >= 0:
            warnings.warn(
                f"{what}: no value is below 0, as after ToTensor; images should fill [-1, 1], for "
                "example by Normalize(0.5, 0.5)",
                stacklevel=2,
            )
        for array in (images, labels):
            array.flush()
            digest.update(f"{what} {array.dtype} {array.shape}".encode())
            digest.update(array.data)

    def _sample(self, what: str, index: int) -> tuple[Tensor, int | None]:
        """One sample, uint8 or float32 [*shape], and its class, None if it has none."""
        try:
            sample = self._parts[what][index]
            if isinstance(sample, Mapping):
                if self._image not in sample:
                    keys = ", ".join(map(str, sample))
                    raise ValueError(f"no {self._image!r} among {keys}; name the image's key")
                image, label = sample[self._image], sample.get(self._label)
            else:
                parts = list(sample) if isinstance(sample, tuple | list) else [sample]
                image, label, *_ = [*parts, None]
            is_series = self._shape is not None and len(self._shape) == 2
            return _tensor(image, is_series=is_series), _class(label)
        except Exception as error:  # the user's own code may raise anything
            raise BadInput(f"{what}[{index}]: cannot be read: {reason_of(error)}") from error


def _size(what: str, part: Any) -> int:
    try:
        size = len(part)
    except Exception as error:
        raise BadInput(
            f"{what}: {type(part).__name__} has no length; give a data set that tells its len() "
            "and gives samples by number, such as list(…)"
        ) from error
    if not size:
        raise BadInput(f"{what}: {type(part).__name__} has no sample")
    return size


def _tensor(image: Any, *, is_series: bool) -> Tensor:
    """A sample as uint8 or float32 on the CPU; two sizes are a grey picture's unless said."""
    if hasattr(image, "getbands"):  # a PIL picture
        image = pil_to_tensor(image)
    tensor = torch.as_tensor(image).detach().cpu()
    if tensor.dim() == 2 and not is_series:
        tensor = tensor.unsqueeze(0)
    if not tensor.dim() or not tensor.numel():
        raise ValueError(f"its shape is {list(tensor.shape)}, must be [C, H, W] or another one")
    if tensor.dtype != torch.uint8 and not tensor.is_floating_point():
        raise ValueError(f"its values are {tensor.dtype}, must be uint8 or float")
    return tensor if tensor.dtype == torch.uint8 else tensor.float()


def _class(label: Any) -> int | None:
    if label is None:
        return None
    number = int(label)
    if number < 0 or number != label:
        raise ValueError(f"its class is {label}, must be a whole number, 0 or more")
    return number


def check_model(name: str, build: object) -> None:
    """Checks that something can make models."""
    if isinstance(build, nn.Module):
        raise BadInput(
            f"{name}: is one model, but each worker needs its own; give the class, or a function "
            "that makes one"
        )
    if not callable(build):
        raise BadInput(f"{name}: must be a class, or a function, that makes a model")


def dataset_text(
    samples: str,
    shape: Shape,
    z_dim: int,
    generator: Model | None,
    discriminator: Model | None,
    registered: Mapping[str, Any] | None = None,
) -> str:
    """The text of a dataset file with the user's models in it, and what the user has registered.

    Args:
        samples: the lines that define Partitioner and, if there are held-out samples, HeldOut.
    """
    both = {"Generator": generator, "Discriminator": discriminator}
    models = {name: build for name, build in both.items() if build is not None}
    for name, build in models.items():
        check_model(name.lower(), build)
    wanted = {**models, **(registered or {})}
    try:
        own_code = text_defining(wanted)
    except (ValueError, OSError, SyntaxError) as error:
        names = ", ".join(name.lower() if name in models else name for name in wanted)
        raise BadInput(
            f"{names}: cannot be handed to the processes of the run ({reason_of(error)}); make "
            "them in a module of their own"
        ) from error
    own = [path for path in sys.path if path and not path.startswith((sys.prefix, sys.base_prefix))]
    return _TEXT.format(
        paths=json.dumps([str(Path(path).resolve()) for path in [*own, "."]]),
        samples=samples,
        shape=tuple(shape),
        z_dim=z_dim,
        models=own_code,
    )


def samples_of(data: Data, *, privately: bool = False) -> str:
    """The lines of a dataset file that read what `Data` has written; see `Data.known_as`."""
    lines = [
        "from mdgan.data.arrays import Arrays",
        f'SAMPLES = "{data.known_as(privately=privately)}"',
        f"NUM_CLASSES = {data.num_classes}",
    ]
    for kind, what in (("Partitioner", "train"), ("HeldOut", "held_out")):
        if what in data._parts:
            lines.append(f'class {kind}(Arrays):\n    which = "{what}"')
    return "\n".join(lines)


def samples_of_file(file: DatasetFile, datasets_dir: str | None, *, models: bool) -> str:
    """The lines of a dataset file that take the samples of another, and its models if wanted."""
    lines = [
        "from mdgan.data.dataset_file import load",
        f"_file = load({file.name!r}, {datasets_dir!r})",
        "Partitioner, HeldOut = _file.partitioner, _file.held_out",
        "NUM_CLASSES = _file.num_classes",
    ]
    if models:
        lines += [
            "Generator, Discriminator = _file.models.generator, _file.models.discriminator",
            "DEFAULTS = dict(_file.defaults)",
        ]
    return "\n".join(lines)


_TEXT = '''"""Models of a Python program; `mdgan.train` wrote this file for its run."""

import sys

{samples}

sys.path += [path for path in {paths} if path not in sys.path]  # for models that lie in modules
KEPT = True
SHAPE = {shape}
Z_DIM = {z_dim}

{models}
'''
