"""Starts the scorer: a fork of the process that owns the generator, made before it has threads."""

import contextlib
import logging
import os
import signal
import socket
import traceback
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from typing import NoReturn

import torch

from mdgan.data.partitioner import Partitioner
from mdgan.engine.scorer import Scorer
from mdgan.engine.server.scoring import Scoring
from mdgan.errors import BadInput
from mdgan.launch.prepare import Plan, data_dir
from mdgan.metrics.chosen import CLASSIFIER, features_of, make_extractor, open_held_out
from mdgan.metrics.extractor import Extractor, Features
from mdgan.records.run_directory import RunDirectory
from mdgan.transport.channel import Channel, ChannelClosed

_log = logging.getLogger(__name__)

_NICENESS = 10


@contextlib.contextmanager
def scoring_process(
    plan: Plan, run: RunDirectory, sockets: Sequence[socket.socket] = ()
) -> Iterator[Scoring]:
    """Forks the scorer, if anything is to be scored; it ends with the block or with this process.

    Training does not wait for it, nor for the classifier that it may have to train first.

    Args:
        plan: the checked run.
        run: its folder.
        sockets: open ones that the scorer must not keep.
    """
    interval, iterations = plan.deployment.eval_interval, plan.experiment.iterations
    if not 0 < interval <= iterations:
        yield Scoring(None, interval, iterations)
        return
    ours, theirs = Pipe()
    with warnings.catch_warnings():
        # The one thread that may be there waits for the launcher's end and holds no lock.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        ours.close()
        for inherited in sockets:
            inherited.close()
        _be_scorer(plan, run, Channel(theirs))
    theirs.close()
    try:
        yield Scoring(Channel(ours), interval, iterations)
    finally:
        ours.close()
        os.waitpid(child, 0)


def _be_scorer(plan: Plan, run: RunDirectory, channel: Channel) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.nice(_NICENESS)
        torch.set_num_threads(1)
        _make_scorer(plan, run, channel).run()
        status = 0
    except ChannelClosed:
        status = 0
    except OSError as error:
        _log.error("the scorer cannot go on: %s", error)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # the parent's own clean-up is not the child's to run


def _make_scorer(plan: Plan, run: RunDirectory, channel: Channel) -> Scorer:
    folder = data_dir(plan.deployment, plan.dataset, 1)

    def held_out() -> Partitioner | None:
        return open_held_out(plan.deployment, plan.dataset, folder)

    def extractor() -> Extractor:
        return make_extractor(plan.deployment, plan.dataset, lambda: _labelled(plan), held_out)

    def held_out_features(extractor: Extractor) -> Features | None:
        source = held_out()
        return None if source is None else features_of(source, extractor)

    alone = plan.experiment.algorithm == "standalone"
    return Scorer(
        channel,
        run,
        extractor,
        held_out_features,
        plan.dataset.generator(),
        z_dim=plan.dataset.z_dim,
        num_samples=plan.deployment.eval_samples,
        seed=plan.experiment.seed,
        shards=[plan.shard(1)] if alone else [],
    )


def _labelled(plan: Plan) -> Partitioner:
    """The data set that a classifier may be trained on, if it lies on this machine anyway."""
    if plan.experiment.partition == "none":
        raise BadInput(
            f"--extractor {CLASSIFIER} needs labelled data, which --partition none leaves with "
            "its workers; give --extractor FILE or --inception-weights FILE"
        )
    for source, _ in plan.holdings.values():
        return source
    return plan.dataset.open(data_dir(plan.deployment, plan.dataset, 1))
