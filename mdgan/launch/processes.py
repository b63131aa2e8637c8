"""What each process of a run does: the server's, a host's, and one that is all of them."""

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from mdgan.data.shard import Shard
from mdgan.engine.hello import make_hello
from mdgan.engine.host.checkpoints import HostCheckpoints
from mdgan.engine.host.describing import Describer
from mdgan.engine.host.encoding import HostEncoding
from mdgan.engine.host.loop import Connect, Host, HostFailed, ServerLost
from mdgan.engine.host.telling import HostReports
from mdgan.engine.host_keys import HostKeys
from mdgan.engine.parts import Trainer
from mdgan.engine.server.admission import Admission
from mdgan.engine.server.checkpoints import ServerCheckpoints
from mdgan.engine.server.encoding import ServerEncoding
from mdgan.engine.server.engine import AllWorkersLost
from mdgan.engine.server.loop import Server
from mdgan.engine.server.peers import Peers
from mdgan.engine.server.running_engine import RunningEngine
from mdgan.engine.server.scoring import ScorerLink
from mdgan.errors import BadInput, Interrupted, cause_of
from mdgan.families.contract import HostNeeds, ServerNeeds
from mdgan.gan.build import make_average
from mdgan.launch import machine, privacy
from mdgan.launch.addresses import Sockets
from mdgan.launch.admitting import make_admission
from mdgan.launch.claim import Claim, make_observer
from mdgan.launch.host_folder import host_folder
from mdgan.launch.links import connector, open_server
from mdgan.launch.prepare import Prepared
from mdgan.launch.requirements import least_parties, least_sharers
from mdgan.launch.scorer_process import scoring_process
from mdgan.metrics.chosen import own_file
from mdgan.observe.profiler import Profiler
from mdgan.observe.progress import Teller
from mdgan.observe.tracer import Tracer, traced_every
from mdgan.privacy.spending import Spending
from mdgan.settings.machine import num_cores
from mdgan.storage.checkpoints import Checkpoints
from mdgan.timeouts import Timeouts
from mdgan.transport.host_end import HostTransport
from mdgan.transport.memory import MemoryNetwork
from mdgan.transport.server_end import ServerTransport

_log = logging.getLogger(__name__)

NONE_LEFT = signal.SIGUSR1
"""Tells a server that all hosts have failed which its machine started, and no others come."""

TOGETHER_SECONDS = 0.2  # signals within so short a time count once


def run_host(
    prepared: Prepared,
    workers: tuple[int, ...],
    sockets: Sockets | None,
    process_here: int,
    run: Path | None = None,
    memory: object = None,
) -> None:
    """Runs a host over the network.

    Args:
        run, sockets: given if the server was started here.
        memory: what it shares with the server and the other hosts.
    """
    task = prepared.task
    processes = task.processes_here if task else prepared.ranks.num_processes
    host_here, num_hosts = process_here - prepared.ranks.serves, len(prepared.ranks.hosts)
    processes = machine.take_cores(prepared.launch, host_here, num_hosts) or processes
    cores = task.cores if task else None
    privacy.flush_denormals(prepared.settings)
    torch.set_num_threads(machine.num_threads(prepared.launch, processes, cores))
    machine.keep_freed_memory()
    if processes > num_cores():
        machine.ask_for_long_slices()
    device = machine.resolve_device(prepared.launch.device, process_here)
    timeouts = prepared.launch.links.timeouts()
    interrupted = threading.Event()
    connect = connector(prepared, workers, sockets, timeouts, interrupted)
    teller = None
    others_tell = task is not None and (process_here > 0 or task.prints_together)
    if not (prepared.ranks.serves or others_tell):
        samples = {worker: len(prepared.holdings[worker][1]) for worker in workers}
        first = process_here == 0
        teller = Teller(samples, prepared.settings.training.iterations, shows_progress=first)
    host = make_host(
        prepared,
        workers,
        connect,
        timeouts,
        device,
        run,
        own_process=True,
        teller=teller,
        memory=memory,
    )
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
    teller: Teller | None = None,
    memory: object = None,
) -> Host:
    """Builds the workers first, so that a host that joins is ready to answer.

    Args:
        run: the run's folder, if the server was started on this machine, too.
        own_process: whether no other host and no server computes in this process.
    """
    settings, builder, fetcher = prepared.settings, prepared.builder, prepared.fetcher()
    shards = {rank: prepared.shard(rank, fetcher) for rank in workers}
    counts = _class_counts(prepared, shards)
    count = partial(privacy.counts_of, settings, shards, prepared.contents, prepared.dataset.kind)
    if prepared.dataset.kind.num_counts and prepared.continues is None:
        count()  # is charged before training is planned; asked later, it is told again
    budgets = privacy.open_budgets(settings, shards, prepared.contents)
    tracer = Tracer(
        _recorded_windows(prepared),
        prepared.faults.on_phase(f"host-{workers[0]}"),
        _profiler(prepared, device) if own_process else None,
    )
    needs = HostNeeds(
        *(settings, prepared.models, shards, device, tracer),
        own_process=own_process,
        num_workers_here=len(prepared.ranks.workers()),
        clients=prepared.clients,
        class_counts=counts,
        cores=machine.cores_of_slots(prepared.launch, workers, prepared.ranks.hosts),
        budgets=budgets,
        account=privacy.open_account(settings, shards, prepared.contents),
        keys=HostKeys(workers, prepared.own_identity),
        least_parties=least_parties(prepared.launch.links.require),
        least_sharers=least_sharers(prepared.launch.links.require),
        memory=memory,
    )
    # A standby that takes over may be on another machine.
    is_here = run is not None and len(prepared.link_settings.links.addresses()) == 1
    file, why_not = own_file(settings.scores), privacy.why_untold(settings)
    folder, own = partial(_checkpoints_of, prepared, workers, run), settings.checkpoints
    return Host(
        builder.host(needs),
        make_hello(workers[0], counts, prepared.identity, tells_classes=settings.tells_classes),
        connect,
        timeouts,
        Describer(shards, file, device, why_not, prepared.dataset.shape, server_is_here=is_here),
        HostCheckpoints(folder, tracer, own.checkpoint_keep, to_server=own.checkpoint_to_server),
        HostReports(tracer, fetcher, Spending(budgets), teller, prepared.own_identity),
        HostEncoding(prepared.dataset.kind, count, noisy=settings.privacy.covers_samples),
        settings.training.iterations,
    )


