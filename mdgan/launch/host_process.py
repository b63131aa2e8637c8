"""What the process of one or more workers does."""

import threading
from collections.abc import Callable
from pathlib import Path

import torch

from mdgan.engine.hello import make_hello
from mdgan.engine.host.checkpoints import HostCheckpoints
from mdgan.engine.host.describing import Describer
from mdgan.engine.host.loop import Connect, Host
from mdgan.families.contract import HostNeeds
from mdgan.launch import machine
from mdgan.launch.claim import timeouts_of
from mdgan.launch.links import connector
from mdgan.launch.prepare import Prepared
from mdgan.launch.signals import on_stop_signals
from mdgan.launch.time_slice import ask_for_long_slices
from mdgan.metrics.chosen import own_file
from mdgan.observe.tracer import Tracer, traced_every
from mdgan.settings.machine import num_cores
from mdgan.timeouts import Timeouts


def run_host(
    prepared: Prepared,
    workers: tuple[int, ...],
    port: int | None,
    process_here: int,
    run: Path | None = None,
) -> None:
    """Runs a host over the network.

    Args:
        prepared: the checked run.
        workers: the ranks it carries.
        port: of the server, where only the launcher knows it.
        process_here: which of this machine's processes it is.
        run: the run's folder, where the server was started here, too.
    """
    processes = (
        prepared.torchrun.processes_here if prepared.torchrun else prepared.ranks.num_processes
    )
    torch.set_num_threads(machine.worker_threads(prepared.launch, processes))
    if processes > num_cores():
        ask_for_long_slices()
    device = machine.resolve_device(prepared.launch.device, process_here)
    timeouts = timeouts_of(prepared)
    interrupted = threading.Event()
    connect = connector(prepared, workers, port, timeouts, interrupted)
    host = make_host(prepared, workers, connect, timeouts, device, run, own_process=True)
    on_stop_signals(interrupted.set, host.interrupt)
    host.run()


def make_host(
    prepared: Prepared,
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
        prepared: the checked run.
        workers: the ranks it carries.
        connect: links it with the server.
        timeouts: all time limits.
        device: where its models live.
        run: the run's folder, where the server was started here, too.
        own_process: whether nobody else computes in this process.
    """
    settings, builder = prepared.settings, prepared.builder
    shards = {rank: prepared.shard(rank) for rank in workers}
    counts = {rank: builder.class_counts(shards[rank], settings) for rank in workers}
    every = traced_every(settings.iterations, settings.num_workers)
    tracer = Tracer(
        # There are few rounds, and each moves whole models: their spans are nothing beside that.
        every if prepared.algorithm.unit == "iteration" else 1,
        prepared.faults.on_phase(f"host-{workers[0]}"),
    )
    needs = HostNeeds(
        settings,
        prepared.dataset,
        shards,
        device,
        tracer,
        own_process=own_process,
        fixed_threads=prepared.launch.threads != "auto",
        num_workers_here=len(prepared.ranks.workers()),
    )
    return Host(
        builder.host(needs),
        make_hello(workers[0], counts, prepared.identity),
        connect,
        timeouts,
        Describer(shards, own_file(settings), device),
        HostCheckpoints(_checkpoint_folder(prepared, run), tracer),
        tracer,
    )


def _checkpoint_folder(prepared: Prepared, run: Path | None) -> Callable[[str], Path]:
    """From the run's name to where this machine keeps its workers' checkpoints."""

    def folder(name: str) -> Path:
        own = run or Path(prepared.launch.out or Path("runs") / Path(name).name)
        return own / "checkpoints"

    return folder
