"""Starts the scorer, a child of the process that owns the generator, before that has threads."""

import contextlib
import logging
import os
import signal
import warnings
from collections.abc import Iterator
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import torch

from mdgan.data.partitioner import Partitioner
from mdgan.engine.channel import Channel, ChannelClosed
from mdgan.engine.scorer import Scorer
from mdgan.engine.server.scoring import ScorerLink
from mdgan.launch.checked import Checked
from mdgan.launch.forks import start
from mdgan.metrics import chosen
from mdgan.metrics.classifier import RANDOM
from mdgan.metrics.extractor import Extractor, Features
from mdgan.metrics.real_statistics import RealSamples
from mdgan.privacy.settings import FEATURES
from mdgan.records.run_directory import RunDirectory
from mdgan.samples.contract import HeldOut

_log = logging.getLogger(__name__)

_NICENESS = 10


@contextlib.contextmanager
def scoring_process(checked: Checked, run: RunDirectory) -> Iterator[ScorerLink]:
    """Starts the scorer, if anything is to be scored; it ends with the block or this process.

    Training does not wait for it, nor for the classifier that it may have to train first.
    """
    settings = checked.settings
    if not 0 < settings.scores.eval_interval <= settings.training.iterations:
        yield ScorerLink()
        return
    ours, theirs = Pipe()
    with warnings.catch_warnings():
        # The one thread that may be there waits for the launcher's end and holds no lock.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = start(_be_scorer, checked, run, theirs, closes=[ours])
    theirs.close()
    try:
        told = checked.algorithm.has_hosts and settings.privacy.discloses(FEATURES)
        alone = checked.dataset.kind.judges or not told
        yield ScorerLink(Channel(ours), knows_real=alone)
    finally:
        ours.close()
        child.join()


def _be_scorer(checked: Checked, run: RunDirectory, end: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.nice(_NICENESS)
    torch.set_num_threads(1)
    try:
        _make_scorer(checked, run, Channel(end)).run()
    except ChannelClosed:
        pass
    except OSError as error:
        _log.error("the scorer cannot go on: %s", error)


def _make_scorer(checked: Checked, run: RunDirectory, channel: Channel) -> Scorer:
    settings, dataset = checked.settings, checked.dataset
    held_out = partial(
        chosen.open_held_out, settings, dataset, settings.data.data_folder(dataset.name, 1)
    )

    def extractor() -> Extractor:
        made = chosen.make_extractor(settings, dataset, lambda: _data_here(checked), held_out)
        if made.kind == RANDOM:
            _log.info(chosen.WHY_RANDOM)
        return made

    opened: list[Partitioner] = []

    def held_out_features(extractor: Extractor) -> Features | None:
        source = chosen.judging(settings, dataset, held_out())
        if source is None:
            return None
        opened.append(source)
        return chosen.features_of(source, extractor)

    def held_out_samples() -> HeldOut | None:
        source = held_out()
        return None if source is None else chosen.all_of(source)

    real = RealSamples(
        extractor,
        held_out_features,
        lambda places: opened[-1].images(places),
        held_out_samples,
        dataset.kind,
        real_is_held_out=not settings.privacy.discloses(FEATURES),
        shards=[] if checked.algorithm.has_hosts else [checked.shard(1)],
    )
    return Scorer(
        channel,
        run,
        real,
        checked.models.generator(),
        z_dim=checked.models.z_dim,
        num_samples=min(settings.scores.eval_samples, dataset.kind.most_scored),
        seed=settings.training.seed,
    )


def _data_here(checked: Checked) -> Partitioner:
    """The data set that workers divide, a copy of which lies on this machine."""
    for source, indices in checked.holdings.values():
        if len(indices):
            return source
    return checked.dataset.open(checked.settings.data.data_folder(checked.dataset.name, 1))
