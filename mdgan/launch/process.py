"""What one process does: be the server, be a host, or be everything."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from mdgan import __version__
from mdgan.errors import Interrupted
from mdgan.launch import machine
from mdgan.launch.extractors import own_file
from mdgan.launch.plan import Plan
from mdgan.launch.scorer_process import scoring_process
from mdgan.observe.run_directory import RunDirectory
from mdgan.observe.run_observer import RunObserver
from mdgan.observe.tensorboard import TensorBoardWriter
from mdgan.observe.tracer import Tracer, traced_every
from mdgan.roles.describer import Describer
from mdgan.roles.host import Host, HostFailed, ServerLost
from mdgan.roles.roster import Roster, make_hello
from mdgan.roles.scoring import Scoring
from mdgan.roles.server import Server
from mdgan.roles.setup import make_generator_learner, make_standalone, make_worker
from mdgan.roles.standalone import run_standalone
from mdgan.timeouts import Timeouts
from mdgan.transport.base import HostTransport, ServerTransport
from mdgan.transport.c10d import C10dHostTransport, C10dServerTransport
from mdgan.transport.link import LinkOptions, link_opener
from mdgan.transport.memory import MemoryNetwork
from mdgan.transport.rendezvous import (
    Store,
    address_towards,
    corner_of,
    open_store,
    reach_store,
)

DEFAULT_PORT = 29500
"""torch's usual port for rank 0."""


def timeouts_of(plan: Plan) -> Timeouts:
    """All time limits of a run."""
    return Timeouts(connect=plan.deployment.connect_timeout)


