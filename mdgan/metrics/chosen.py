"""Chooses the extractor of a run, caches a trained one, and packs it for the workers.

A machine trains the classifier once and then reads it from the user's cache folder. The server
sends it to workers, since its architecture is part of mdgan. The server sends no code: for
Inception and for a user's own file it sends only the SHA-256, and every machine must have the file.
A machine whose user has named such a file uses no other network, whatever the server sends.
"""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mdgan.data.dataset_file import DatasetFile
from mdgan.data.partitioner import Partitioner
from mdgan.data.readable import Readable
from mdgan.errors import BadInput, reason_of
from mdgan.gan.randomness import generator_for
from mdgan.metrics import classifier
from mdgan.metrics.extractor import Extractor, Features, gather
from mdgan.metrics.network_files import from_file, inception, read_weights, shortened
from mdgan.metrics.settings import INCEPTION_URL, Scored, ScoreSettings
from mdgan.samples.contract import HeldOut
from mdgan.settings.machine import cache_folder, path_of
from mdgan.spelling import flag
from mdgan.storage.state_file import read_tensors, write_tensors

CLASSIFIER = "classifier"
INCEPTION = "inception"
_PIECE = 256
_NUM_SAMPLES_IN_KEY = 8
_LEAST_HELD_OUT = 2 * (classifier.NUM_FEATURES + 1)
"""A half with no more samples than features would give no FID."""
WHY_RANDOM = (
    "scores: by a network of random weights, as a classifier has no samples with classes to learn "
    f"from; give it {_LEAST_HELD_OUT} or more by {flag('held_out', 'DIR')}, one subfolder a class, "
    f"or take Inception by {flag('extractor', INCEPTION)} {flag('inception_weights', 'FILE')}, "
    f"which is at {INCEPTION_URL}"
)


def own_file(settings: ScoreSettings) -> Path | None:
    """The user's file behind an extractor, `FILE` or `FILE.py:MODULE`; None for the classifier."""
    if settings.inception_weights is not None:
        return Path(settings.inception_weights)
    return None if settings.extractor == CLASSIFIER else Path(settings.extractor)


def extractor_identity(settings: ScoreSettings, dataset: DatasetFile) -> str:
    """Tries the user's extractor; returns a text that must be equal on all ranks."""
    file = own_file(settings)
    if file is not None and dataset.kind.judges:
        why = f"{dataset.kind.name} are scored column by column"
        raise BadInput(flag("extractor", settings.extractor), why, "leave it out")
    if file is None:
        return CLASSIFIER
    if settings.inception_weights is not None:
        read_weights(file)
        return INCEPTION
    return f"sha256 {from_file(file, dataset.shape).sha256}"


def make_extractor(
    settings: Scored,
    dataset: DatasetFile,
    source: Callable[[], Partitioner],
    held_out: Callable[[], Partitioner | None],
) -> Extractor:
    """Loads the network, or trains the classifier; without samples to train on, a random network.

    No noise covers the classifier, and it stays in the run's folder. So where workers' samples are
    private it is trained on held-out samples alone, and read from no cache, where one that has seen
    others may be.

    Args:
        source: opens the data to train on; not called where workers keep theirs.
        held_out: opens the samples to test on; where workers keep theirs, half of them trains.
    """
    file = own_file(settings.scores)
    if settings.scores.inception_weights is not None:
        return inception(Path(settings.scores.inception_weights))
    if file is not None:
        return from_file(file, dataset.shape)
    if trains_on_held_out(settings, dataset):
        others = held_out()
        if others is None or not _teaches(others):
            return classifier.random_network(dataset.shape)
        name = f"half of the held-out samples of {dataset.name}"
        return classifier.train_classifier(name, *_halves(others))
    samples = source()
    if not _has_classes(samples):
        return classifier.random_network(dataset.shape)
    return cached_classifier(dataset, samples, held_out())


