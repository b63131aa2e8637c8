"""From settings to the page of `mdgan plan`."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import fmean

import torch

from mdgan.data.dataset_file import DatasetFile
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.families.contract import ClassCounts, Placing, PlannedHost, PlannedShare
from mdgan.launch import machine
from mdgan.launch.forks import ForkFailed
from mdgan.launch.holdings import read_data
from mdgan.launch.models import tried_models
from mdgan.launch.ranks import LocalRanks, local_ranks
from mdgan.launch.settings import LaunchSettings
from mdgan.observe.progress import duration
from mdgan.plan.layout import Layout, Link, Machines, Workers, consecutive, shared_out
from mdgan.plan.measurement import Measured, Measurement
from mdgan.plan.prediction import Question
from mdgan.plan.words import Lines, Page, Section, in_words
from mdgan.records.values import brief_seconds, brief_size
from mdgan.settings.machine import num_cores

_log = logging.getLogger(__name__)

_COHORTS = (10, 100, 1_000, 10_000)
"""Clients of a round that are foretold besides those of the planned run."""
_ROUNDS = 5_000
"""Sani et al. 2024, appendix: "a commonly used experimental setting in FL research"."""
_MOST_RANGES = 8


def foretell(
    settings: RunSettings,
    launch: LaunchSettings,
    dataset: DatasetFile,
    link: Link,
    machines: Sequence[Machines],
    *,
    shared: bool,
    shard_size: int | None,
) -> str:
    """Measures, predicts, and puts it into words.

    Args:
        machines: those of the run besides the server's, if the user has named them.
        shard_size: samples of a worker; None if the user has not said.
    """
    torch.set_num_threads(1)  # what is forked later must not have a pool of threads
    models = tried_models(settings, dataset)
    entry = registry.algorithm(settings.algorithm)
    builder = entry.build()
    if settings.num_roaming is not None:  # ranks are hosts of clients
        if machines:
            settings = settings.but(world_size=1 + sum(each.count for each in machines))
        else:
            name = "host here" if shared else "like here"
            machines = [Machines(settings.num_workers, name)]
    planning = builder.planning(settings, models, _class_counts(settings, dataset, shard_size))
    if planning.has_groups or planning.by_arrival:
        what = "workers in groups" if planning.has_groups else "a server that waits for no worker"
        raise BadInput(
            f"--algorithm {entry.name}: mdgan plan cannot foretell {what}; plan without, and leave "
            "out the flags that ask for it"
        )
    layout, carried = _layout(settings, launch, machines, shared=shared)
    more = [_workers(machines, carried)] if machines and not planning.placing else []
    try:
        hosts_here = len(carried) if shared else 1
        measured = Measurement(entry, dataset, layout, planning, hosts_here).take()
    except ForkFailed as error:
        raise BadInput(
            f"--batch-size {settings.training.batch_size}: {entry.unit}s cannot be measured here "
            f"({error}); try a smaller one"
        ) from error
    question = Question(layout, link, measured.costs, measured.traffic, planning)
    if planning.placing is not None:
        rounds = _Rounds(planning.placing, measured, question, machines)
        question, more = rounds.asked(planning.placing.a_step)[0], rounds.sections()
    described = dict(builder.describe(settings, models, [[1]]))
    title = _title(settings, layout, planning.placing, described.get("κ"), shared=shared)
    return in_words(Page(entry.unit, title, settings.training.iterations, question, measured, more))


def _class_counts(
    settings: RunSettings, dataset: DatasetFile, shard_size: int | None
) -> ClassCounts | None:
    """What each worker holds, or each client without a home; None if that is not known."""
    if shard_size is not None:
        return [[shard_size]] * (settings.num_roaming or settings.num_workers)
    if settings.num_roaming is None:
        return None
    nobody = LocalRanks(serves=True, hosts=(), complete=False)
    entry = registry.algorithm(settings.algorithm)
    try:
        clients, _ = read_data(entry, settings, dataset, nobody, show_all=False)
    except BadInput as error:
        _log.warning("what clients hold is not known (%s)", error)
        return None
    return None if clients is None else list(clients.class_counts().values())


def _layout(
    settings: RunSettings, launch: LaunchSettings, machines: Sequence[Machines], *, shared: bool
) -> tuple[Layout, Sequence[Workers]]:
    """Who computes where, and the workers of each machine that the user has named, maybe none."""
    carried = local_ranks(settings, launch, None).hosts
    speeds = [each.speed for each in machines for _ in range(each.count)]
    placed = settings.num_roaming is not None
    if speeds:
        sizes = [1] * len(speeds) if placed else shared_out(settings.num_workers, speeds)
        carried = consecutive(sizes)
    layout = Layout(
        tuple(filter(None, carried)),
        cores=num_cores(),
        host_threads=machine.num_threads(launch, 1 + len(carried) if shared else 1),
        server_threads=machine.num_threads(launch),
        shared=shared and not placed,  # slots are measured as they share cores
        speeds=tuple(speed for speed, own in zip(speeds, carried, strict=False) if own),
    )
    return layout, carried


def _title(
    settings: RunSettings,
    layout: Layout,
    placing: Placing | None,
    kappa: str | None,
    *,
    shared: bool,
) -> str:
    where = "one machine" if shared else "machines of their own"
    generated = "" if kappa is None else f", κ = {kappa}"
    who, about = f"{layout.num_workers} worker(s)", ""
    if placing is not None:
        who, about = f"{placing.a_step:,} of {placing.clients:,} clients", f"; {placing.about}"
    return (
        f"{settings.data.dataset}: {who} in {len(layout.hosts)} host(s) and the server, on {where} "
        f"of {layout.cores} core(s); b = {settings.training.batch_size}{generated}{about}"
    )


def _workers(machines: Sequence[Machines], hosts: Sequence[Workers]) -> Section:
    """How many workers each machine should carry, and by which `--ranks`."""
    rows, left = [], iter(hosts)
    for each in machines:
        own = list(islice(left, each.count))
        ranges = [f"{carried[0]}..{carried[-1]}" for carried in own if carried]
        more = ", …" if len(ranges) > _MOST_RANGES else ""
        ranks = ", ".join(ranges[:_MOST_RANGES]) + more
        fewest, most = min(map(len, own)), max(map(len, own))
        count = f"{most}" if fewest == most else f"{fewest} to {most}"
        rows.append((str(each), count, f"worker(s); --ranks {ranks}" if ranks else "workers"))
    return "machines, each with one host", rows


@dataclass(frozen=True)
class _Rounds:
    """Rounds of clients without a home; `measured` and `question` have the costs of messages."""

    placing: Placing
    measured: Measured
    question: Question
    machines: Sequence[Machines]

    def asked(self, a_step: int) -> tuple[Question, Sequence[PlannedShare]]:
        """The question with what hosts do if so many clients take part, and that."""
        hosts = [
            PlannedHost(each.slots or self.placing.slots, each.speed)
            for each in self.machines
            for _ in range(each.count)
        ]
        shares = self.placing.shares(self.measured.placed, hosts, a_step)
        messages = self.question.costs.answers
        answers = tuple(m + share.seconds for m, share in zip(messages, shares, strict=True))
        out, back = tuple(each.out for each in shares), tuple(each.back for each in shares)
        costs = replace(self.question.costs, answers=answers)
        traffic = replace(self.question.traffic, out=out, back=back)
        return replace(self.question, costs=costs, traffic=traffic), shares

    def sections(self) -> list[Section]:
        """What they add to the page."""
        clients = [
            (f"of {num_batches} iteration(s)", brief_seconds(seconds), "")
            for num_batches, seconds in self.placing.seconds(self.measured.placed).items()
        ]
        return [
            ("a client, on a slot of this machine", clients),
            ("machines, each with one host", list(self._hosts())),
            ("foretold for other rounds", list(self._cohorts())),
        ]

    def _hosts(self) -> Iterator[Lines]:
        shares, measured = self.asked(self.placing.a_step)[1], self.measured
        longest = max(each.seconds for each in shares)
        left = iter(shares)
        for each in self.machines:
            own = list(islice(left, each.count))
            slots = each.slots or self.placing.slots
            memory = measured.shared_bytes + measured.host_bytes + slots * measured.worker_bytes
            idle = 1 - fmean(share.busy for share in own) / longest
            clients = fmean(share.clients for share in own)
            note = f"{slots} slot(s), {clients:.3g} client(s), {idle:.0%} idle"
            seconds = brief_seconds(max(share.seconds for share in own))
            yield str(each), seconds, f"{note}, {brief_size(memory)} of memory"

    def _cohorts(self) -> Iterator[Lines]:
        sizes = {self.placing.a_step, *(size for size in _COHORTS if size < self.placing.clients)}
        for size in sorted({*sizes, self.placing.clients}):
            seconds = self.asked(size)[0].answer().step
            whole = f"{_ROUNDS:,} rounds take {duration(_ROUNDS * seconds)}"
            note = f"{3600 / seconds:,.0f} rounds an hour; {whole}"
            yield f"{size:,} clients a round", brief_seconds(seconds), note
