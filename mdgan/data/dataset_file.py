"""Dataset files: each `<name>.py` defines a Partitioner, two models and two constants.

The convention is Darmanger and Gombas' (section 6.4). A file may also define `DEFAULTS`, settings
that suit its models unless the user gives others, `HeldOut`, a second Partitioner of samples that
no worker trains on, `NUM_CLASSES`, the number of classes on all machines together, and `KIND`, the
kind of its samples. A file needs no models if `DEFAULTS` or the user name an architecture. A file
whose samples depend on settings defines `prepare` instead of all of these.
"""

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from importlib.machinery import SourceFileLoader
from math import prod
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch
from torch import Tensor

from mdgan.data.find import find_all
from mdgan.data.partitioner import ImageFilesPartitioner, Partitioner
from mdgan.data.readable import readable, tried_all
from mdgan.data.settings import DataSettings
from mdgan.data.tried import used_bits
from mdgan.errors import BadInput, cause_of, reason_of, users_code, where_raised
from mdgan.gan.build import Build, Models
from mdgan.models.settings import FILE
from mdgan.samples.contract import SampleKind, Shape
from mdgan.samples.kinds import kind_named, kind_of
from mdgan.settings.declare import suggest
from mdgan.settings.retired import modern
from mdgan.spelling import flag, key
from mdgan.storage import budget

REQUIRED = ("Partitioner", "Generator", "Discriminator", "SHAPE", "Z_DIM")
_OF_MODELS = {"Generator", "Discriminator", "Z_DIM"}
NO_SUCH_FOLDER = "no such file or folder"
_MOST_CLASSES = 100_000
_NUM_CHECKED = 32
_MOST_IN_8_BITS = 255
_MOST_NUMBERS = 1 << 28  # in one sample, and in the noise vector that it is made from


@dataclass(frozen=True)
class PreparedData:
    """What a file's `prepare` returns: the data set for certain settings."""

    shape: Shape
    kind: SampleKind
    partitioner: Callable[[Path], Partitioner]
    held_out: Callable[[Path], Partitioner] | None = None
    num_classes: int | None = None
    # Name → text that must be equal on all ranks, such as the hash of a schema.
    agreed: Mapping[str, str] = field(default_factory=dict)
    reads_files: bool = True  # whether the data are files in a folder that the user names
    # Name → content of a file that a run keeps to read its samples later, such as a schema.
    keeps: Mapping[str, bytes] = field(default_factory=dict)
    # Z_DIM, Generator and Discriminator, if they differ from the file's.
    models: tuple[int, Build, Build] | None = None


