"""Samples that can be read: each is tried before training, and replaced if it fails later on.

Names of files stay on the machine that has them: they are logged here, and no error that could
travel to the server holds one.
"""

import contextlib
import hashlib
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

import msgspec
import PIL
import torch
from torch import Tensor

from mdgan.data.partitioner import ImageFilesPartitioner, InMemoryPartitioner, Partitioner
from mdgan.data.tried import TriedSamples, used_bits
from mdgan.errors import BadInput
from mdgan.gan.labels import Known, Samples
from mdgan.samples.pictures.files import readable_formats
from mdgan.samples.pictures.reading import Seen, why_unreadable
from mdgan.samples.tensors.reading import TURNED
from mdgan.settings.machine import cache_folder, num_cores
from mdgan.spelling import flag, key
from mdgan.storage.budget import TooLarge
from mdgan.storage.whole_file import write_whole

_log = logging.getLogger(__name__)

_AT_ONCE = 32
_SILENT_SECONDS = 2.0
_WORTH_KEEPING_SECONDS = 2.0
_MOST_NAMED = 20


@cache
def warn_once(text: str) -> None:
    """Warns the user of something, once in a process however often it is found."""
    _log.warning("warning: %s", text)


class Readable(Partitioner):
    """Some samples of a data set; one that can no longer be read is replaced by the next here."""

    def __init__(self, source: Partitioner, indices: Tensor) -> None:
        self.labels = source.labels[indices]
        self.class_names = source.class_names
        self.groups = None if source.groups is None else source.groups[indices]
        self.read_one_by_one = source.read_one_by_one
        self._told: list[str] = []
        self._source: Partitioner = source
        self._indices: Tensor = indices
        if isinstance(source, Readable):
            self._told = source._told
            self._source, self._indices = source._source, source._indices[indices]

    def read(self, position: int) -> Tensor:
        """One sample, [1, C, H, W], which nothing replaces; raises anything if that fails."""
        return self._source.images(self._indices[position : position + 1])

    def images(self, indices: Tensor) -> Tensor:
        """The samples at some positions, float32 [k, C, H, W] in [−1, 1]; errors as `samples`."""
        return self.samples(indices).images

    def contents(self, indices: Tensor) -> list[bytes]:
        return self._source.contents(self._indices[indices])

    @property
    def lies_in_files(self) -> bool:
        return self._source.lies_in_files

    def quick_contents(self, indices: Tensor) -> list[bytes]:
        return self._source.quick_contents(self._indices[indices])

    def known(self, indices: Tensor) -> list[Known]:
        return self._source.known(self._indices[indices])

    def counts(self, indices: Tensor) -> Tensor:
        return self._source.counts(self._indices[indices])

    def samples(self, indices: Tensor) -> Samples:
        """The samples at some positions, float32 [k, C, H, W] in [−1, 1], and their classes."""
        what = "the worker's next sample stands in for each that cannot be read"
        if (whole := self._all_of(indices, what)) is not None:
            return whole
        found = [self._first_from(position) for position in indices.tolist()]
        labels = [self.labels[place] for _, place in found]
        return Samples(torch.cat([image for image, _ in found]), torch.stack(labels))

    def available(self, indices: Tensor) -> Samples:
        """As `samples`, but one that cannot be read is left out, and none stands in for it."""
        if not len(indices):  # a reader need not know how to read nothing
            return Samples(self.images(torch.zeros(1, dtype=torch.int64))[:0], self.labels[:0])
        whole = self._all_of(indices, "samples that cannot be read are left out")
        if whole is not None:
            return whole
        found, places = [], []
        for position in indices.tolist():
            with contextlib.suppress(Exception):  # a reader may raise anything
                found.append(self.read(position))
                places.append(position)
        if not found:
            return self.available(indices[:0])
        return Samples(torch.cat(found), self.labels[places])

    def _all_of(self, indices: Tensor, otherwise: str) -> Samples | None:
        """Some samples; None if one cannot be read, and the user has been told, once, what then."""
        try:
            return Samples(self._source.images(self._indices[indices]), self.labels[indices])
        except MemoryError:
            raise
        except Exception as error:  # a reader may raise anything
            if isinstance(self._source, InMemoryPartitioner):
                raise
            if not self._told:
                self._told.append(str(error))
                _log.warning(
                    "warning: %s. From now on %s; this is said only once", error, otherwise
                )
            return None

    def _first_from(self, position: int) -> tuple[Tensor, int]:
        """The first sample from a position on that can be read, [1, C, H, W], and its place."""
        for step in range(len(self)):
            here = (position + step) % len(self)
            with contextlib.suppress(Exception):  # a reader may raise anything
                return self.read(here), here
        raise BadInput(
            f"not one of {len(self)} samples can be read any more", way_out="see the worker's log"
        )


