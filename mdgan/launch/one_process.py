"""What a process does that is everything at once: the server, and all hosts if there are any."""

import contextlib
import logging
import threading
from dataclasses import replace

import torch

from mdgan.engine.host.loop import Connect, Host, HostFailed, ServerLost
from mdgan.engine.server.scoring import Scoring
from mdgan.errors import Interrupted
from mdgan.launch import machine
from mdgan.launch.claim import Claim, timeouts_of
from mdgan.launch.host_process import make_host
from mdgan.launch.prepare import Prepared
from mdgan.launch.scorer_process import scoring_process
from mdgan.launch.server_process import make_membership, serve
from mdgan.transport.memory import MemoryNetwork

_log = logging.getLogger(__name__)


def run_everything(prepared: Prepared, claimed: Claim) -> None:
    """Runs the server and every host in one process: the same code over the memory transport."""
    with scoring_process(prepared, claimed.run) as scoring:
        _be_everything(prepared, claimed, scoring)


def _be_everything(prepared: Prepared, claimed: Claim, scoring: Scoring) -> None:
    torch.set_num_threads(machine.server_threads(prepared.launch))
    device = machine.resolve_device(prepared.launch.device, 0)
    timeouts = replace(
        timeouts_of(prepared), patience=0.0
    )  # a host that is gone here cannot come back
    members = make_membership(prepared, claimed)
    network = MemoryNetwork(timeouts, members.admit)
    threads = []
    for workers in prepared.ranks.hosts:
        connect = _joining(network, workers[0])
        path = claimed.run.path
        host = make_host(prepared, workers, connect, timeouts, device, path, own_process=False)
        threads.append(threading.Thread(target=_run_quietly, args=(host,), daemon=True))
    for thread in threads:
        thread.start()
    try:
        serve(prepared, claimed, network.server, members, scoring, timeouts, device)
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
