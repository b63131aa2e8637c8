"""Tries to read every sample before training, and replaces samples that fail later on.

Names of files stay on the machine that has them: this module logs them, and puts none into an error
that could reach the server.
"""

import contextlib
import hashlib
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import PIL
import torch
from torch import Tensor

from mdgan.data.partitioner import ImageFilesPartitioner, InMemoryPartitioner, Partitioner
from mdgan.data.tried import TriedSamples, used_bits
from mdgan.errors import BadInput, warn_once
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


class Readable(Partitioner):
    """Some samples of a data set; if one cannot be read any more, the next one replaces it."""

    def __init__(self, source: Partitioner, indices: Tensor) -> None:
        self.labels = source.labels[indices]
        self.class_names = source.class_names
        self.groups = None if source.groups is None else source.groups[indices]
        self.read_one_by_one = source.read_one_by_one
        self._warnings: list[str] = []
        self._source: Partitioner = source
        self._indices: Tensor = indices
        if isinstance(source, Readable):
            self._warnings = source._warnings
            self._source, self._indices = source._source, source._indices[indices]

    def read(self, position: int) -> Tensor:
        """Reads one sample, [1, C, H, W], without replacing it; raises anything if that fails."""
        return self._source.images(self._indices[position : position + 1])

    def images(self, indices: Tensor) -> Tensor:
        """Reads samples as `samples` does, without their classes."""
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
        remedy = "the worker's next sample stands in for each that cannot be read"
        if (samples := self._try_all_at_once(indices, remedy)) is not None:
            return samples
        images, places = zip(*map(self._first_from, indices.tolist()), strict=True)
        return Samples(torch.cat(images), self.labels[list(places)])

    def available(self, indices: Tensor) -> Samples:
        """Reads samples as `samples` does, but leaves out those that cannot be read."""
        if not len(indices):  # a reader may fail if it is asked for no samples
            return Samples(self.images(torch.zeros(1, dtype=torch.int64))[:0], self.labels[:0])
        remedy = "samples that cannot be read are left out"
        if (samples := self._try_all_at_once(indices, remedy)) is not None:
            return samples
        images, places = [], []
        for position in indices.tolist():
            with contextlib.suppress(Exception):  # a reader may raise anything
                images.append(self.read(position))
                places.append(position)
        if not images:
            return self.available(indices[:0])
        return Samples(torch.cat(images), self.labels[places])

    def _try_all_at_once(self, indices: Tensor, remedy: str) -> Samples | None:
        """Reads samples; if one cannot be read, warns the user once, with the remedy: None."""
        try:
            return Samples(self._source.images(self._indices[indices]), self.labels[indices])
        except MemoryError:
            raise
        except Exception as error:  # a reader may raise anything
            if isinstance(self._source, InMemoryPartitioner):
                raise
            if not self._warnings:
                self._warnings.append(str(error))
                _log.warning("warning: %s. From now on %s; this is said only once", error, remedy)
            return None

    def _first_from(self, position: int) -> tuple[Tensor, int]:
        """The first readable sample from a position on, [1, C, H, W], and its place."""
        for step in range(len(self)):
            place = (position + step) % len(self)
            with contextlib.suppress(Exception):  # a reader may raise anything
                return self.read(place), place
        raise BadInput(
            f"not one of {len(self)} samples can be read any more", way_out="see the worker's log"
        )


def readable(source: Partitioner, data_dir: Path, *, strict: bool) -> Partitioner:
    """Returns a data set without the samples that cannot be read, and names those in the log.

    It reads every sample once, pictures by threads, unless all are in memory. It keeps the findings
    on many pictures in the user's cache folder, and uses them until a file changes.
    """
    if isinstance(source, InMemoryPartitioner):
        return source
    tried, are_pictures = tried_all(source), isinstance(source, ImageFilesPartitioner)
    bad, name = tried.bad, partial(_name, source, data_dir)
    remarks = tried.said(name, are_pictures=are_pictures)
    if turned := remarks.pop(TURNED, None):
        _log.info("%s: %s", data_dir, turned)
    bits, dark = used_bits([tried])
    if bits is not None and getattr(source, "picture_bits", None) is None:
        remarks[dark] = f"{dark}, but this run reads all 16 bits, so they are nearly black"
    if remarks:
        warn_once(f"{data_dir}: {'; '.join(remarks.values())}")
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
    """Raises an error of `os.walk`, which passes errors to a function instead of raising them."""
    raise error


def shown(name: str) -> str:
    """The name of a file without characters that would break a line of the log."""
    return name if name.isprintable() else ascii(name)


_tried: dict[str, TriedSamples] = {}


def tried_all(source: Partitioner) -> TriedSamples:
    """Tries all samples, or takes the findings from the cache if it has these files."""
    digest = _digest(source) if isinstance(source, ImageFilesPartitioner) else None
    if digest is not None and digest in _tried:
        return _tried[digest]
    folder = cache_folder()
    cache = folder and digest and folder / "pictures" / f"{digest}.json"
    if cache:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            cached = msgspec.json.decode(cache.read_bytes(), type=TriedSamples)
            if all(0 <= index < len(source) for index in cached.bad):
                return cached
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
    """A digest of the paths, sizes and change times of the pictures, and of how they are read."""
    read_by = f"{PIL.__version__} {readable_formats()} {source.shape} {source.picture_bits}"
    digest = hashlib.sha256(read_by.encode())
    try:
        for path in source.paths:
            about = path.stat()
            line = f"\n{path.absolute()} {about.st_size} {about.st_ctime_ns}"
            digest.update(line.encode(errors="surrogateescape"))
    except OSError:
        return None
    return digest.hexdigest()


def _try_all(source: Partitioner) -> tuple[TriedSamples, bool]:
    """Reads every sample, by threads where that helps; logs its progress if that takes long.

    Returns:
        The findings, and whether they hold until a file changes.
    """
    pieces = [range(i, min(i + _AT_ONCE, len(source))) for i in range(0, len(source), _AT_ONCE)]
    tried, all_last = TriedSamples({}, {}), True
    logged_at = time.monotonic()
    pool, try_piece = ThreadPoolExecutor(num_cores()), partial(_try_some, source)
    results = pool.map(try_piece, pieces) if source.read_one_by_one else map(try_piece, pieces)
    try:
        for piece, findings in zip(pieces, results, strict=True):
            for index, (seen, will_last) in zip(piece, findings, strict=True):
                all_last &= will_last
                tried.add(index, seen)
            if time.monotonic() - logged_at > _SILENT_SECONDS:
                logged_at = time.monotonic()
                how_far = f"trying to read every sample: {piece.stop:,} of {len(source):,}"
                _log.info(how_far, extra={"shown": "live"})
    finally:
        pool.shutdown(cancel_futures=True)
    return tried, all_last


def _try_some(source: Partitioner, indices: range) -> list[tuple[Seen | str | None, bool]]:
    """For each sample, its traits or why it cannot be read; and whether that will stay so."""
    findings = list[tuple[Seen | str | None, bool]]()
    for index in indices:
        try:
            findings.append((source.try_reading(index), True))
        except Exception as error:  # a reader may raise anything
            is_of_machine = isinstance(error, OSError) and error.errno
            will_last = not is_of_machine and not isinstance(error, TooLarge)
            path = source.paths[index] if isinstance(source, ImageFilesPartitioner) else None
            findings.append((why_unreadable(error, path), will_last))
    return findings