@dataclass(frozen=True)
class DatasetFile:
    """A loaded dataset file.

    Attributes:
        agreed, reads_files, keeps: see `PreparedData`.
    """

    name: str
    path: Path
    sha256: str  # of its text, which must be equal on all ranks
    shape: Shape
    kind: SampleKind
    # From SHAPE, Z_DIM, Generator and Discriminator; None if the file has no models.
    own_models: Models | None
    partitioner: Callable[[Path], Partitioner]  # Partitioner, called with the data folder
    # HeldOut, called with the data folder: samples that no worker trains on and that the server may
    # hold; None if the file has no HeldOut.
    held_out: Callable[[Path], Partitioner] | None
    defaults: Mapping[str, Any]
    # NUM_CLASSES, K: labels are in [0, K); None if the file does not say.
    num_classes: int | None = None
    # KEPT: whether a run keeps a copy, since the file belongs to a program that may end.
    kept: bool = False
    about: str = ""  # ABOUT: one line that describes the data
    agreed: Mapping[str, str] = field(default_factory=dict)
    reads_files: bool = True
    keeps: Mapping[str, bytes] = field(default_factory=dict)
    # Computes the data set for certain settings; None if it does not depend on settings.
    prepare: Callable[[DataSettings], PreparedData] | None = None
    # Finds a side that suits the pictures in a folder; None if SHAPE says it.
    usual_size: Callable[[Path], int] | None = None
    picture_bits: int | None = None  # the setting of this name, for picture files

    @property
    def models(self) -> Models:
        """The models of the file; BadInput if it has none."""
        if self.own_models is None:
            raise BadInput(
                flag("architecture", FILE),
                f"{self.path} has no models of its own",
                "name an architecture",
            )
        return self.own_models

    def prepared(self, settings: DataSettings) -> "DatasetFile":
        """The file for certain settings, whose limit of memory for files holds from now on."""
        budget.allow(settings.file_memory)
        if settings.image_size is not None and self.usual_size is None:
            raise BadInput(
                key("image_size", settings.image_size),
                f"the samples of {flag('dataset', self.name)} have a size of their own",
                "leave it out",
            )
        if self.prepare is None:
            return replace(self, picture_bits=settings.picture_bits)
        with users_code(f"{flag('dataset', self.name)}: cannot be prepared"):
            data = self.prepare(settings)
        if why := data.kind.why_not(data.shape):
            raise BadInput(self.path, f"SHAPE = {data.shape}: {why}")
        models = self.own_models
        if data.models is not None:
            weights = data.kind.value_weights
            models = Models(str(self.path), data.shape, *data.models, weights)
        names = {item.name for item in fields(data)} - {"models"}
        values = {name: getattr(data, name) for name in names}
        values["picture_bits"] = settings.picture_bits
        return replace(self, own_models=models, prepare=None, **values)

    def check_folder(self, name: str, folder: str | None) -> None:
        """Refuses a folder from the user if the data set reads no files."""
        if folder is not None and not self.reads_files:
            raise BadInput(
                flag(name, folder), f"{flag('dataset', self.name)} reads no files", "leave it out"
            )

    def open(self, data_dir: Path, *, strict: bool = False) -> Partitioner:
        """Reads the data; leaves out samples that cannot be read, and names them in the log."""
        return self._open("Partitioner", self.partitioner, data_dir, strict=strict)

    def found_bits(self, folders: Iterable[Path], *, everywhere: bool) -> tuple[int | None, str]:
        """How many bits pictures of 16 bits use in some folders, and a sentence for the user.

        Args:
            everywhere: whether these are all folders of the run; if not, the user must set them.
        """
        findings = []
        for folder in folders:
            with self._reading(folder):
                findings.append(tried_all(self._source(self.partitioner, folder)))
        bits, observation = used_bits(findings)
        if bits is not None and not everywhere:
            raise BadInput(
                flag("data_dir"),
                f"{observation}, and this machine cannot know whether those of others do",
                f"start all with {key('picture_bits', bits)}, or {key('picture_bits', 16)}",
            )
        other = key("picture_bits", 16)
        return bits, f"{observation}, so they are read as {bits} bits; {other} keeps them dark"

    def _source(self, kind: Callable[[Path], Partitioner], data_dir: Path) -> Partitioner:
        source = kind(data_dir)
        if isinstance(source, ImageFilesPartitioner):
            source.picture_bits = self.picture_bits
        elif self.picture_bits is not None:
            why = f"{flag('dataset', self.name)} reads no picture files"
            raise BadInput(key("picture_bits", self.picture_bits), why, "leave it out")
        return source

    def open_held_out(self, data_dir: Path) -> Partitioner:
        """Reads the samples that no worker trains on, as `open` reads the others."""
        if self.held_out is None:
            lacks = "no HeldOut, a Partitioner of samples that no worker trains on"
            raise BadInput(flag("dataset", self.name), f"{self.path} defines {lacks}", "add one")
        return self._open("HeldOut", self.held_out, data_dir, strict=False)

    def _open(
        self, name: str, kind: Callable[[Path], Partitioner], data_dir: Path, *, strict: bool
    ) -> Partitioner:
        with self._reading(data_dir):
            source = self._source(kind, data_dir)
            if not isinstance(getattr(source, "labels", None), Tensor):
                raise BadInput(self.path, f"{name} has no labels", "it must set them, int64 [n]")
            if len(source) == 0:
                which = "sample" if name == "Partitioner" else "held-out sample"
                asked = flag("dataset", self.name)
                raise BadInput(asked, f"no {which} in {data_dir}", f"check {flag('data_dir')}")
            self._check_labels(name, source)
            source = readable(source, data_dir, strict=strict)
            if self.kind.is_learnt:  # else its samples cannot be encoded yet
                self._check_samples(name, source)
        return source

    @contextmanager
    def _reading(self, data_dir: Path) -> Iterator[None]:
        try:
            yield
        except BadInput as error:
            if self.reads_files and not data_dir.exists():
                error.for_others = f"{data_dir.name}: {NO_SUCH_FOLDER}"
            error.keep_here()
            raise
        except Exception as error:  # a reader may raise anything; the user gets one line
            why = f"cannot read the data in {data_dir}: {reason_of(error)}{where_raised(error)}"
            raise BadInput(flag("dataset", self.name), why).keep_here() from error

    def _check_labels(self, name: str, source: Partitioner) -> None:
        labels = source.labels
        well_formed = labels.dtype == torch.int64 and labels.dim() == 1
        if not well_formed or labels.min() < 0 or labels.max() >= _MOST_CLASSES:
            raise BadInput(
                self.path, f"{name}'s labels must be int64 [n] in [0, {_MOST_CLASSES:,})"
            )
        if self.num_classes is not None and (highest := int(labels.max())) >= self.num_classes:
            raise BadInput(
                self.path,
                f"{name} has label {highest}, but NUM_CLASSES = {self.num_classes}: labels are "
                f"0-{self.num_classes - 1}",
                "correct one of them",
            )
        if self.num_classes and 0 < (num_found := len(source.class_names)) < self.num_classes:
            which = f"{num_found} of {self.num_classes} classes"
            why = f"{which}, so their numbers are not those of others"
            raise BadInput(flag("data_dir"), why, "have a folder with samples for each class")

    def _check_samples(self, name: str, source: Partitioner) -> None:
        """Checks the shape and range of some of a Partitioner's samples."""
        indices = torch.linspace(0, len(source) - 1, _NUM_CHECKED, dtype=torch.float64).long()
        images = source.images(indices)
        if tuple(images.shape) != (len(indices), *self.shape) or images.dtype != torch.float32:
            raise BadInput(
                self.path,
                f"{name} gives {images.dtype} {list(images.shape[1:])} a sample, must give "
                f"torch.float32 {list(self.shape)}",
            )
        if not images.isfinite().all():
            raise BadInput(self.path, f"{name} gives values that are not finite", "leave them out")
        low, high = float(images.min()), float(images.max())
        if low < -1 or high > 1:
            are_pixels = low >= 0 and high <= _MOST_IN_8_BITS
            raise BadInput(
                self.path,
                f"{name} gives values from {low:g} to {high:g}, outside [−1, 1]",
                f"scale them{', for example x / 127.5 - 1' if are_pixels else ''}",
            )


