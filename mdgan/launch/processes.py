"""Builds and runs the server, a host, or all of them in one process, from a `Checked` run."""

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from mdgan import system
from mdgan.data.shard import Shard
from mdgan.engine.hello import make_hello
from mdgan.engine.host.checkpoints import HostCheckpoints
from mdgan.engine.host.describing import Describer
from mdgan.engine.host.encoding import HostEncoding
from mdgan.engine.host.held_samples import HeldSamples
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
from mdgan.launch import machine
from mdgan.launch.addresses import Sockets
from mdgan.launch.checked import Checked
from mdgan.launch.claim import Claim, host_folder, make_observer
from mdgan.launch.links import connector, make_admission, open_server
from mdgan.launch.requirements import least_parties, least_sharers
from mdgan.launch.same_samples import compare_samples
from mdgan.launch.scorer_process import scoring_process
from mdgan.launch.site_maps import log_maps
from mdgan.metrics.chosen import own_file
from mdgan.observe.profiler import Profiler
from mdgan.observe.progress import Teller
from mdgan.observe.tracer import Tracer, traced_every
from mdgan.privacy.settings import FEATURES
from mdgan.privacy.spending import Spending
from mdgan.settings.machine import num_cores
from mdgan.storage.checkpoints import Checkpoints
from mdgan.transport.host_end import HostTransport
from mdgan.transport.memory import MemoryNetwork
from mdgan.transport.server_end import ServerTransport

_log = logging.getLogger(__name__)

NONE_LEFT = signal.SIGUSR1
"""The launcher sends it to the server when all hosts have failed and no other can come."""

_WHY_UNTOLD = "it tells nothing of its samples that no noise covers (--dp-disclose features would)"

TOGETHER_SECONDS = 0.2  # several signals within this time count as one


def run_host(
    checked: Checked,
    workers: tuple[int, ...],
    sockets: Sockets | None,
    process_here: int,
    run: Path | None = None,
    memory: object = None,
) -> None:
    """Runs a host over the network, as process `process_here` of this machine.

    Args:
        sockets, run: the sockets and the folder of the run, if the server was started here.
        memory: memory that it shares with the server and the other hosts; None for none.
    """
    task = checked.task
    processes = task.processes_here if task else checked.ranks.num_processes
    host_here, num_hosts = process_here - checked.ranks.serves, len(checked.ranks.hosts)
    processes = machine.take_cores(checked.launch, host_here, num_hosts) or processes
    cores = task.cores if task else None
    machine.flush_denormals(checked.settings)
    torch.set_num_threads(machine.num_threads(checked.launch, processes, cores))
    system.keep_freed_memory()
    if processes > num_cores():
        system.ask_for_long_slices()
    interrupted = threading.Event()
    connect = connector(
        checked, workers, sockets, timeouts=checked.timeouts, interrupted=interrupted
    )
    teller = None
    others_print = task is not None and (process_here > 0 or task.prints_together)
    if not (checked.ranks.serves or others_print):
        samples = {worker: len(checked.holdings[worker][1]) for worker in workers}
        first = process_here == 0
        teller = Teller(samples, checked.settings.training.iterations, shows_progress=first)
    host = make_host(
        checked,
        workers,
        connect=connect,
        run=run,
        process_here=process_here,
        teller=teller,
        memory=memory,
    )
    on_stop_signals(interrupted.set, host.interrupt)
    host.run()


def make_host(
    checked: Checked,
    workers: tuple[int, ...],
    *,
    connect: Connect,
    run: Path | None,
    process_here: int | None = None,
    teller: Teller | None = None,
    memory: object = None,
) -> Host:
    """Builds a host with its workers, so that it can answer as soon as it has joined.

    Args:
        run: the run's folder, if the server was started on this machine as well.
        process_here: the index of this process here; None if one process does everything.
    """
    settings, own_identity, fetcher = checked.settings, checked.own_identity, checked.fetcher()
    shards = {rank: checked.shard(rank, fetcher) for rank in workers}
    samples = HeldSamples(settings, shards, checked.contents, checked.dataset)
    counts = _class_counts(checked, samples)
    # The ledger is charged for counts before training is planned. The host sends them later.
    paid = samples.paid_counts if checked.continues is None else {}
    noises, counted = {n: count.noise for n, count in paid.items()}, paid or settings.hides_classes
    budgets = samples.open_budgets()
    kind, noisy, spending = checked.dataset.kind, settings.privacy.covers_samples, Spending(budgets)
    device = machine.resolve_device(checked.launch.device, process_here or 0)
    profiler = None if process_here is None else _profiler(checked, device)
    on_phase = checked.faults.on_phase(f"host-{workers[0]}")
    tracer = Tracer(_recorded_windows(checked), on_phase, profiler)
    needs = HostNeeds(
        settings,
        checked.models,
        shards,
        device=device,
        tracer=tracer,
        own_process=process_here is not None,
        num_workers_here=len(checked.ranks.workers()),
        clients=checked.clients,
        class_counts=counts,
        cores=machine.cores_of_slots(checked.launch, workers, checked.ranks.hosts),
        budgets=budgets,
        account=samples.open_account(),
        keys=HostKeys(workers, own_identity),
        least_parties=least_parties(checked.launch.links.require),
        least_sharers=least_sharers(checked.launch.links.require),
        kind=kind,
        memory=memory,
    )
    hello = make_hello(workers[0], counts, checked.identity, tells_classes=settings.tells_classes)
    return Host(
        part=checked.builder.host(needs),
        hello=hello,
        connect=connect,
        timeouts=checked.timeouts,
        describer=_describer(checked, shards, device, run),
        checkpoints=_host_checkpoints(checked, workers, run, tracer),
        reports=HostReports(tracer, fetcher, spending, teller, own_identity, bool(counted)),
        encoding=HostEncoding(kind, samples.count_samples, noisy=noisy, noises=noises),
        iterations=settings.training.iterations,
    )


