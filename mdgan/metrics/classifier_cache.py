"""A data set's classifier is trained once on a machine, then read from the user's cache folder."""

import hashlib
import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes

from mdgan.data.dataset_file import DatasetFile
from mdgan.data.partitioner import Partitioner
from mdgan.metrics.classifier import ARCHITECTURE, assemble, count_classes, train_classifier
from mdgan.metrics.extractor import Extractor
from mdgan.storage.whole_file import write_whole

_NUM_SAMPLES_IN_KEY = 8


def cached_classifier(
    dataset: DatasetFile,
    source: Partitioner,
    held_out: Partitioner | None,
    cache_dir: Path | None = None,
) -> Extractor:
    """The classifier of a data set, from the cache or, if it is not there, newly trained.

    A damaged file is overwritten. A cache that cannot be read or written is ignored.

    Args:
        dataset: the dataset file.
        source: the data to train on.
        held_out: what to measure the accuracy on, or None.
        cache_dir: where the files lie; by default `mdgan/classifiers` in `$XDG_CACHE_HOME` or
            `~/.cache`.

    Raises:
        BadInput: fewer than two classes.
    """
    num_classes = count_classes(dataset.name, source)
    key = cache_key(dataset, source, held_out)
    folder = _default_folder() if cache_dir is None else cache_dir
    if folder is None:
        return train_classifier(dataset.name, source, held_out)
    path = folder / f"{dataset.name}-{key[:12]}.safetensors"
    found = _read(path, key, dataset, num_classes)
    if found is not None:
        return found
    trained = train_classifier(dataset.name, source, held_out)
    _write(path, key, trained)
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


def _default_folder() -> Path | None:
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG specification: relative paths there are to be ignored.
        base = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # the user has no home folder
        return None
    return base / "mdgan" / "classifiers"


def _read(path: Path, key: str, dataset: DatasetFile, num_classes: int) -> Extractor | None:
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads(file.metadata()["mdgan"])
            names = file.keys()
            state = {name: file.get_tensor(name) for name in names}
        accuracy = float(about["accuracy"])
        extractor = assemble(dataset.name, dataset.shape, num_classes, accuracy, state)
        expected = {**_about(key, extractor), "accuracy": accuracy}
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError):
        return None
    return extractor if about == expected else None


def _write(path: Path, key: str, extractor: Extractor) -> None:
    about = {"mdgan": json.dumps(_about(key, extractor))}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, safetensors_bytes(extractor.network.state_dict(), metadata=about))
    except OSError:
        pass  # the cache only saves time


def _about(key: str, extractor: Extractor) -> dict[str, str | float | None]:
    return {
        "key": key,
        "name": extractor.name,
        "accuracy": extractor.accuracy,
        "sha256": extractor.sha256,
    }
