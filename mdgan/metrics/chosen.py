"""Which network gives the features that are scored, as the user asked for it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from mdgan.data.dataset_file import DatasetFile
from mdgan.data.images import Shape
from mdgan.data.partitioner import Partitioner
from mdgan.data.readable import Readable
from mdgan.errors import BadInput
from mdgan.gan.randomness import generator_for
from mdgan.metrics.classifier import NUM_FEATURES, count_classes, train_classifier
from mdgan.metrics.classifier_cache import cached_classifier
from mdgan.metrics.extractor import Extractor, Features, gather
from mdgan.metrics.network_files import from_file, inception, read_weights
from mdgan.metrics.settings import Scored, ScoreSettings
from mdgan.settings.machine import path_of

CLASSIFIER = "classifier"
INCEPTION = "inception"
_PIECE = 256
_LEAST_HELD_OUT = 2 * (NUM_FEATURES + 1)
"""From a half with no more samples than features there is no FID."""


def own_file(settings: ScoreSettings) -> Path | None:
    """The user's file behind an extractor, `FILE` or `FILE.py:MODULE`; None for the classifier."""
    if settings.inception_weights is not None:
        return Path(settings.inception_weights)
    return None if settings.extractor == CLASSIFIER else Path(settings.extractor)


def extractor_identity(settings: ScoreSettings, shape: Shape) -> str:
    """Tries the user's extractor; tells what must be equal on every rank to add up features."""
    file = own_file(settings)
    if file is None:
        return CLASSIFIER
    if settings.inception_weights is not None:
        read_weights(file)
        return INCEPTION
    return f"sha256 {from_file(file, shape).sha256}"


def make_extractor(
    settings: Scored,
    dataset: DatasetFile,
    source: Callable[[], Partitioner],
    held_out: Callable[[], Partitioner | None],
) -> Extractor:
    """Loads the network, or trains the classifier where it has not been yet.

    No noise covers the classifier, and it stays in the run's folder. So under differential privacy
    it is trained on held-out samples alone, and read from no cache, where one of a run without
    privacy may be.

    Args:
        source: opens labelled data to train on; not called under differential privacy.
        held_out: opens the samples to test on; under differential privacy half of them trains.
    """
    file = own_file(settings.scores)
    if trains_on_held_out(settings):
        return _classifier_of_held_out(settings, dataset, held_out())
    if file is None:
        return cached_classifier(dataset, source(), held_out())
    if settings.scores.inception_weights is not None:
        return inception(file)
    return from_file(file, dataset.shape)


def open_held_out(settings: Scored, dataset: DatasetFile, data_dir: Path) -> Partitioner | None:
    """Opens the samples that the server may hold; None if there are none.

    Raises:
        BadInput: the folder that the user named cannot be used, or holds workers' samples under
            differential privacy.
    """
    if settings.scores.held_out is not None:
        folder = path_of(settings.scores.held_out)
        if dataset.held_out is None and settings.privacy.has_dp:
            _check_apart(settings.scores.held_out, folder.resolve(), data_dir.resolve())
        return (dataset.open if dataset.held_out is None else dataset.open_held_out)(folder)
    try:
        return dataset.open_held_out(data_dir)
    except BadInput:
        return None


def _check_apart(given: str, folder: Path, data_dir: Path) -> None:
    if folder.is_relative_to(data_dir) or data_dir.is_relative_to(folder):
        raise BadInput(
            f"--held-out {given}: workers train on samples that lie there ({data_dir}); name a "
            "folder beside it, of samples that no worker has"
        )


def trains_on_held_out(settings: Scored) -> bool:
    """Whether the network is a classifier that must not be trained on workers' samples."""
    return settings.privacy.has_dp and own_file(settings.scores) is None


def judging(settings: Scored, held_out: Partitioner | None) -> Partitioner | None:
    """The held-out samples to compare with: all of them, or the half that trained no classifier."""
    if held_out is None or not trains_on_held_out(settings) or len(held_out) < _LEAST_HELD_OUT:
        return held_out
    return _halves(held_out)[1]


def _classifier_of_held_out(
    settings: Scored, dataset: DatasetFile, held_out: Partitioner | None
) -> Extractor:
    """A classifier that has seen no worker's sample."""
    number = 0 if held_out is None else len(held_out)
    if held_out is None or number < _LEAST_HELD_OUT:
        raise BadInput(
            f"--extractor {CLASSIFIER}: with {settings.privacy.dp_flag} it learns from held-out "
            f"samples alone, at least {_LEAST_HELD_OUT}, and there are {number} here; give more "
            "with --held-out DIR, or another network with --extractor FILE"
        )
    count_classes(dataset.name, held_out)
    return train_classifier(_half_of(dataset), *_halves(held_out))


def _half_of(dataset: DatasetFile) -> str:
    """What the classifier says that it was trained on."""
    return f"half of the held-out samples of {dataset.name}"


def knows_workers(extractor: Extractor, dataset: DatasetFile) -> bool:
    """Whether a kept network is a classifier that was trained on workers' samples."""
    return extractor.kind == CLASSIFIER and not extractor.name.endswith(_half_of(dataset))


def _halves(held_out: Partitioner) -> tuple[Partitioner, Partitioner]:
    """Two halves of each class, drawn at random, but in all runs the same: to train, to judge."""
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
