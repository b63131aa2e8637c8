"""What a process does that is everything at once: all ranks, or the baseline."""

import contextlib
import logging
import threading
from dataclasses import replace

import torch

from mdgan.engine.host.loop import Connect, Host, HostFailed, ServerLost
from mdgan.engine.learners import make_standalone
from mdgan.engine.server.checkpoints import Saving
from mdgan.engine.server.scoring import Scoring
from mdgan.errors import Interrupted
from mdgan.families.standalone.loop import run_standalone
from mdgan.launch import machine
from mdgan.launch.claim import Claim, make_observer, timeouts_of
from mdgan.launch.host_process import make_host
from mdgan.launch.prepare import Plan
from mdgan.launch.scorer_process import scoring_process
from mdgan.launch.server_process import make_roster, serve
from mdgan.launch.signals import on_stop_signals
from mdgan.settings.config import as_settings
from mdgan.transport.memory import MemoryNetwork

_log = logging.getLogger(__name__)


def run_everything(plan: Plan, claimed: Claim) -> None:
    """Is the server and every host in one process: the same roles over the memory transport."""
    with scoring_process(plan, claimed.run) as scoring:
        _be_everything(plan, claimed, scoring)


def _be_everything(plan: Plan, claimed: Claim, scoring: Scoring) -> None:
    torch.set_num_threads(machine.server_threads(plan.deployment))
    device = machine.resolve_device(plan.deployment.device, 0)
    timeouts = replace(timeouts_of(plan), patience=0.0)  # who is gone here cannot come back
    roster = make_roster(plan, claimed)
    network = MemoryNetwork(timeouts, roster.admit)
    threads = []
    for workers in plan.ranks.hosts:
        connect = _joining(network, workers[0])
        path = claimed.run.path
        host = make_host(plan, workers, connect, timeouts, device, path, own_process=False)
        threads.append(threading.Thread(target=_run_quietly, args=(host,), daemon=True))
    for thread in threads:
        thread.start()
    try:
        serve(plan, claimed, network.server, roster, scoring, timeouts, device)
    finally:
        for thread in threads:
            thread.join()


def _joining(network: MemoryNetwork, number: int) -> Connect:
    return lambda hello, _seconds: network.join(number, hello)


def _run_quietly(host: Host) -> None:
    try:
        with contextlib.suppress(Interrupted, ServerLost):  # the server's thread tells
            host.run()
    except HostFailed as error:
        _log.error("%s", error)


def run_alone(plan: Plan, claimed: Claim) -> None:
    """Is the standalone baseline."""
    with scoring_process(plan, claimed.run) as scoring:
        torch.set_num_threads(machine.server_threads(plan.deployment))
        device = machine.resolve_device(plan.deployment.device, 0)
        shard, goes_on = plan.shard(1), claimed.goes_on
        gan = make_standalone(plan.dataset, plan.experiment, shard, device)
        stop = threading.Event()
        on_stop_signals(stop.set, scoring.abandon)
        observer = make_observer(plan, claimed, gan.generator)
        saving = Saving(
            claimed.checkpoints(plan),
            interval=plan.deployment.checkpoint_interval,
            iterations=plan.experiment.iterations,
            to_server=False,
            settings=as_settings(plan.experiment, plan.deployment),
            fence=claimed.fence,
            observer=observer,
            committed=None if goes_on is None else goes_on.manifest,
        )
        if goes_on is not None:
            goes_on.restore(gan.load_state)
        begun = 0 if goes_on is None else goes_on.manifest.iteration
        counts = shard.class_counts()
        holdings = {"1": {"samples": sum(counts), "classes": counts}}
        iterations = range(begun + 1, plan.experiment.iterations + 1)
        run_standalone(gan, iterations, observer, scoring, saving, holdings, stop)