def load(name: str, datasets_dir: str | None) -> DatasetFile:
    """Finds a dataset file by its name, and loads it."""
    paths = find_all(datasets_dir)
    if name not in paths:
        why = f"not found among {', '.join(sorted(paths))}{suggest(name, paths)}"
        raise BadInput(flag("dataset", name), why)
    return load_path(paths[name])


def load_path(path: Path) -> DatasetFile:
    """Loads the dataset file at a path; errors as `load`."""
    module = import_file(path, "dataset")
    prepare = getattr(module, "prepare", None)
    if prepare is not None and not callable(prepare):
        raise BadInput(path, f"prepare = {prepare!r:.80} must be a function of the settings")
    needed = set(REQUIRED if prepare is None else ())
    if hasattr(module, "Partitioner") and not any(hasattr(module, item) for item in _OF_MODELS):
        needed -= _OF_MODELS
    missing = [item for item in REQUIRED if item in needed and not hasattr(module, item)]
    if missing:
        raise BadInput(
            path, f"lacks {', '.join(missing)}", f"a dataset file defines {', '.join(REQUIRED)}"
        )
    shape = _checked_shape(path, getattr(module, "SHAPE", ()), is_known=prepare is None)
    kind = _checked_kind(path, getattr(module, "KIND", None) or kind_of(shape))
    if prepare is None and (why := kind.why_not(shape)):
        raise BadInput(path, f"SHAPE = {shape}: {why}")
    partitioner: Callable[[Path], Partitioner] = getattr(module, "Partitioner", _unprepared)
    models = None
    if all(hasattr(module, item) for item in _OF_MODELS):
        z_dim = module.Z_DIM
        if type(z_dim) is not int or not 0 < z_dim < _MOST_NUMBERS:
            raise BadInput(path, f"Z_DIM = {z_dim!r:.80} must be a positive integer")
        parts = module.Generator, module.Discriminator
        source = str(getattr(module, "MODELS_FROM", path))  # the program's file, not its copy
        models = Models(source, shape, z_dim, *parts, kind.value_weights)
    defaults = getattr(module, "DEFAULTS", {})
    if not isinstance(defaults, Mapping):
        raise BadInput(path, "DEFAULTS must be a dict of settings")
    held_out = getattr(module, "HeldOut", None)
    if held_out is not None and not callable(held_out):
        raise BadInput(path, f"HeldOut = {held_out!r:.80} must be a Partitioner, or be left out")
    num_classes = getattr(module, "NUM_CLASSES", None)
    if num_classes is not None and not (
        type(num_classes) is int and 0 < num_classes <= _MOST_CLASSES
    ):
        raise BadInput(
            path,
            f"NUM_CLASSES = {num_classes!r:.80} must be a whole number from 1 to "
            f"{_MOST_CLASSES:,}, or be left out",
        )
    return DatasetFile(
        name=path.stem,
        path=path,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        shape=shape,
        kind=kind,
        own_models=models,
        partitioner=partitioner,
        held_out=held_out,
        defaults=modern(defaults, str(path)),
        num_classes=num_classes,
        kept=getattr(module, "KEPT", False) is True,
        about=str(getattr(module, "ABOUT", (module.__doc__ or "").strip().partition("\n")[0])),
        reads_files=getattr(partitioner, "reads_files", True),
        prepare=prepare,
        usual_size=getattr(module, "usual_size", None),
    )


