"""Starts the scorer as a fork of the server's process, before that starts threads."""

import contextlib
import logging
import os
import signal
import traceback
import warnings
from collections.abc import Iterator
from functools import partial
from multiprocessing import Pipe
from typing import NoReturn

import torch

from mdgan.data.partitioner import Partitioner
from mdgan.engine.channel import Channel, ChannelClosed
from mdgan.engine.scorer import Scorer
from mdgan.engine.server.scoring import ScorerLink
from mdgan.launch.checked import Checked
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
    """Forks the scorer if the run has scores; it ends with the block or with this process.

    Training waits neither for it nor for the classifier that it may have to train first.
    """
    settings = checked.settings
    if not 0 < settings.scores.eval_interval <= settings.training.iterations:
        yield ScorerLink()
        return
    ours, theirs = Pipe()
    with warnings.catch_warnings():
        # The one thread that may be there waits for the launcher's end and holds no lock.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        ours.close()
        _be_scorer(checked, run, Channel(theirs))
    theirs.close()
    try:
        hosts_describe = checked.algorithm.has_hosts and settings.privacy.discloses(FEATURES)
        knows_real = checked.dataset.kind.judges or not hosts_describe
        yield ScorerLink(Channel(ours), knows_real=knows_real)
    finally:
        ours.close()
        os.waitpid(child, 0)


def _be_scorer(checked: Checked, run: RunDirectory, channel: Channel) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.nice(_NICENESS)
        torch.set_num_threads(1)
        _make_scorer(checked, run, channel).run()
        status = 0
    except ChannelClosed:
        status = 0
    except OSError as error:
        _log.error("the scorer cannot go on: %s", error)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # a child must not run its parent's clean-up


def _make_scorer(checked: Checked, run: RunDirectory, channel: Channel) -> Scorer:
    settings, dataset = checked.settings, checked.dataset
    held_out = partial(
        chosen.open_held_out, settings, dataset, settings.data.data_folder(dataset.name, 1)
    )

    def extractor() -> Extractor:
        network = chosen.make_extractor(settings, dataset, lambda: _data_here(checked), held_out)
        if network.kind == RANDOM:
            _log.info(chosen.WHY_RANDOM)
        return network

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
    """The data set of a worker here, or this machine's copy of the data that workers divide."""
    for source, indices in checked.holdings.values():
        if len(indices):
            return source
    return checked.dataset.open(checked.settings.data.data_folder(checked.dataset.name, 1))
