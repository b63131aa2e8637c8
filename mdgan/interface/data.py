"""`mdgan.Data`: samples of a Python program, written to a folder that the ranks of a run read."""

import hashlib
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Mapping
from functools import cached_property
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.lib.format import open_memmap
from torch import Tensor, nn
from torch.utils.data import StackDataset

from mdgan.data.arrays import file_names
from mdgan.errors import BadInput, one_line, reason_of, where_raised
from mdgan.samples.contract import Shape
from mdgan.spelling import count

if TYPE_CHECKING:
    from mdgan.interface.frames import Frames

Label = int | str | None
Model = Callable[[], nn.Module]  # a class, or a function without arguments, that makes a model

_CHANNELS = (1, 3, 4)  # if the last size is one of these, and the first is not, channels come last
_FEW = 8  # three equal sizes, each at least this, are a volume
_SERIES, _PICTURES = "series", "pictures"
_MOST_OBLONG = 2  # how many times as long as high a picture is, unless the user says that it is one


def is_frame(part: object) -> bool:
    """Whether `part` is a pandas DataFrame, or another table with `columns` and `to_csv`."""
    return hasattr(part, "columns") and hasattr(part, "to_csv")


class Data:
    """Samples of your own.

    A sample is an image, a pair of image and class, or a dict with both. An image is a tensor, an
    array or a PIL picture: uint8 in [0, 255] or float in [−1, 1], [C, H, W] or [H, W, C], or [H, W]
    if grey. Vectors [d], series [C, T] and volumes [D, H, W] or [C, D, H, W] are samples as well.
    A pair of arrays is samples and their classes. A DataFrame is rows of a table.

    mdgan reads each sample once, in order, and writes it to a temporary folder. Python removes the
    folder with this object. A run keeps no sample.

    Args:
        train: what workers train on: a `torch.utils.data.Dataset` with a length, a list, or
            another object with samples by number.
        held_out: samples that no worker trains on; KID, precision and recall need them.
        shape: (C, H, W); that of the first sample if not given.
        image: the key of the image, where samples are dicts.
        label: the key of the class, where samples are dicts; samples without it are of class 0. A
            class is a whole number or a text; texts are numbered in their order. For a DataFrame
            the column whose values can be asked for when sampling.
        name: what runs and reports call the data set.
        kind: `series` or `pictures`, where samples have two sizes and could be either. By default
            floats are series where one size is more than twice the other.

    Raises:
        BadInput: `train` or `held_out` has no length, no sample, or another number of classes.
    """

    def __init__(
        self,
        train: Any,
        held_out: Any = None,
        shape: Shape | None = None,
        *,
        image: str = "image",
        label: str = "label",
        name: str = "own",
        kind: str | None = None,
    ) -> None:
        if not name.isidentifier():
            raise BadInput(f"name={name!r}", "must be a word of letters, digits and _")
        if kind not in (None, _SERIES, _PICTURES):
            raise BadInput(f"kind={kind!r:.40}", f"must be {_SERIES!r} or {_PICTURES!r}")
        if _holds_classes(held_out):
            way_out = "give the pair (samples, classes) as train"
            raise BadInput("held_out", "has classes in it, not samples", way_out)
        parts = {"train": train, "held_out": held_out}
        self.name = name
        self.parts = {w: _with_classes(w, part) for w, part in parts.items() if part is not None}
        self.class_names: tuple[str, ...] = ()  # by number, if classes are texts
        self._image, self._label, self._kind = image, label, kind
        self._sizes = {what: _size_of(what, part) for what, part in self.parts.items()}
        self._labelled = False
        self._shape = None if shape is None else tuple(shape)

    def __len__(self) -> int:
        """The number of samples that workers train on."""
        return self._sizes["train"]

    @property
    def shape(self) -> Shape:
        """The shape of one sample, such as (C, H, W)."""
        if self._shape is None:
            self._shape = tuple(self._sample("train", 0)[0].shape)
        return self._shape

    @cached_property
    def frames(self) -> "Frames | None":
        """The rows as a table, if `train` is a DataFrame; else None."""
        if not is_frame(self.parts["train"]):
            return None
        from mdgan.interface.frames import Frames

        return Frames(self.parts, self._label, Path(self._temporary))

    @cached_property
    def about(self) -> str:
        """Says in a line how mdgan reads the samples: their number, kind, size and classes."""
        if self.frames is not None:
            return self.frames.about
        sizes = "×".join(map(str, self.shape[-3 if len(self.shape) == 4 else -2 :]))
        kind = {1: "vectors of {} numbers", 2: "series of {} values", 4: "volumes of {} voxels"}
        wording = kind.get(len(self.shape), "pictures of {} pixels").format(sizes)
        numbers = " and ".join(f"{size:,}" for size in self._sizes.values())
        classes = count(self.num_classes, "class", "classes") if self.num_classes else "no classes"
        classes += f" ({one_line(', '.join(self.class_names)):.200})" * bool(self.class_names)
        channels = f", {count(self.shape[0], 'channel')}" if len(self.shape) > 2 else ""
        moved = ", which came last" if self._channels == "last" else ""
        return f"{numbers} {wording}{channels}{moved}, {classes}"

    @cached_property
    def _channels(self) -> str:
        """Where an image has its channels: `first`, `last`, or `none` if it has no such axis."""
        image = self._read_sample("train", 0)[0]
        sizes = tuple(image.shape)
        if self._shape is not None:
            moved = (*sizes[-1:], *sizes[:-1])
            if sizes != self._shape == moved:
                return "last"
            return "none" if self._shape == (1, *sizes) else "first"
        is_long = len(sizes) == 2 and max(sizes) > _MOST_OBLONG * min(sizes)
        if self._kind == _SERIES or (is_long and not self._kind and image.is_floating_point()):
            if len(sizes) > 2:
                why = f"train[0] has the shape {list(sizes)}, must be [channels, length]"
                raise BadInput(f"kind={_SERIES!r}", why)
            return "first" if len(sizes) == 2 else "none"
        if len(sizes) == 2 or (len(sizes) == 3 and len(set(sizes)) == 1 and sizes[0] >= _FEW):
            return "none"
        is_last = len(sizes) in (3, 4) and sizes[-1] in _CHANNELS and sizes[0] not in _CHANNELS
        return "last" if is_last else "first"

    def save(self, folder: str | Path) -> str:
        """Writes the samples as arrays, for `--data-dir` of a run that resumes without this object.

        Returns:
            The SHA-256 of all samples and classes.

        Raises:
            BadInput: a sample cannot be read, or is not like the others.
        """
        if self.frames is not None:
            raise BadInput("save", "rows of a DataFrame are saved by its own to_csv")
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        labels_by_part = {what: self._write_part(what, folder) for what in self.parts}
        all_labels = {label for labels in labels_by_part.values() for label in labels}
        self._labelled = all_labels != {None}
        if any(isinstance(label, str) for label in all_labels):
            self.class_names = tuple(sorted({*map(str, all_labels)}))
        numbers = {name: number for number, name in enumerate(self.class_names)}
        digest = hashlib.sha256("\0".join(self.class_names).encode())
        for what, labels in labels_by_part.items():
            paths = [folder / name for name in file_names(what)]
            np.save(paths[1], np.array([numbers.get(str(y), y or 0) for y in labels], np.int64))
            for array in (np.load(path, mmap_mode="r") for path in paths):
                digest.update(f"{what} {array.dtype} {array.shape}".encode())
                digest.update(array.data)
        return digest.hexdigest()

    @cached_property
    def _temporary(self) -> str:
        folder = tempfile.mkdtemp(prefix="mdgan-data-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    @property
    def folder(self) -> str:
        """The temporary folder with the samples, which the processes of a run read."""
        return self._temporary if self.sha256 else ""

    @property
    def places(self) -> dict[str, Any]:
        """The settings that say where the samples are: `data_dir`, and `held_out` of a table."""
        return {"data_dir": self.folder} if self.frames is None else self.frames.places

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of all samples and classes."""
        return self.save(self._temporary)

    def known_as(self, *, privately: bool) -> str:
        """The line by which a run recognises its samples: their SHA-256, or only their number.

        The SHA-256 would let a reader of the run test a guess of all samples. A run with privacy
        (`privately`) therefore records only the number.
        """
        return " and ".join(map(str, self._sizes.values())) if privately else self.sha256

    @cached_property
    def num_classes(self) -> int | None:
        """One more than the highest class of any sample; None if no sample has one."""
        labels = [np.load(Path(self.folder, file_names(what)[1])) for what in self.parts]
        return int(max(part.max() for part in labels)) + 1 if self._labelled else None

    def _write_part(self, part: str, folder: Path) -> list[Label]:
        """Writes the images of `train` or `held_out` as an array, and returns their classes."""
        size, dtype = self._sizes[part], self._sample(part, 0)[0].numpy().dtype
        images = open_memmap(folder / file_names(part)[0], "w+", dtype, (size, *self.shape))
        labels: list[Label] = []
        lowest = np.inf
        for index in range(size):
            image, label = self._sample(part, index)
            labels.append(label)
            if tuple(image.shape) != self.shape or image.numpy().dtype != dtype:
                why = f"is {image.dtype} {list(image.shape)}, must be {dtype} {list(self.shape)}"
                way_out = "bring all to one size and type"
                raise BadInput(f"{part}[{index}]", f"{why} as the others", way_out)
            low, high = float(image.min()), float(image.max())
            if dtype != np.uint8 and not -1 <= low <= high <= 1:
                why = f"has values from {low:g} to {high:g}"
                raise BadInput(f"{part}[{index}]", why, "scale them to [-1, 1], or give uint8")
            lowest = min(lowest, low)
            images[index] = image.numpy()
        if dtype != np.uint8 and lowest >= 0:
            warnings.warn(
                f"{part}: no value is below 0, as after ToTensor; images should fill [-1, 1], for "
                "example by Normalize(0.5, 0.5)",
                stacklevel=2,
            )
        images.flush()
        return labels

    def _sample(self, part: str, index: int) -> tuple[Tensor, Label]:
        """Reads a sample, uint8 or float32 [*shape], and its class; None if it has no class."""
        image, label = self._read_sample(part, index)
        if self._channels == "last":
            image = image.movedim(-1, 0)
        return (image[None] if self._channels == "none" else image), label

    def _read_sample(self, part: str, index: int) -> tuple[Tensor, Label]:
        """Reads a sample as the user gave it, with the channels where they are."""
        try:
            sample = self.parts[part][index]
            if isinstance(sample, Mapping):
                if self._image not in sample:
                    keys = ", ".join(map(str, sample))
                    raise ValueError(f"no {self._image!r} among {keys}; name the image's key")
                image, label = sample[self._image], sample.get(self._label)
            else:
                values = list(sample) if isinstance(sample, tuple | list) else [sample]
                image, label, *_ = [*values, None]
            return _as_tensor(image), _as_class(label)
        except Exception as error:  # the user's own code may raise anything
            why = f"cannot be read: {reason_of(error)}{where_raised(error)}"
            raise BadInput(f"{part}[{index}]", why) from error


def _holds_classes(part: Any) -> bool:
    """Whether `part` holds classes, though samples were expected."""
    if not isinstance(part, list | tuple | np.ndarray | Tensor) or not len(part):
        return False
    first = part[0]
    return isinstance(first, str | int | np.generic) or (
        isinstance(first, Tensor) and first.ndim == 0
    )


def _with_classes(name: str, samples: Any) -> Any:
    """Makes a pair of arrays, samples and their classes, a data set; returns the rest unchanged."""
    if isinstance(samples, tuple) and len(samples) == 2:
        array, labels = samples
        is_list = isinstance(labels, list) and all(isinstance(y, str | Number) for y in labels)
        if len(getattr(array, "shape", ())) > 1 and (is_list or np.ndim(labels) == 1):
            if len(array) != len(labels):
                raise BadInput(name, f"has {len(array):,} samples, but {len(labels):,} classes")
            classes: Any = getattr(labels, "array", labels)  # of pandas
            return StackDataset(array, classes)
    return samples


def _size_of(name: str, samples: Any) -> int:
    try:
        size = len(samples)
    except Exception as error:
        way_out = "give a data set that tells its len() and gives samples by number, as list(…)"
        raise BadInput(name, f"{type(samples).__name__} has no length", way_out) from error
    if not size:
        raise BadInput(name, f"{type(samples).__name__} has no sample")
    return size


def _as_tensor(image: Any) -> Tensor:
    """Converts a sample to a tensor, uint8 or float32, on the CPU."""
    if hasattr(image, "getbands"):  # a PIL picture
        image = np.atleast_3d(np.array(image)).transpose(2, 0, 1)
    tensor = torch.as_tensor(image).detach().cpu()
    if not tensor.dim() or not tensor.numel():
        raise ValueError(f"its shape is {list(tensor.shape)}, must be [C, H, W] or another one")
    if tensor.dtype != torch.uint8 and not tensor.is_floating_point():
        raise ValueError(f"its values are {tensor.dtype}, must be uint8 or float")
    for place in (~tensor.isfinite()).nonzero().tolist():
        raise ValueError(f"its value at {place} is {float(tensor[tuple(place)])}, must be finite")
    return tensor if tensor.dtype == torch.uint8 else tensor.float()


def _as_class(label: Any) -> Label:
    if label is None or isinstance(label, str):
        return label
    number = int(label)
    if number < 0 or number != label:
        raise ValueError(f"its class is {label}, must be a text, or a whole number, 0 or more")
    return number