def _class_counts(checked: Checked, samples: HeldSamples) -> dict[int, list[int]]:
    """Samples of each class by worker; only their total if nothing in the run needs classes."""
    settings, units = checked.settings, samples.units
    if settings.hides_classes:
        return samples.noisy_classes()
    if settings.goes_by_classes or settings.tells_classes:
        return {n: checked.builder.class_counts(shard, settings) for n, shard in units.items()}
    return {n: [settings.privacy.public_samples(len(shard))] for n, shard in units.items()}


def _recorded_windows(checked: Checked) -> int:
    """Hosts record one window in this many; none (0) with privacy, since times reveal samples."""
    if checked.settings.privacy.covers_samples and not checked.is_rehearsed:
        return 0
    # Rounds are few, and each sends whole models, beside which the records are small.
    if checked.algorithm.unit != "iteration":
        return 1
    return traced_every(checked.settings.training.iterations, checked.settings.num_workers)


def _describer(
    checked: Checked, shards: Mapping[int, Shard], device: torch.device, run: Path | None
) -> Describer:
    return Describer(
        shards,
        own_file=own_file(checked.settings.scores),
        device=device,
        why_not="" if checked.settings.privacy.discloses(FEATURES) else _WHY_UNTOLD,
        shape=checked.dataset.shape,
        # A standby that takes over may be on another machine.
        server_is_here=run is not None and len(checked.links.addresses()) == 1,
    )


def _host_checkpoints(
    checked: Checked, workers: tuple[int, ...], run: Path | None, tracer: Tracer
) -> HostCheckpoints:
    """Makes a host's checkpoints. Their folder is known once the server has let the host in."""

    def folder(welcome: Mapping[str, Any]) -> Path:
        if run is not None:
            return run / "checkpoints"
        local = host_folder(welcome, workers, checked.credentials, checked.launch.out)
        had_begun = welcome.get("checkpoint") is not None
        compare_samples(checked, local, workers, goes_on=had_begun)
        # If the host shares the server's folder, only the server writes to the log there.
        is_servers = (local / "run.json").is_file()
        log_folder = local / f"host-{min(workers)}" if is_servers else local
        log_maps(checked.settings.data, log_folder, workers)
        return local / "checkpoints"

    rules = checked.settings.checkpoints
    keep, to_server = rules.checkpoint_keep, rules.checkpoint_to_server
    return HostCheckpoints(folder, tracer, keep, to_server=to_server)


def _profiler(checked: Checked, device: torch.device, *, serves: bool = False) -> Profiler | None:
    """Makes the profiler of this process; None unless the user wants it."""
    if checked.settings.records.profile is None:
        return None
    together = checked.is_one_process and checked.algorithm.has_hosts
    return Profiler(checked.settings.records.profile, device, all_threads=serves and together)


