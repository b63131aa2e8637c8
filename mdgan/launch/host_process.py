"""What the process of one or more workers does."""

import threading
from collections.abc import Callable
from pathlib import Path

import torch

from mdgan.engine.host.checkpoints import Keeper
from mdgan.engine.host.describing import Describer
from mdgan.engine.host.loop import Connect, Host
from mdgan.engine.learners import class_counts
from mdgan.engine.server.membership import make_hello
from mdgan.families.family import host_part
from mdgan.launch import machine
from mdgan.launch.claim import timeouts_of
from mdgan.launch.links import connector
from mdgan.launch.prepare import Plan
from mdgan.launch.signals import on_stop_signals
from mdgan.launch.time_slice import ask_for_long_slices
from mdgan.metrics.chosen import own_file
from mdgan.observe.tracer import Tracer, traced_every
from mdgan.timeouts import Timeouts


def run_host(
    plan: Plan,
    workers: tuple[int, ...],
    port: int | None,
    process_here: int,
    run: Path | None = None,
) -> None:
    """Is a host over the network.

    Args:
        plan: the checked run.
        workers: the ranks it carries.
        port: of the server, where only the launcher knows it.
        process_here: which of this machine's processes it is.
        run: the run's folder, where the server was started here, too.
    """
    processes = plan.torchrun.processes_here if plan.torchrun else plan.ranks.num_processes
    torch.set_num_threads(machine.worker_threads(plan.deployment, processes))
    if processes > machine.num_cores():
        ask_for_long_slices()
    device = machine.resolve_device(plan.deployment.device, process_here)
    timeouts = timeouts_of(plan)
    interrupted = threading.Event()
    connect = connector(plan, workers, port, timeouts, interrupted)
    host = make_host(plan, workers, connect, timeouts, device, run, own_process=True)
    on_stop_signals(interrupted.set, host.interrupt)
    host.run()


def make_host(
    plan: Plan,
    workers: tuple[int, ...],
    connect: Connect,
    timeouts: Timeouts,
    device: torch.device,
    run: Path | None,
    *,
    own_process: bool,
) -> Host:
    """Builds the workers first, so that a host that joins is ready to answer.

    Args:
        plan: the checked run.
        workers: the ranks it carries.
        connect: links it with the server.
        timeouts: all time limits.
        device: where its models live.
        run: the run's folder, where the server was started here, too.
        own_process: whether nobody else computes in this process.
    """
    shards = {rank: plan.shard(rank) for rank in workers}
    counts = {rank: class_counts(shards[rank], plan.experiment) for rank in workers}
    experiment = plan.experiment
    every = traced_every(experiment.iterations, experiment.num_workers)
    tracer = Tracer(
        1 if experiment.sampling else every,  # a round moves whole models: its spans are nothing
        plan.faults.on_phase(f"host-{workers[0]}"),
    )
    return Host(
        host_part(plan, shards, tracer, device, own_process=own_process),
        make_hello(workers[0], counts, plan.identity),
        connect,
        timeouts,
        Describer(shards, own_file(plan.deployment), device),
        Keeper(_checkpoint_folder(plan, run), tracer),
        tracer,
    )


def _checkpoint_folder(plan: Plan, run: Path | None) -> Callable[[str], Path]:
    """From the run's name to where this machine keeps its workers' checkpoints."""

    def folder(name: str) -> Path:
        own = run or Path(plan.deployment.out or Path("runs") / Path(name).name)
        return own / "checkpoints"

    return folder