def _class_counts(prepared: Prepared, shards: Mapping[int, Shard]) -> dict[int, list[int]]:
    """How many samples of each class a host's workers hold, or in all if nothing follows that."""
    settings, contents = prepared.settings, prepared.contents
    if settings.hides_classes:
        num_classes = prepared.dataset.num_classes or 0
        return privacy.noisy_classes(settings, shards, contents, num_classes)
    units = {n: privacy.counted(settings, own, contents.get(n)) for n, own in shards.items()}
    if settings.goes_by_classes or settings.tells_classes:
        return {n: prepared.builder.class_counts(own, settings) for n, own in units.items()}
    return {n: [settings.privacy.public_samples(len(own))] for n, own in units.items()}


def _recorded_windows(prepared: Prepared) -> int:
    """See `traced_every`; none where how long real samples take would tell of them."""
    if prepared.settings.privacy.covers_samples and not prepared.is_rehearsed:
        return 0
    # There are few rounds, and each moves whole models: their spans are nothing beside that.
    if prepared.algorithm.unit != "iteration":
        return 1
    return traced_every(prepared.settings.training.iterations, prepared.settings.num_workers)


def _checkpoints_of(
    prepared: Prepared, workers: tuple[int, ...], run: Path | None, welcome: Mapping[str, Any]
) -> Path:
    """Where a host on this machine keeps its checkpoints of the run that has let it in."""
    out, identity = prepared.launch.out, prepared.credentials
    return (run or host_folder(welcome, workers, identity, out)) / "checkpoints"


def _profiler(prepared: Prepared, device: torch.device, *, serves: bool = False) -> Profiler | None:
    """What profiles this process; None unless the user wants it."""
    if prepared.settings.records.profile is None:
        return None
    together = prepared.launch.transport == "memory" and prepared.algorithm.has_hosts
    return Profiler(prepared.settings.records.profile, device, all_threads=serves and together)


def on_stop_signals(*acts: Callable[[], None]) -> None:
    """Calls functions when this process is asked to stop (SIGTERM, or Ctrl-C where it counts).

    A forked rank ignores Ctrl-C: its launcher gets it too, and tells the ranks in order. Signals
    that come together count once: a cluster may send one to the launcher and one to each rank.
    """
    last = -inf

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal last
        if time.monotonic() - last < TOGETHER_SECONDS:
            return
        last = time.monotonic()
        for act in acts:
            act()

    signal.signal(signal.SIGTERM, handle)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handle)


def run_server(
    prepared: Prepared, claimed: Claim, places: Sequence[str], memory: object = None
) -> None:
    """Runs rank 0 over the network; with memory that it shares with hosts of this machine."""
    with scoring_process(prepared, claimed.run) as scorer:
        task = prepared.task
        cores = task.cores if task else None
        torch.set_num_threads(machine.num_threads(prepared.launch, cores_each=cores))
        machine.keep_freed_memory()
        device = machine.resolve_device(prepared.launch.device, task.process_here if task else 0)
        admission = make_admission(prepared, claimed)
        timeouts = prepared.launch.links.timeouts()
        transport = open_server(prepared, places, admission.admit, timeouts)
        serve(prepared, claimed, transport, admission, scorer, timeouts, device, memory)


