"""A data set's classifier is trained once on a machine, then read from the user's cache folder."""

import hashlib
from contextlib import suppress
from pathlib import Path

import torch

from mdgan.data.dataset_file import DatasetFile
from mdgan.data.partitioner import Partitioner
from mdgan.errors import BadInput
from mdgan.metrics.classifier import ARCHITECTURE, count_classes, train_classifier
from mdgan.metrics.extractor import Extractor
from mdgan.metrics.packing import pack, unpack
from mdgan.settings.machine import cache_folder
from mdgan.storage.state_file import read_tensors, write_tensors

_NUM_SAMPLES_IN_KEY = 8


def cached_classifier(
    dataset: DatasetFile,
    source: Partitioner,
    held_out: Partitioner | None,
    cache_dir: Path | None = None,
) -> Extractor:
    """The classifier of a data set, from the cache or, if it is not there, newly trained.

    A damaged file is overwritten. A cache that cannot be read or written is ignored.
    """
    count_classes(dataset.name, source)
    key = cache_key(dataset, source, held_out)
    base = cache_folder()
    folder = cache_dir or (base and base / "classifiers")
    if folder is None:
        return train_classifier(dataset.name, source, held_out)
    path = folder / f"{dataset.name}-{key[:12]}.safetensors"
    with suppress(BadInput, KeyError, TypeError, ValueError):
        tensors, fields = read_tensors(path)
        if fields.pop("key") == key:
            return unpack(fields, tensors, None)
    trained = train_classifier(dataset.name, source, held_out)
    fields, tensors = pack(trained)
    with suppress(OSError):  # the cache only saves time
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, tensors, {**fields, "key": key})
    return trained


def cache_key(dataset: DatasetFile, source: Partitioner, held_out: Partitioner | None) -> str:
    """SHA-256 of what decides the weights and the accuracy: code, labels, and some images."""
    digest = hashlib.sha256(f"{ARCHITECTURE} {dataset.sha256} {dataset.shape}".encode())
    for part in (source, held_out):
        if part is None:
            digest.update(b"none")
            continue
        some = torch.linspace(0, len(part) - 1, _NUM_SAMPLES_IN_KEY, dtype=torch.float64).long()
        digest.update(f"{len(part)}".encode())
        digest.update(part.labels.numpy().tobytes())
        digest.update(part.images(some).contiguous().numpy().tobytes())
    return digest.hexdigest()