def _checked_kind(path: Path, kind: object) -> SampleKind:
    if isinstance(kind, str):
        try:
            return kind_named(kind)
        except BadInput as error:
            raise BadInput(path, f"KIND = {error.marked}") from error
    if not isinstance(kind, SampleKind):
        raise BadInput(path, f"KIND = {kind!r:.80} must be a kind of sample, or be left out")
    return kind


def _checked_shape(path: Path, shape: object, *, is_known: bool) -> Shape:
    """Checks SHAPE; it may be empty unless `is_known`, since `prepare` then computes it."""
    if (
        isinstance(shape, tuple)
        and (shape or not is_known)
        and all(type(size) is int and 0 < size < _MOST_NUMBERS for size in shape)
        and prod(shape) < _MOST_NUMBERS
    ):
        return shape
    raise BadInput(
        path,
        f"SHAPE = {shape!r:.80} must be a tuple of whole numbers above 0, such as (channels, "
        "height, width)",
    )


def _unprepared(data_dir: Path) -> Partitioner:
    raise TypeError(f"the data in {data_dir} are read once the file is prepared")


def check_defaults(dataset: DatasetFile, known: Collection[str]) -> None:
    """Refuses DEFAULTS of a dataset file that are not among the known shared settings."""
    for name in dataset.defaults:
        if name not in known:
            raise BadInput(
                dataset.path, f"DEFAULTS has unknown key {name!r}{suggest(str(name), known)}"
            )


class _FromSource(SourceFileLoader):
    """Compiles a user's file each time, without the cache of bytecode.

    Python uses cached bytecode if a file's size and its time in seconds have not changed. So it
    would not notice the change of one digit within a second.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def import_file(path: Path, purpose: str, name: str | None = None) -> ModuleType:
    """Runs one of the user's Python files as a module.

    The module's name contains the purpose, so that a dataset file and an extractor may have equal
    names. Error messages call the file `name`, by default its path.
    """
    module_name = f"mdgan_{purpose}_{path.stem}"
    loader = _FromSource(module_name, str(path))
    spec = importlib.util.spec_from_file_location(module_name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        del sys.modules[module_name]
        why = f"cannot be imported: {cause_of(error, of_user=True)}"
        raise BadInput(name or path, why) from error
    return module