def serve(
    prepared: Prepared,
    claimed: Claim,
    transport: ServerTransport,
    admission: Admission,
    scorer: ScorerLink,
    timeouts: Timeouts,
    device: torch.device,
    memory: object = None,
) -> None:
    """Runs the server over any transport."""
    on_stop_signals(transport.interrupt, scorer.abandon)
    settings, goes_on = prepared.settings, claimed.goes_on
    fetcher = None if prepared.algorithm.has_hosts else prepared.fetcher()
    shards = prepared.clients or ({} if fetcher is None else {1: prepared.shard(1, fetcher)})
    part = prepared.builder.server(ServerNeeds(settings, prepared.models, device, shards, memory))
    average = make_average(prepared.models.generator, part.generator, settings.training)
    observer = make_observer(
        prepared,
        claimed,
        part.generator,
        None if average is None else average.model,
        _profiler(prepared, device, serves=True),
    )
    peers = Peers(admission, transport, observer, settings)
    checkpoints = ServerCheckpoints(
        Checkpoints(claimed.run.checkpoints, settings.checkpoints.checkpoint_keep),
        settings,
        prepared.config,
        claimed.fence,
        peers,
        None if goes_on is None else goes_on.manifest,
        believes_first=not claimed.takes_over,
    )
    if prepared.beginning is not None:
        begin = prepared.beginning
        checkpoints.kept.keep(part.begin_with(begin.generator, begin.discriminators))
        if average is not None:
            average.begin_anew()
    trainer = Trainer(part, average, fetcher)
    encoding = ServerEncoding(
        prepared.dataset.kind,
        claimed.run,
        () if fetcher is None else shards.values(),
        goes_on=goes_on is not None,
        noisy=settings.privacy.covers_samples,
    )
    engine = RunningEngine(trainer, settings, peers, checkpoints, scorer, timeouts, encoding)
    server = Server(engine)

    def note_all_failed(_number: int, _frame: FrameType | None) -> None:
        engine.all_failed = True

    signal.signal(NONE_LEFT, note_all_failed)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [NONE_LEFT])  # the launcher has blocked it until now
    if goes_on is not None:
        goes_on.restore(trainer.load_state)
        server.go_on(goes_on.manifest, goes_on.changed, replaces_another=claimed.takes_over)
    with contextlib.nullcontext() if fetcher is None else contextlib.closing(fetcher):
        server.run()


def run_everything(prepared: Prepared, claimed: Claim) -> None:
    """Runs the server and every host in one process: the same code over the memory transport."""
    with scoring_process(prepared, claimed.run) as scorer:
        machine.take_cores(prepared.launch, 0, 1)
        torch.set_num_threads(machine.num_threads(prepared.launch))
        device = machine.resolve_device(prepared.launch.device, 0)
        # A host that is gone here cannot come back.
        timeouts = replace(prepared.launch.links.timeouts(), patience=0.0)
        admission, path = make_admission(prepared, claimed), claimed.run.path
        network = MemoryNetwork(timeouts, admission.admit)
        threads, causes = [], list[str]()
        for workers in prepared.ranks.hosts:
            connect = partial(_join, network, workers[0])
            host = make_host(prepared, workers, connect, timeouts, device, path, own_process=False)
            run = partial(_run_quietly, prepared, host, causes)
            threads.append(threading.Thread(target=run, daemon=True))
        for thread in threads:
            thread.start()
        try:
            serve(prepared, claimed, network.server, admission, scorer, timeouts, device)
        except AllWorkersLost as error:
            raise AllWorkersLost(f"{error}: {causes[-1]}" if causes else str(error)) from error
        finally:
            network.server.close()  # a server that has not begun has told no host that it ends
            for thread in threads:
                thread.join()


def _join(network: MemoryNetwork, number: int, hello: Mapping[str, Any], _: float) -> HostTransport:
    return network.join(number, hello)


def _run_quietly(prepared: Prepared, host: Host, causes: list[str]) -> None:
    """Runs a host in a thread; adds to the causes why it failed, if it did."""
    privacy.flush_denormals(prepared.settings)
    # Else MKL asks the system in a new thread; how many threads there are decides bits.
    torch.set_num_threads(torch.get_num_threads())
    try:
        with contextlib.suppress(Interrupted, ServerLost):  # the server's thread tells
            host.run()
    except (BadInput, HostFailed) as error:
        _log.error("%s", error)
        causes.append(str(error))
    except Exception as error:  # the user's own code may raise anything
        _log.exception("a host failed")
        causes.append(cause_of(error))