def readable(source: Partitioner, data_dir: Path, *, strict: bool) -> Partitioner:
    """The samples of a data set without those that cannot be read, which are named in the log.

    Every sample is read once, pictures by threads; samples in memory are not. What was found about
    many pictures is kept in the user's cache folder, and holds until a file changes.
    """
    if isinstance(source, InMemoryPartitioner):
        return source
    tried, are_pictures = tried_all(source), isinstance(source, ImageFilesPartitioner)
    bad, name = tried.bad, partial(_name, source, data_dir)
    said = tried.said(name, are_pictures=are_pictures)
    if turned := said.pop(TURNED, None):
        _log.info("%s: %s", data_dir, turned)
    bits, dark = used_bits([tried])
    if bits is not None and getattr(source, "picture_bits", None) is None:
        said[dark] = f"{dark}, but this run reads all 16 bits, so they are nearly black"
    if said:
        warn_once(f"{data_dir}: {'; '.join(said.values())}")
    if not bad:
        return source
    pictures = "pictures" if are_pictures else "samples"
    count = f"{len(bad)} of {len(source)} {pictures} in {data_dir} cannot be read"
    named = [f"{name(index)} ({bad[index]})" for index in sorted(bad)]
    if len(bad) == len(source):
        raise BadInput(f"{count}, first {named[0]}", way_out=f"check {flag('data_dir')}")
    if 2 * len(bad) > len(source):
        raise BadInput(
            flag("data_dir", data_dir),
            f"most of it is no use: {count}, first {named[0]}",
            "repair them, or move them out of the folder",
        )
    if strict:
        raise BadInput(
            key("strict_data", True),
            f"{count}, first {named[0]}",
            "repair or remove what cannot be read, or leave strict_data out",
        )
    more = [f"{len(bad) - _MOST_NAMED} more"] if len(bad) > _MOST_NAMED else []
    which = ", ".join([*named[:_MOST_NAMED], *more])
    refused = key("strict_data", True)
    warn_once(f"{count} and will be left out: {which}; {refused} would refuse")
    is_good = torch.ones(len(source), dtype=torch.bool)
    is_good[list(bad)] = False
    return Readable(source, is_good.nonzero().squeeze(1))


def _name(source: Partitioner, data_dir: Path, index: int) -> str:
    paths = getattr(source, "paths", None)
    if paths is None:
        return f"sample {index}"
    path = paths[index]
    is_below = path.is_relative_to(data_dir) and path != data_dir
    return shown(str(path.relative_to(data_dir) if is_below else path))


def refuse(error: OSError) -> None:
    """Raises the error that `os.walk` hands over instead."""
    raise error


def shown(name: str) -> str:
    """The name of a file as a line may have it."""
    return name if name.isprintable() else ascii(name)


_tried: dict[str, TriedSamples] = {}


def tried_all(source: Partitioner) -> TriedSamples:
    """What trying all samples has shown, from the cache if it knows these files."""
    digest = _digest(source) if isinstance(source, ImageFilesPartitioner) else None
    if digest is not None and digest in _tried:
        return _tried[digest]
    folder = cache_folder()
    cache = folder and digest and folder / "pictures" / f"{digest}.json"
    if cache:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            known = msgspec.json.decode(cache.read_bytes(), type=TriedSamples)
            if all(0 <= index < len(source) for index in known.bad):
                return known
    began = time.monotonic()
    tried, will_last = _try_all(source)
    if digest is None or not will_last:
        return tried
    _tried[digest] = tried
    if cache and time.monotonic() - began >= _WORTH_KEEPING_SECONDS:
        with contextlib.suppress(OSError):  # the cache only saves time
            cache.parent.mkdir(parents=True, exist_ok=True)
            write_whole(cache, msgspec.json.encode(tried))
    return tried


def _digest(source: ImageFilesPartitioner) -> str | None:
    """Of the paths, sizes and times of change of exactly these pictures, and how they are read."""
    read_by = f"{PIL.__version__} {readable_formats()} {source.shape} {source.picture_bits}"
    digest = hashlib.sha256(read_by.encode())
    try:
        for path in source.paths:
            about = path.stat()
            known = f"\n{path.absolute()} {about.st_size} {about.st_ctime_ns}"
            digest.update(known.encode(errors="surrogateescape"))
    except OSError:
        return None
    return digest.hexdigest()


def _try_all(source: Partitioner) -> tuple[TriedSamples, bool]:
    """Reads every sample, by threads where that helps; says how far it is if that takes long.

    Returns:
        What was found, and whether that will be so until a file changes.
    """
    pieces = [range(i, min(i + _AT_ONCE, len(source))) for i in range(0, len(source), _AT_ONCE)]
    tried, all_last = TriedSamples({}, {}), True
    told = time.monotonic()
    pool, each = ThreadPoolExecutor(num_cores()), partial(_try_some, source)
    results = pool.map(each, pieces) if source.read_one_by_one else map(each, pieces)
    try:
        for piece, found in zip(pieces, results, strict=True):
            for index, (seen, will_last) in zip(piece, found, strict=True):
                all_last &= will_last
                tried.add(index, seen)
            if time.monotonic() - told > _SILENT_SECONDS:
                told = time.monotonic()
                how_far = f"trying to read every sample: {piece.stop:,} of {len(source):,}"
                _log.info(how_far, extra={"shown": "live"})
    finally:
        pool.shutdown(cancel_futures=True)
    return tried, all_last


def _try_some(source: Partitioner, indices: range) -> list[tuple[Seen | str | None, bool]]:
    """Of some samples what was seen, or why they cannot be read; and whether that will last."""
    found = list[tuple[Seen | str | None, bool]]()
    for index in indices:
        try:
            found.append((source.try_reading(index), True))
        except Exception as error:  # a reader may raise anything
            is_of_machine = isinstance(error, OSError) and error.errno
            will_last = not is_of_machine and not isinstance(error, TooLarge)
            path = source.paths[index] if isinstance(source, ImageFilesPartitioner) else None
            found.append((why_unreadable(error, path), will_last))
    return found