def open_held_out(settings: Scored, dataset: DatasetFile, data_dir: Path) -> Partitioner | None:
    """Opens the samples that the server may hold; None if there are none.

    Raises:
        BadInput: the folder that the user named cannot be used, or holds workers' samples under
            differential privacy.
    """
    if settings.scores.held_out is not None:
        folder = path_of(settings.scores.held_out)
        if dataset.held_out is None and settings.privacy.has_dp:
            public, private = folder.resolve(), data_dir.resolve()
            if public.is_relative_to(private) or private.is_relative_to(public):
                why = f"workers train on samples that lie there ({private})"
                way_out = "name a folder beside it, of samples that no worker has"
                raise BadInput(flag("held_out", settings.scores.held_out), why, way_out)
        try:
            return (dataset.open if dataset.held_out is None else dataset.open_held_out)(folder)
        except BadInput as error:  # the reader's message names --data-dir
            is_folder = error.setting == "data_dir"
            what = flag("held_out", settings.scores.held_out) if is_folder else error.what
            way_out = error.way_out.replace(f"{flag('data_dir')}", f"{flag('held_out')}")
            raise BadInput(what, error.why, way_out) from error
    try:
        return dataset.open_held_out(data_dir)
    except BadInput:
        return None


def trains_on_held_out(settings: Scored, dataset: DatasetFile) -> bool:
    """Whether the extractor is a classifier that must be trained without workers' samples.

    That is so under differential privacy, and if every worker has its own data.
    """
    learns = own_file(settings.scores) is None and not dataset.kind.judges
    return learns and (settings.privacy.has_dp or not settings.data.partition.divides)


def judging(
    settings: Scored, dataset: DatasetFile, held_out: Partitioner | None
) -> Partitioner | None:
    """The held-out samples to compare with: all of them, or the half that trained no classifier."""
    if held_out is None or not trains_on_held_out(settings, dataset) or not _teaches(held_out):
        return held_out
    return _halves(held_out)[1]


def _teaches(held_out: Partitioner) -> bool:
    """Whether half of the held-out samples can train a classifier, and the other half judge."""
    return len(held_out) >= _LEAST_HELD_OUT and _has_classes(held_out)


def _has_classes(source: Partitioner) -> bool:
    return bool((source.labels != source.labels[0]).any())


def _halves(held_out: Partitioner) -> tuple[Partitioner, Partitioner]:
    """Random halves of each class, equal in all runs: one to train on, one to judge by."""
    order = torch.randperm(len(held_out), generator=generator_for(0, "halves"))
    labels, by_class = held_out.labels[order].sort(stable=True)
    is_second = (torch.arange(len(order)) - torch.searchsorted(labels, labels)) % 2 == 1
    first, second = order[by_class[~is_second]], order[by_class[is_second]]
    return Readable(held_out, first.sort().values), Readable(held_out, second.sort().values)


def features_of(source: Partitioner, extractor: Extractor) -> Features:
    """The features of all samples of a data set, with their labels."""
    pieces = torch.split(torch.arange(len(source)), _PIECE)
    features = gather(extractor(source.images(piece)) for piece in pieces)
    return replace(features, labels=source.labels)


def all_of(source: Partitioner) -> HeldOut:
    """All samples of a data set, with their labels."""
    return source.images(torch.arange(len(source))), source.labels


def cached_classifier(
    dataset: DatasetFile, source: Partitioner, held_out: Partitioner | None
) -> Extractor:
    """The classifier of a data set, read from the cache or else trained and cached.

    It overwrites a damaged file, and ignores a cache that it cannot read or write.
    """
    base = cache_folder()
    if base is None:
        return classifier.train_classifier(dataset.name, source, held_out)
    key = _cache_key(dataset, source, held_out)
    path = base / "classifiers" / f"{dataset.name}-{key[:12]}.safetensors"
    with suppress(BadInput, KeyError, TypeError, ValueError):
        tensors, fields = read_tensors(path)
        if fields.pop("key") == key:
            return unpack(fields, tensors, None)
    trained = classifier.train_classifier(dataset.name, source, held_out)
    fields, tensors = pack(trained)
    with suppress(OSError):  # the cache only saves time
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, tensors, {**fields, "key": key})
    return trained


