"""Which network gives the features that are scored, as the user asked for it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from mdgan.data.dataset_file import DatasetFile
from mdgan.data.images import Shape
from mdgan.data.partitioner import Partitioner
from mdgan.errors import BadInput
from mdgan.metrics.classifier_cache import cached_classifier
from mdgan.metrics.extractor import Extractor, Features, gather
from mdgan.metrics.inception import inception, read_weights
from mdgan.metrics.module_file import from_file
from mdgan.metrics.settings import ScoreSettings
from mdgan.settings.machine import path_of

CLASSIFIER = "classifier"
INCEPTION = "inception"
_PIECE = 256


def own_file(settings: ScoreSettings) -> Path | None:
    """The user's file behind an extractor, `FILE` or `FILE.py:MODULE`; None for the classifier."""
    if settings.inception_weights is not None:
        return Path(settings.inception_weights)
    return None if settings.extractor == CLASSIFIER else Path(settings.extractor)


def extractor_identity(settings: ScoreSettings, shape: Shape) -> str:
    """Tries the user's extractor; tells what must be equal on every rank to add up features.

    Args:
        settings: name it.
        shape: (C, H, W) of the images.

    Raises:
        BadInput: the user's file is not there, is another, or does not give features.
    """
    file = own_file(settings)
    if file is None:
        return CLASSIFIER
    if settings.inception_weights is not None:
        read_weights(file)
        return INCEPTION
    return f"sha256 {from_file(file, shape).sha256}"


def make_extractor(
    settings: ScoreSettings,
    dataset: DatasetFile,
    source: Callable[[], Partitioner],
    held_out: Callable[[], Partitioner | None],
) -> Extractor:
    """Loads the network, or trains the classifier where it has not been yet.

    Args:
        settings: name it.
        dataset: what it looks at.
        source: opens labelled data to train on.
        held_out: opens the samples to test on.

    Raises:
        BadInput: it cannot be had.
    """
    file = own_file(settings)
    if file is None:
        return cached_classifier(dataset, source(), held_out())
    if settings.inception_weights is not None:
        return inception(file)
    return from_file(file, dataset.shape)


def open_held_out(
    settings: ScoreSettings, dataset: DatasetFile, data_dir: Path
) -> Partitioner | None:
    """Opens the samples that the server may hold; None if there are none.

    Raises:
        BadInput: the folder that the user named cannot be used.
    """
    if settings.held_out is not None:
        folder = path_of(settings.held_out)
        return (dataset.open if dataset.held_out is None else dataset.open_held_out)(folder)
    try:
        return dataset.open_held_out(data_dir)
    except BadInput:
        return None


def features_of(source: Partitioner, extractor: Extractor) -> Features:
    """The features of all samples of a data set, with their labels."""
    pieces = torch.split(torch.arange(len(source)), _PIECE)
    features = gather(extractor(source.images(piece)) for piece in pieces)
    return replace(features, labels=source.labels)