def on_stop_signals(*acts: Callable[[], None]) -> None:
    """Calls functions when this process gets SIGTERM, or SIGINT unless it ignores that.

    A forked rank ignores SIGINT, since its launcher gets it as well and stops the ranks in order.
    Signals that come together count once: a cluster may signal the launcher and every rank.
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
    checked: Checked, claimed: Claim, places: Sequence[str], memory: object = None
) -> None:
    """Runs rank 0 over the network; hosts of this machine may share `memory` with it."""
    with scoring_process(checked, claimed.run) as scorer:
        task = checked.task
        cores = task.cores if task else None
        torch.set_num_threads(machine.num_threads(checked.launch, cores_each=cores))
        system.keep_freed_memory()
        admission = make_admission(checked, claimed)
        transport = open_server(checked, places, admission.admit, checked.timeouts)
        serve(
            checked, claimed, transport=transport, admission=admission, scorer=scorer, memory=memory
        )


def serve(
    checked: Checked,
    claimed: Claim,
    *,
    transport: ServerTransport,
    admission: Admission,
    scorer: ScorerLink,
    memory: object = None,
) -> None:
    """Builds the server and runs it over any transport, until the run ends."""
    on_stop_signals(transport.interrupt, scorer.abandon)
    settings, goes_on, task = checked.settings, claimed.goes_on, checked.task
    device = machine.resolve_device(checked.launch.device, task.process_here if task else 0)
    fetcher = None if checked.algorithm.has_hosts else checked.fetcher()
    shards = checked.clients or ({} if fetcher is None else {1: checked.shard(1, fetcher)})
    needs = ServerNeeds(settings, checked.models, device, shards=shards, memory=memory)
    part = checked.builder.server(needs)
    average = make_average(checked.models.generator, part.generator, settings.training)
    averaged = None if average is None else average.model
    profiler = _profiler(checked, device, serves=True)
    observer = make_observer(
        checked, claimed, generator=part.generator, average=averaged, profiler=profiler
    )
    are_ours = checked.ranks.complete and len(checked.links.addresses()) == 1
    peers = Peers(admission, transport, observer, settings, are_ours)
    checkpoints = _server_checkpoints(checked, claimed, peers)
    if (begin := checked.beginning) is not None:
        checkpoints.kept.keep(part.begin_with(begin.generator, begin.discriminators))
        if average is not None:
            average.begin_anew()
    trainer = Trainer(part, average, fetcher)
    local, is_noisy = () if fetcher is None else shards.values(), settings.privacy.covers_samples
    encoding = ServerEncoding(
        checked.dataset.kind, claimed.run, local, goes_on=goes_on is not None, noisy=is_noisy
    )
    engine = RunningEngine(
        trainer,
        settings,
        peers,
        checkpoints=checkpoints,
        scorer=scorer,
        timeouts=checked.timeouts,
        encoding=encoding,
    )
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


def _server_checkpoints(checked: Checked, claimed: Claim, peers: Peers) -> ServerCheckpoints:
    keep, goes_on = checked.settings.checkpoints.checkpoint_keep, claimed.goes_on
    return ServerCheckpoints(
        Checkpoints(claimed.run.checkpoints, keep),
        settings=checked.settings,
        config=checked.config,
        fence=claimed.fence,
        peers=peers,
        committed=None if goes_on is None else goes_on.manifest,
        believes_first=not claimed.takes_over,
    )


def run_everything(checked: Checked, claimed: Claim) -> None:
    """Runs the server and every host in one process: the same code over the memory transport."""
    with scoring_process(checked, claimed.run) as scorer:
        machine.take_cores(checked.launch, 0, 1)
        torch.set_num_threads(machine.num_threads(checked.launch))
        admission = make_admission(checked, claimed)
        network = MemoryNetwork(checked.timeouts, admission.admit)
        threads, causes = [], list[str]()
        for workers in checked.ranks.hosts:
            connect = partial(_join, network, workers[0])
            host = make_host(checked, workers, connect=connect, run=claimed.run.path)
            run = partial(_run_quietly, checked, host, causes)
            threads.append(threading.Thread(target=run, daemon=True))
        for thread in threads:
            thread.start()
        try:
            serve(checked, claimed, transport=network.server, admission=admission, scorer=scorer)
        except AllWorkersLost as error:
            raise AllWorkersLost(f"{error}: {causes[-1]}" if causes else str(error)) from error
        finally:
            network.server.close()  # a server that failed before it began has not stopped the hosts
            for thread in threads:
                thread.join()


def _join(network: MemoryNetwork, number: int, hello: Mapping[str, Any], _: float) -> HostTransport:
    return network.join(number, hello)


def _run_quietly(checked: Checked, host: Host, causes: list[str]) -> None:
    """Runs a host in a thread; appends the reason to `causes` if it fails."""
    machine.flush_denormals(checked.settings)
    # In a new thread MKL would choose the number of threads anew, on which bits depend.
    torch.set_num_threads(torch.get_num_threads())
    try:
        with contextlib.suppress(Interrupted, ServerLost):  # the server's thread logs these
            host.run()
    except (BadInput, HostFailed) as error:
        _log.error("%s", error)
        causes.append(str(error))
    except Exception as error:  # the user's own code may raise anything
        _log.exception("a host failed")
        causes.append(cause_of(error))