def on_stop_signals(*acts: Callable[[], None]) -> None:
    """Calls functions when this process is asked to stop (SIGTERM, or Ctrl-C where it counts).

    A forked rank ignores Ctrl-C: its launcher gets it too, and tells the ranks in order.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        for act in acts:
            act()

    signal.signal(signal.SIGTERM, handle)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handle)


def run_server(plan: Plan, run: RunDirectory, listener: socket.socket | None) -> None:
    """Is rank 0 over c10d.

    Args:
        plan: the checked run.
        run: its folder, claimed.
        listener: the bound socket of the store; None where torchrun serves one.
    """
    with scoring_process(plan, run, [listener] if listener else []) as scoring:
        _serve_over_c10d(plan, run, listener, scoring)


def _serve_over_c10d(
    plan: Plan, run: RunDirectory, listener: socket.socket | None, scoring: Scoring
) -> None:
    torch.set_num_threads(machine.server_threads(plan.deployment))
    process_here = plan.torchrun.process_here if plan.torchrun else 0
    device = machine.resolve_device(plan.deployment.device, process_here)
    timeouts = timeouts_of(plan)
    host, port = _master(plan)
    if listener is not None:
        address, port = listener.getsockname()[:2]
        store: Store = open_store(host, port, listener)
    else:
        address = address_towards(host, port)
        store = _torchrun_store(plan, reach_store(host, port, timeouts.connect))
    acceptor_store: Store = reach_store(host, port, timeouts.connect)
    if listener is None:
        acceptor_store = _torchrun_store(plan, acceptor_store)
    roster = Roster(plan.experiment.num_workers, plan.identity)
    transport = C10dServerTransport(
        store,
        acceptor_store,
        link_opener(_link_options(plan, address, device), timeouts),
        roster.admit,
        timeouts,
    )
    _serve(plan, run, transport, roster, scoring, device)


def run_host(plan: Plan, workers: tuple[int, ...], port: int | None, process_here: int) -> None:
    """Is a host over c10d.

    Args:
        plan: the checked run.
        workers: the ranks it carries.
        port: of the server, where only the launcher knows it.
        process_here: which of this machine's processes it is.
    """
    processes = plan.torchrun.processes_here if plan.torchrun else plan.ranks.num_processes
    torch.set_num_threads(machine.worker_threads(plan.deployment, processes))
    device = machine.resolve_device(plan.deployment.device, process_here)
    timeouts = timeouts_of(plan)
    host, given_port = _master(plan)
    port = given_port if port is None else port
    address = address_towards(host, port)
    store: Store = reach_store(host, port, timeouts.connect)
    if plan.torchrun is not None and plan.torchrun.store_is_up:
        store = _torchrun_store(plan, store)
    role = _prepare_host(plan, workers, device)
    hello = _hello(plan, workers)
    opener = link_opener(_link_options(plan, address, device), timeouts)
    transport = C10dHostTransport(store, opener, hello, timeouts)
    on_stop_signals(transport.interrupt)
    role(transport).run()


def run_everything(plan: Plan, run: RunDirectory) -> None:
    """Is the server and every host in one process: the same roles over the memory transport."""
    with scoring_process(plan, run) as scoring:
        _be_everything(plan, run, scoring)


def _be_everything(plan: Plan, run: RunDirectory, scoring: Scoring) -> None:
    torch.set_num_threads(machine.server_threads(plan.deployment))
    device = machine.resolve_device(plan.deployment.device, 0)
    network = MemoryNetwork(timeouts_of(plan))
    roster = Roster(plan.experiment.num_workers, plan.identity)
    threads = []
    for workers in plan.ranks.hosts:
        hello = _hello(plan, workers)
        refusal = roster.admit(hello)
        assert refusal is None, refusal
        role = _prepare_host(plan, workers, device)(network.join(workers[0], hello))
        threads.append(
            threading.Thread(target=_run_quietly, args=(role,), name=f"host-{workers[0]}")
        )
    for thread in threads:
        thread.start()
    try:
        _serve(plan, run, network.server, roster, scoring, device)
    finally:
        for thread in threads:
            thread.join()


def run_alone(plan: Plan, run: RunDirectory) -> None:
    """Is the standalone baseline."""
    with scoring_process(plan, run) as scoring:
        torch.set_num_threads(machine.server_threads(plan.deployment))
        device = machine.resolve_device(plan.deployment.device, 0)
        gan = make_standalone(plan.dataset, plan.experiment, plan.shard(1), device)
        stop = threading.Event()
        on_stop_signals(stop.set, scoring.abandon)
        observer = _observer(plan, run, gan.generator)
        counts = plan.shard(1).class_counts()
        holdings = {"1": {"samples": sum(counts), "classes": counts}}
        run_standalone(gan, plan.experiment.iterations, observer, scoring, holdings, stop)


def _serve(
    plan: Plan,
    run: RunDirectory,
    transport: ServerTransport,
    roster: Roster,
    scoring: Scoring,
    device: torch.device,
) -> None:
    on_stop_signals(transport.interrupt, scoring.abandon)
    learner = make_generator_learner(plan.dataset, plan.experiment, device)
    observer = _observer(plan, run, learner.generator)
    timeouts = timeouts_of(plan)
    Server(plan.experiment, learner, transport, roster, observer, scoring, timeouts, device).run()


def _prepare_host(
    plan: Plan, workers: tuple[int, ...], device: torch.device
) -> Callable[[HostTransport], Host]:
    """Builds the workers first, so that a host that joins is ready to answer."""
    shards = {rank: plan.shard(rank) for rank in workers}
    learners = {
        rank: make_worker(rank, plan.dataset, plan.experiment, shards[rank], device)
        for rank in workers
    }
    describer = Describer(shards, own_file(plan.deployment), device)
    every = traced_every(plan.experiment.iterations, plan.experiment.num_workers)

    def prepare(transport: HostTransport) -> Host:
        tracer = Tracer(every, transport.clock_offset_seconds)
        return Host(learners, transport, timeouts_of(plan), device, describer, tracer)

    return prepare


def _hello(plan: Plan, workers: Sequence[int]) -> dict[str, Any]:
    counts = {worker: plan.shard(worker).class_counts() for worker in workers}
    return make_hello(workers[0], counts, plan.identity)


def _run_quietly(host: Host) -> None:
    try:
        with contextlib.suppress(Interrupted, ServerLost):  # the server's thread tells
            host.run()
    except HostFailed as error:
        print(f"mdgan: {error}", file=sys.stderr)


def _observer(plan: Plan, run: RunDirectory, generator: torch.nn.Module) -> RunObserver:
    wanted = plan.deployment.tensorboard
    return RunObserver(
        run,
        generator,
        z_dim=plan.dataset.z_dim,
        seed=plan.experiment.seed,
        iterations=plan.experiment.iterations,
        sample_interval=plan.deployment.sample_interval,
        log_interval=plan.deployment.log_interval,
        status=about(plan),
        launched=plan.launched,
        tensorboard=TensorBoardWriter(run.path / "tensorboard") if wanted else None,
    )


def about(plan: Plan) -> dict[str, Any]:
    """What `run.json` says of the run from its start."""
    return {
        "version": __version__,
        "dataset_file": str(Path(plan.dataset.path).resolve()),
        "dataset_sha256": plan.dataset.sha256,
        "process": os.getpid(),
    }


def _master(plan: Plan) -> tuple[str, int]:
    if plan.torchrun is not None:
        return plan.torchrun.master_addr, plan.torchrun.master_port
    port = plan.deployment.master_port
    return plan.deployment.master_addr, DEFAULT_PORT if port is None else port


def _torchrun_store(plan: Plan, store: Store) -> Store:
    """Our corner of the store that torchrun serves, a new one for each restart."""
    assert plan.torchrun is not None
    return corner_of(store, f"mdgan/{plan.torchrun.attempt}")


def _link_options(plan: Plan, address: str, device: torch.device) -> LinkOptions:
    interface = plan.deployment.network_interface
    return LinkOptions(
        address=None if interface else address,
        interface=interface,
        nccl_device=device if plan.deployment.backend == "nccl" else None,
    )
