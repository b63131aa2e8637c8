"""Makes the page of `mdgan plan` from settings: `foretell` measures, predicts and writes it."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from statistics import fmean
from typing import Any, NamedTuple

import torch

from mdgan.data.dataset_file import DatasetFile
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import contract, registry
from mdgan.gan.build import Models
from mdgan.launch import machine
from mdgan.launch.forks import ForkFailed
from mdgan.launch.holdings import read_data
from mdgan.launch.machine import default_host_size
from mdgan.launch.models import tried_models
from mdgan.launch.ranks import local_ranks
from mdgan.launch.settings import LaunchSettings
from mdgan.observe.progress import duration
from mdgan.plan.expectations import beside_fl_gan, expectations
from mdgan.plan.layout import Layout, Link, Machines, Workers, consecutive, shared_out
from mdgan.plan.measurement import Measured, Measurement
from mdgan.plan.phases import MESSAGES, Seconds
from mdgan.plan.prediction import Forecast, Question
from mdgan.records.values import a, brief_seconds, brief_size
from mdgan.settings.machine import num_cores
from mdgan.spelling import count, flag

_log = logging.getLogger(__name__)

_MOST_RANGES = 8
_HOST_HERE = {True: "host here", False: "like here"}  # whether all hosts share this machine

Lines = tuple[str, str, str]  # one row of the page: a name, a value and a note
Section = tuple[str, Sequence[Lines]]  # a heading and the rows below it


class _Page(NamedTuple):
    """Everything that the page is written from."""

    unit: str
    title: str
    layout: Layout
    iterations: int
    question: Question
    measured: Measured
    more: Sequence[Section] = ()
    price_per_gb: float | None = None


def foretell(
    settings: RunSettings,
    launch: LaunchSettings,
    dataset: DatasetFile,
    link: Link,
    machines: Sequence[Machines],
    *,
    shared: bool,
    shard_size: int | None,
    price_per_gb: float | None = None,
) -> str:
    """Measures a short run here, predicts the planned run from it, and returns the page.

    Args:
        machines: machines besides the server's, if the user has named them.
        shard_size: samples of a worker; None if the user has not given it.
        price_per_gb: what the user pays for 10⁹ bytes; None if the user has not given it.
    """
    torch.set_num_threads(1)  # processes forked from this one must not inherit a pool of threads
    models = tried_models(settings, dataset)
    entry = registry.algorithm(settings.algorithm)
    builder = entry.build()
    if settings.num_placed is not None:  # each rank is a host that trains placed clients
        if machines:
            settings = settings.but(world_size=1 + sum(each.count for each in machines))
        machines = machines or [Machines(settings.num_workers, _HOST_HERE[shared])]
    counts = _class_counts(settings, dataset, shard_size)
    planning = builder.planning(settings, models, counts)
    _check_planning(entry.name, planning)
    layout, hosts = _layout(settings, launch, models, machines=machines, shared=shared)
    more = [_workers(machines, hosts)] if machines and not planning.placing else []
    try:
        hosts_here = len(hosts) if shared else 1
        rehearsal = Measurement(entry, dataset, layout, planning=planning, hosts_here=hosts_here)
        measured = rehearsal.take()
    except ForkFailed as error:
        what = flag("batch_size", settings.training.batch_size)
        why = f"{entry.unit}s cannot be measured here ({error})"
        raise BadInput(what, why, "try a smaller one") from error
    asking = layout.asked(planning.settings.participation)
    question = Question(asking, link, measured.costs, traffic=measured.traffic, planning=planning)
    if planning.placing is not None:
        question, more = _placed(planning.placing, measured, question, machines=machines)
    shard_size = None if counts is None else round(contract.mean_size(counts))
    more += expectations(settings, shard_size, len(dataset.kind.columns()))
    described = dict(builder.describe(contract.PlannedRun(settings, models, [[1]])))
    if "a discriminator" in planning.notes:  # the paper's table III has this algorithm
        more += beside_fl_gan(settings, models, int(described["κ"]), shard_size=shard_size)
    page = _Page(
        entry.unit,
        _title(settings, layout, planning.placing, kappa=described.get("κ"), shared=shared),
        layout,
        iterations=settings.training.iterations,
        question=question,
        measured=measured,
        more=more,
        price_per_gb=price_per_gb,
    )
    return _in_words(page)


def _check_planning(algorithm: str, planning: contract.Planning[Any]) -> None:
    if planning.in_groups or planning.by_arrival:
        what = "workers in groups" if planning.in_groups else "a server that waits for no worker"
        way_out = "plan without, and leave out the flags that ask for it"
        raise BadInput(flag("algorithm", algorithm), f"mdgan plan cannot foretell {what}", way_out)


def _class_counts(
    settings: RunSettings, dataset: DatasetFile, shard_size: int | None
) -> contract.ClassCounts | None:
    """Samples by class of each worker or placed client; None if this machine has no data."""
    placed = settings.num_placed is not None
    if shard_size is not None:
        return [[shard_size]] * (settings.num_placed or settings.num_workers)
    workers = [] if placed else list(range(1, settings.world_size))
    try:
        clients, held = read_data(settings, dataset, workers)
    except BadInput as error:
        if placed:
            _log.warning("the sizes of the clients' shards are not known (%s)", error)
        return None
    if clients is not None:
        return list(clients.class_counts().values())
    counts = [source.class_counts(shard) for source, shard in held.values() if len(shard)]
    return [[sum(shard)] for shard in counts] if settings.privacy.keeps_classes else counts


def _layout(
    settings: RunSettings,
    launch: LaunchSettings,
    models: Models,
    machines: Sequence[Machines],
    *,
    shared: bool,
) -> tuple[Layout, Sequence[Workers]]:
    """The layout of the run, and the workers of every host; a slow named machine may have none."""
    size = default_host_size(settings, launch, models) if shared else 1
    hosts = local_ranks(settings, launch, None, default_size=size).hosts
    speeds = [group.speed for group in machines for _ in range(group.count)]
    placed = settings.num_placed is not None
    if speeds:
        sizes = [1] * len(speeds) if placed else shared_out(settings.num_workers, speeds)
        hosts = consecutive(sizes)
    layout = Layout(
        tuple(filter(None, hosts)),
        cores=num_cores(),
        host_threads=machine.num_threads(launch, 1 + len(hosts) if shared else 1),
        server_threads=machine.num_threads(launch),
        shared=shared and not placed,  # slots already share cores while they are measured
        speeds=tuple(speed for speed, workers in zip(speeds, hosts, strict=False) if workers),
    )
    return layout, hosts


def _title(
    settings: RunSettings,
    layout: Layout,
    placing: contract.Placing | None,
    kappa: str | None,
    *,
    shared: bool,
) -> str:
    where = "one machine" if shared else "machines of their own"
    generated = "" if kappa is None else f", κ = {kappa}"
    learners, about = f"{layout.num_workers} worker(s)", ""
    if placing is not None:
        learners, about = f"{placing.a_step:,} of {placing.clients:,} clients", f"; {placing.about}"
    return (
        f"{settings.data.dataset}: {learners} in {len(layout.hosts)} host(s) and the server, on "
        f"{where} of {layout.cores} core(s); b = {settings.training.batch_size}{generated}{about}"
    )


def _workers(machines: Sequence[Machines], hosts: Sequence[Workers]) -> Section:
    """How many workers each machine should carry, and the `--ranks` to start them with."""
    rows, remaining = [], iter(hosts)
    for group in machines:
        its_hosts = list(islice(remaining, group.count))
        ranges = [f"{workers[0]}..{workers[-1]}" for workers in its_hosts if workers]
        more = ", …" if len(ranges) > _MOST_RANGES else ""
        ranks = ", ".join(ranges[:_MOST_RANGES]) + more
        fewest, most = min(map(len, its_hosts)), max(map(len, its_hosts))
        count = f"{most}" if fewest == most else f"{fewest} to {most}"
        rows.append((str(group), count, f"worker(s); --ranks {ranks}" if ranks else "workers"))
    return "machines, each with one host", rows


def _placed(
    placing: contract.Placing, measured: Measured, messages: Question, machines: Sequence[Machines]
) -> tuple[Question, list[Section]]:
    """Adds the placed clients to a round of messages alone; also returns sections about them."""
    hosts = [
        contract.PlannedHost(group.slots or placing.slots, group.speed)
        for group in machines
        for _ in range(group.count)
    ]
    shares = placing.shares(measured.placed, hosts)
    answers = zip(messages.costs.answers, shares, strict=True)
    costs = replace(messages.costs, answers=tuple(m + share.seconds for m, share in answers))
    out, back = tuple(share.out for share in shares), tuple(share.back for share in shares)
    traffic = replace(messages.traffic, out=out, back=back)
    clients = [
        (f"of {num_batches} iteration(s)", brief_seconds(seconds), "")
        for num_batches, seconds in placing.seconds(measured.placed).items()
    ]
    sections: list[Section] = [
        ("a client, on a slot of this machine", clients),
        ("machines, each with one host", list(_slots(placing, measured, machines, shares=shares))),
    ]
    return replace(messages, costs=costs, traffic=traffic), sections


def _slots(
    placing: contract.Placing,
    measured: Measured,
    machines: Sequence[Machines],
    shares: Sequence[contract.PlannedShare],
) -> Iterator[Lines]:
    """Seconds, clients, idle time and memory of each kind of machine in a round."""
    longest = max(share.seconds for share in shares)
    remaining = iter(shares)
    for group in machines:
        its_shares = list(islice(remaining, group.count))
        slots = group.slots or placing.slots
        memory = measured.shared_bytes + measured.host_bytes + slots * measured.worker_bytes
        idle = 1 - fmean(share.busy for share in its_shares) / longest
        clients = fmean(share.clients for share in its_shares)
        note = f"{slots} slot(s), {clients:.3g} client(s), {idle:.0%} idle"
        seconds = brief_seconds(max(share.seconds for share in its_shares))
        yield str(group), seconds, f"{note}, {brief_size(memory)} of memory"


def _in_words(page: _Page) -> str:
    """The text of the page, without a line break at its end."""
    forecast, planning = page.question.answer(), page.question.planning
    sections: list[Section] = [
        (a(page.unit), list(_step(page, forecast))),
        ("seconds of each", list(_stages(page))),
        (f"bytes of {a(page.unit)}", _bytes(page)),
        *_exchange(page, forecast),
        ("memory, without the data", list(_memory(page))),
        *page.more,
    ]
    lines = [page.title, _in_short(page, forecast), _bottleneck(page, forecast)]
    for title, rows in sections:
        lines.append(title)
        for name, value, default_note in rows:
            note, num_bytes = planning.notes.get(name, (default_note, 0.0))
            lines.append(f"  {name:28} {value:>12}   {note.format(brief_size(num_bytes))}".rstrip())
    return "\n".join(lines)


def _in_short(page: _Page, forecast: Forecast) -> str:
    """The line that a user reads first: time, bytes and memory of the whole run."""
    steps = page.iterations / page.question.planning.iterations
    traffic, exchange = page.question.traffic, page.question.planning.exchange
    served = steps * (sum(traffic.out) + sum(traffic.back))
    every = 0 if exchange is None else exchange.every
    exchanged = steps / every * traffic.exchanged if every else 0.0
    moved = f"{brief_size(served)} over the server's links"
    if exchanged:
        moved += f" and {brief_size(exchanged)} between workers"
    if page.price_per_gb is not None:
        price = page.price_per_gb * (served + exchanged) / 1e9
        moved += f" ({price:,.2f} at {page.price_per_gb:g} a GB)"
    memory = list(_memory(page))[-1 if page.layout.shared else 0][1]
    owner = "all processes" if page.layout.shared else "the server"
    return (
        f"{count(page.iterations, 'iteration')} will take {duration(steps * forecast.step)} and "
        f"move {moved}; memory of {owner}: {memory}"
    )


def _step(page: _Page, forecast: Forecast) -> Iterator[Lines]:
    cores, a_step = page.question.layout.cores, page.question.planning.iterations
    times = [
        ("all of it", forecast.step, f"{1 / forecast.step:.3g} {page.unit}s/s"),
        ("the server", forecast.server, "its arithmetic and messages"),
        ("the workers", forecast.workers, "their arithmetic and messages, until the last is done"),
        ("the cores", forecast.work, f"the work of all processes over {cores} core(s)"),
        ("the server's link, out", forecast.out, ""),
        ("the server's link, back", forecast.back, "partly at the same time"),
        ("latency", forecast.latency, "there and back"),
    ]
    yield from ((name, brief_seconds(time), note) for name, time, note in times if time)
    seconds = page.iterations / a_step * forecast.step
    without = "without scores, pictures and checkpoints"
    yield count(page.iterations, "iteration"), duration(seconds), without


def _stages(page: _Page) -> Iterator[Lines]:
    measured, num_hosts = page.measured, len(page.question.layout.hosts)
    yield from _phases("server", measured.server, "")
    yield "server: messages", _messages(measured.server), count(num_hosts, "host")
    yield from _phases("worker", measured.worker.ahead, "while it would wait")
    yield from _phases("worker", measured.worker.asked, "")
    yield "host: messages", _messages(measured.worker.asked), ""


def _phases(role: str, stages: Seconds, note: str) -> Iterator[Lines]:
    for phase, seconds in stages.items():
        if phase not in MESSAGES:
            yield f"{role}: {phase.replace('-', ' ')}", brief_seconds(seconds), note


def _messages(stages: Seconds) -> str:
    return brief_seconds(sum(stages.get(phase, 0.0) for phase in MESSAGES))


def _bytes(page: _Page) -> list[Lines]:
    out, back = page.question.traffic.out, page.question.traffic.back
    return [
        ("server sends", brief_size(sum(out)), ""),
        ("server receives", brief_size(sum(back)), ""),
        ("host receives", brief_size(max(out)), ""),
        ("host sends", brief_size(max(back)), ""),
    ]


def _exchange(page: _Page, forecast: Forecast) -> Iterator[Section]:
    exchange = page.question.planning.exchange
    if exchange is None:
        return
    every = ("every", "never", "")
    if exchange.every is None:
        every = ("every", "?", f"not part of the time above; say {exchange.remedy}")
    elif exchange.every:
        every = ("every", f"{exchange.every:,}", f"{page.unit}s, part of the time above")
    thing = f"a {exchange.thing}", brief_size(exchange.num_bytes), ""
    time = "time", brief_seconds(forecast.exchange), "without its arithmetic"
    yield f"a {exchange.name}", [thing, time, every]


def _memory(page: _Page) -> Iterator[Lines]:
    layout, measured = page.layout, page.measured
    shared, worker_bytes = measured.shared_bytes, measured.worker_bytes
    yield "the server's process", brief_size(shared + measured.server_bytes), ""
    if page.question.planning.placing is not None:
        yield "a host's process", brief_size(shared + measured.host_bytes), ""
        yield "each of its slots", brief_size(worker_bytes), ""
        return
    host_bytes = [measured.host_bytes + (n - 1) * worker_bytes for n in layout.sizes]
    yield "a host's process", brief_size(shared + max(host_bytes)), f"{max(layout.sizes)} worker(s)"
    yield "a further worker in it", brief_size(worker_bytes), ""
    if layout.shared:
        everything = shared + measured.server_bytes + sum(host_bytes)
        yield "all together", brief_size(everything), "shared libraries counted once"


def _bottleneck(page: _Page, forecast: Forecast) -> str:
    cores = page.question.layout.cores
    what, seconds = {
        "cores": (f"the {cores} core(s) that all processes share", forecast.work),
        "server": ("the server's arithmetic and messages", forecast.server),
        "workers": ("the workers' arithmetic and messages", forecast.workers),
        "link": ("the server's link, out and back,", forecast.out + forecast.back),
        "latency": ("latency", forecast.latency),
    }[forecast.bottleneck]
    if page.unit != "iteration":  # its parts follow each other, so that none is a bottleneck
        parts = f"{brief_seconds(seconds)} of {brief_seconds(forecast.step)}"
        return f"{a(page.unit)} waits longest for {what.removesuffix(',')}: {parts}"
    return f"bottleneck: {what} take {brief_seconds(seconds)} {a(page.unit)}"
