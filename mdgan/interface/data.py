"""Samples and models that are objects of the user's program, as a dataset file that ranks load."""

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

if TYPE_CHECKING:
    from mdgan.interface.frames import Frames

Label = int | str | None
Model = Callable[[], nn.Module]  # a class, or a function without arguments, that makes a model


_CHANNELS = (1, 3, 4)  # numbers of channels by which pictures are known whose channels come last
_FEW = 8  # sides of volumes are at least as long
_SERIES, _PICTURES = "series", "pictures"
_MOST_OBLONG = 2  # how many times as long as high a picture is, unless the user says that it is one


def is_frame(part: object) -> bool:
    """Whether something is a pandas DataFrame, or writes itself like one."""
    return hasattr(part, "columns") and hasattr(part, "to_csv")


class Data:
    """Samples of your own.

    A sample is an image, a pair of image and class, or a dict with both. An image is a tensor, an
    array or a PIL picture: uint8 in [0, 255] or float in [−1, 1], [C, H, W] or [H, W, C], or [H, W]
    if grey. Vectors [d], series [C, T] and volumes [D, H, W] or [C, D, H, W] are samples as well.
    A pair of arrays is samples and their classes. A DataFrame is rows of a table.

    Each sample is read once, in order, and written to a temporary folder, which goes when this
    object does. Nothing of it is kept with a run.

    Args:
        train: what workers train on: a `torch.utils.data.Dataset` with a length, a list, or what
            else gives samples by number.
        held_out: samples that no worker trains on; KID, precision and recall need them.
        shape: (C, H, W); that of the first sample if not given.
        image: the key of the image, where samples are dicts.
        label: the key of the class, where samples are dicts; samples without it are of class 0. A
            class is a whole number or a text; texts are numbered in their order. Of a DataFrame
            the column that rows are asked for by.
        name: what runs and reports call the data set.
        kind: `series` or `pictures`, where samples have two sizes and could be either. By default
            floats are series where one size is more than twice the other.

    Raises:
        BadInput: one of them has no length, or no sample, or not as many classes.
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
        given = {"train": train, "held_out": held_out}
        self.name = name
        self.parts = {w: _with_classes(w, part) for w, part in given.items() if part is not None}
        self.class_names: tuple[str, ...] = ()  # of classes that are texts, by number
        self._image, self._label, self._kind = image, label, kind
        self._sizes = {what: _size(what, part) for what, part in self.parts.items()}
        self._labelled = False
        self._shape = None if shape is None else tuple(shape)

    def __len__(self) -> int:
        """How many samples workers train on."""
        return self._sizes["train"]

    @property
    def shape(self) -> Shape:
        """Of one sample, such as (C, H, W)."""
        if self._shape is None:
            self._shape = tuple(self._sample("train", 0)[0].shape)
        return self._shape

    @cached_property
    def frames(self) -> "Frames | None":
        """The rows of a table, if that is what the samples are."""
        if not is_frame(self.parts["train"]):
            return None
        from mdgan.interface.frames import Frames

        return Frames(self.parts, self._label, Path(self._made))

    @cached_property
    def about(self) -> str:
        """What the samples were understood to be, in a line."""
        if self.frames is not None:
            return self.frames.about
        sizes = "×".join(map(str, self.shape[-3 if len(self.shape) == 4 else -2 :]))
        kind = {1: "vectors of {} numbers", 2: "series of {} values", 4: "volumes of {} voxels"}
        said = kind.get(len(self.shape), "pictures of {} pixels").format(sizes)
        count = " and ".join(f"{size:,}" for size in self._sizes.values())
        known = f", {self.num_classes} classes" if self.num_classes else ", no classes"
        known += f" ({one_line(', '.join(self.class_names)):.200})" * bool(self.class_names)
        plural = "s" * (self.shape[0] > 1)
        channels = f", {self.shape[0]} channel{plural}" if len(self.shape) > 2 else ""
        last = ", which came last" if self._order == "last" else ""
        return f"{count} {said}{channels}{last}{known}"

    @cached_property
    def _order(self) -> str:
        """Where the channels of an image are: `first`, `last`, or `none` if it has none."""
        image = self._read("train", 0)[0]
        sizes = tuple(image.shape)
        if self._shape is not None:
            turned = (*sizes[-1:], *sizes[:-1])
            if sizes != self._shape == turned:
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
        """Writes the samples as arrays, for `--data-dir` of a run that goes on without this object.

        Returns:
            The SHA-256 of all samples and classes.

        Raises:
            BadInput: a sample cannot be read, or is not like the others.
        """
        if self.frames is not None:
            raise BadInput("save", "rows of a DataFrame are saved by its own to_csv")
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        given = {what: self._write(what, folder) for what in self.parts}
        every = {label for labels in given.values() for label in labels}
        self._labelled = every != {None}
        if any(isinstance(label, str) for label in every):
            self.class_names = tuple(sorted({*map(str, every)}))
        numbers = {name: number for number, name in enumerate(self.class_names)}
        digest = hashlib.sha256("\0".join(self.class_names).encode())
        for what, labels in given.items():
            paths = [folder / name for name in file_names(what)]
            np.save(paths[1], np.array([numbers.get(str(y), y or 0) for y in labels], np.int64))
            for array in (np.load(path, mmap_mode="r") for path in paths):
                digest.update(f"{what} {array.dtype} {array.shape}".encode())
                digest.update(array.data)
        return digest.hexdigest()

    @cached_property
    def _made(self) -> str:
        folder = tempfile.mkdtemp(prefix="mdgan-data-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    @property
    def folder(self) -> str:
        """Where the samples lie for the processes of runs, as long as this object lives."""
        return self._made if self.sha256 else ""

    @property
    def places(self) -> dict[str, Any]:
        """The settings that say where the samples lie."""
        return {"data_dir": self.folder} if self.frames is None else self.frames.places

    @cached_property
    def sha256(self) -> str:
        """Of all samples and classes."""
        return self.save(self._made)

    def known_as(self, *, privately: bool) -> str:
        """What a run says of the samples: their SHA-256, or their numbers alone.

        By their SHA-256 can be told whether a given set of samples is this one, to the last sample.
        """
        return " and ".join(map(str, self._sizes.values())) if privately else self.sha256

    @cached_property
    def num_classes(self) -> int | None:
        """One more than the highest class of any sample; None if no sample has one."""
        labels = [np.load(Path(self.folder, file_names(what)[1])) for what in self.parts]
        return int(max(part.max() for part in labels)) + 1 if self._labelled else None

    def _write(self, what: str, folder: Path) -> list[Label]:
        """Writes the images of a part; their classes."""
        size, dtype = self._sizes[what], self._sample(what, 0)[0].numpy().dtype
        images = open_memmap(folder / file_names(what)[0], "w+", dtype, (size, *self.shape))
        labels: list[Label] = []
        lowest = np.inf
        for index in range(size):
            image, label = self._sample(what, index)
            labels.append(label)
            if tuple(image.shape) != self.shape or image.numpy().dtype != dtype:
                why = f"is {image.dtype} {list(image.shape)}, must be {dtype} {list(self.shape)}"
                way_out = "bring all to one size and type"
                raise BadInput(f"{what}[{index}]", f"{why} as the others", way_out)
            low, high = float(image.min()), float(image.max())
            if dtype != np.uint8 and not -1 <= low <= high <= 1:
                why = f"has values from {low:g} to {high:g}"
                raise BadInput(f"{what}[{index}]", why, "scale them to [-1, 1], or give uint8")
            lowest = min(lowest, low)
            images[index] = image.numpy()
        if dtype != np.uint8 and lowest >= 0:
            warnings.warn(
                f"{what}: no value is below 0, as after ToTensor; images should fill [-1, 1], for "
                "example by Normalize(0.5, 0.5)",
                stacklevel=2,
            )
        images.flush()
        return labels

    def _sample(self, what: str, index: int) -> tuple[Tensor, Label]:
        """One sample, uint8 or float32 [*shape], and its class, None if it has none."""
        image, label = self._read(what, index)
        if self._order == "last":
            image = image.movedim(-1, 0)
        return (image[None] if self._order == "none" else image), label

    def _read(self, what: str, index: int) -> tuple[Tensor, Label]:
        """One sample as it was given."""
        try:
            sample = self.parts[what][index]
            if isinstance(sample, Mapping):
                if self._image not in sample:
                    keys = ", ".join(map(str, sample))
                    raise ValueError(f"no {self._image!r} among {keys}; name the image's key")
                image, label = sample[self._image], sample.get(self._label)
            else:
                parts = list(sample) if isinstance(sample, tuple | list) else [sample]
                image, label, *_ = [*parts, None]
            return _tensor(image), _class(label)
        except Exception as error:  # the user's own code may raise anything
            why = f"cannot be read: {reason_of(error)}{where_raised(error)}"
            raise BadInput(f"{what}[{index}]", why) from error


def _holds_classes(part: Any) -> bool:
    """Whether the user has given classes where samples are due."""
    if not isinstance(part, list | tuple | np.ndarray | Tensor) or not len(part):
        return False
    first = part[0]
    return isinstance(first, str | int | np.generic) or (
        isinstance(first, Tensor) and first.ndim == 0
    )


def _with_classes(what: str, part: Any) -> Any:
    """Samples by number; of a pair of arrays, the second is the classes of the first."""
    if isinstance(part, tuple) and len(part) == 2:
        samples, labels = part
        is_list = isinstance(labels, list) and all(isinstance(y, str | Number) for y in labels)
        if len(getattr(samples, "shape", ())) > 1 and (is_list or np.ndim(labels) == 1):
            if len(samples) != len(labels):
                raise BadInput(what, f"has {len(samples):,} samples, but {len(labels):,} classes")
            classes: Any = getattr(labels, "array", labels)  # of pandas
            return StackDataset(samples, classes)
    return part


def _size(what: str, part: Any) -> int:
    try:
        size = len(part)
    except Exception as error:
        way_out = "give a data set that tells its len() and gives samples by number, as list(…)"
        raise BadInput(what, f"{type(part).__name__} has no length", way_out) from error
    if not size:
        raise BadInput(what, f"{type(part).__name__} has no sample")
    return size


def _tensor(image: Any) -> Tensor:
    """A sample as uint8 or float32 on the CPU."""
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


def _class(label: Any) -> Label:
    if label is None or isinstance(label, str):
        return label
    number = int(label)
    if number < 0 or number != label:
        raise ValueError(f"its class is {label}, must be a text, or a whole number, 0 or more")
    return number