def _cache_key(dataset: DatasetFile, source: Partitioner, held_out: Partitioner | None) -> str:
    """SHA-256 of what determines weights and accuracy: architecture, labels, and some images."""
    digest = hashlib.sha256(f"{classifier.ARCHITECTURE} {dataset.sha256} {dataset.shape}".encode())
    for part in (source, held_out):
        if part is None:
            digest.update(b"none")
            continue
        some = torch.linspace(0, len(part) - 1, _NUM_SAMPLES_IN_KEY, dtype=torch.float64).long()
        digest.update(f"{len(part)}".encode())
        digest.update(part.labels.numpy().tobytes())
        digest.update(part.images(some).contiguous().numpy().tobytes())
    return digest.hexdigest()


def pack(extractor: Extractor) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """An extractor as JSON fields and, if weights are sent, tensors on the CPU for `unpack`."""
    fields: dict[str, Any] = {
        "kind": extractor.kind,
        "name": extractor.name,
        "sha256": extractor.sha256,
        "shape": None if extractor.shape is None else list(extractor.shape),
        "classes": extractor.num_classes,
        "accuracy": extractor.accuracy,
    }
    sent = extractor.network.state_dict() if extractor.kind == CLASSIFIER else {}
    return fields, {name: tensor.detach().cpu() for name, tensor in sent.items()}


def unpack(
    fields: Mapping[str, Any], tensors: Mapping[str, Tensor], own_file: Path | None
) -> Extractor:
    """Rebuilds an extractor that `pack` has packed, on the CPU.

    Args:
        own_file: this machine's `--inception-weights` or `--extractor`, for an extractor that is
            not sent; None if its user agreed to the data set's classifier.
    """
    name, wanted = fields["name"], fields["sha256"]
    if fields["kind"] in (CLASSIFIER, classifier.RANDOM) and own_file is not None:
        raise BadInput(
            f"the server sends the {name}, but {flag('extractor')} here names {own_file}",
            way_out="give every rank the same extractor",
        )
    if fields["kind"] == CLASSIFIER:
        try:
            about = tuple(fields["shape"]), fields["classes"], fields["accuracy"]
            extractor = classifier.assemble(name.removeprefix("classifier of "), *about, tensors)
            if extractor.sha256 != wanted:
                raise ValueError(f"SHA-256 is {shortened(extractor.sha256)}")
        except (RuntimeError, ValueError) as error:
            raise BadInput(
                f"the {name} that arrived does not fit its architecture ({reason_of(error)})",
                way_out="install the same version of mdgan on every machine",
            ) from error
        return extractor
    if fields["kind"] == classifier.RANDOM:
        extractor = classifier.random_network(tuple(fields["shape"]))
        if extractor.sha256 != wanted:
            raise BadInput(
                "the server's random network is another one than here",
                way_out="install the same version of mdgan and torch on every machine",
            )
        return extractor
    if own_file is None:
        named = f"{flag('extractor', 'FILE')}"
        if fields["kind"] == INCEPTION:
            named = f"{flag('extractor', INCEPTION)} {flag('inception_weights', 'FILE')}"
        raise BadInput(
            f"the server's extractor {name} (SHA-256 {shortened(wanted)}) does not travel",
            way_out=f"copy its file to this machine and name it with {named}",
        )
    if fields["kind"] == INCEPTION:
        return inception(own_file, wanted)
    extractor = from_file(own_file, tuple(fields["shape"]))
    if extractor.sha256 != wanted:
        why = f"SHA-256 is {shortened(extractor.sha256)}, the server's is {shortened(wanted)}"
        raise BadInput(flag("extractor", own_file), why, "copy the server's file to this machine")
    return extractor
