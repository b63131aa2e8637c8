"""Numbers that need no drawing: memory, waiting for data, operators, idle slots, slots tried."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

from mdgan.records.placements import Place
from mdgan.records.roles import first_worker
from mdgan.records.rows import OPERATORS, Fetching, Profile
from mdgan.records.values import chosen_evenly, count, said, said_bytes, said_seconds
from mdgan.report.figures.picture import Picture, Row, Table, only
from mdgan.report.figures.slots import name_of, percent, short
from mdgan.report.numbers import placements
from mdgan.report.numbers.placements import Fit, Tried
from mdgan.report.numbers.subject import Subject

_MOST_ROWS = 40
_A_HOST = "a host, mean"


def _table(header: Row, rows: Sequence[Row], told: Sequence[str]) -> Picture:
    return Picture([], only(told), Table(header, chosen_evenly(rows, _MOST_ROWS)))


# ----- memory


def memory(subject: Subject) -> dict[str, list[int]]:
    """Role → the bytes that its process held at one time after another; the server first."""
    traces = sorted(subject.run.traces.items(), key=lambda item: _place(item[0]))
    return {role: trace.memory for role, trace in traces if trace.memory}


def _place(role: str) -> tuple[bool, int, str]:
    return role != "server", first_worker(role), role


def memory_by_process(found: Sequence[tuple[Subject, dict[str, list[int]]]]) -> Picture:
    """The memory of each process at first, at most and at the end."""
    rows = [
        (f"{subject.label}, {role}", *map(said_bytes, (sizes[0], max(sizes), sizes[-1])))
        for subject, of_roles in found
        for role, sizes in of_roles.items()
    ]
    totals = [f"{said_bytes(sum(map(max, of_roles.values())))} in all" for _, of_roles in found]
    return _table(("run and process", "at first", "most", "at the end"), rows, totals)


# ----- waiting for data


def fetching(subject: Subject) -> dict[str, list[Fetching]]:
    """Role → what it told of its data, in order; empty if no data are read ahead."""
    found: dict[str, list[Fetching]] = {}
    for row in subject.run.of(Fetching):
        found.setdefault(row.role, []).append(row)
    return found


def waits(found: Sequence[tuple[Subject, dict[str, list[Fetching]]]]) -> Picture:
    """Latency, threads and buffer of each process at some iterations."""
    rows: list[Row] = []
    told = []
    for subject, roles in found:
        for role, every in roles.items():
            rows += [
                (f"{subject.label}, {role}", f"{row.iteration:,}", said_seconds(row.mean_seconds),
                 said_seconds(row.longest_seconds), f"{row.threads:,}", f"{row.buffer:,}")
                for row in chosen_evenly(every, max(2, _MOST_ROWS // len(roles)))
            ]  # fmt: skip
        of_all = [row for every in roles.values() for row in every]
        mean = sum(row.waited_seconds for row in of_all) / sum(row.batches for row in of_all)
        longest = max(row.longest_seconds for row in of_all)
        threads = count(max(row.threads for row in of_all), "thread")
        told.append(
            f"{said_seconds(mean)} a batch, {said_seconds(longest)} at most, with up to {threads}"
        )
    header = ("run and process", "iteration", "mean wait", "longest", "threads", "pictures ahead")
    return _table(header, rows, told)


# ----- operators


class Profiled(NamedTuple):
    """Where the time of a process went, or of the hosts in the mean; shares are in [0, 1]."""

    shares: Mapping[str, float]
    busy_cores: float
    cores: int
    gpu: float | None
    iterations: str


def operators(subject: Subject) -> dict[str, Profiled]:
    """The role with the generator, and the mean of the hosts; empty without a profile."""
    last = {row.role: row for row in subject.run.of(Profile) if sum(row.operators.values()) > 0}
    groups: dict[str, list[Profile]] = {}
    for role, row in sorted(last.items(), key=lambda item: first_worker(item[0])):
        groups.setdefault(_A_HOST if first_worker(role) else role, []).append(row)
    return {role: _mean(rows) for role, rows in groups.items()}


def _mean(rows: Sequence[Profile]) -> Profiled:
    shares: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        total = sum(row.operators.values())
        for kind, seconds in row.operators.items():
            shares[kind] += seconds / total / len(rows)
    known = [row.gpu for row in rows if row.gpu is not None]
    ranges = {f"{row.first:,} to {row.last:,}" for row in rows}
    busy = fmean(row.busy_cores for row in rows)
    return Profiled(shares, busy, rows[0].cores, fmean(known) if known else None, min(ranges))


def profiled(found: Sequence[tuple[Subject, dict[str, Profiled]]]) -> Picture:
    """Shares of each kind of operator, a row each role."""
    every = [one for _, roles in found for one in roles.values()]
    kinds = [kind for kind in OPERATORS if any(kind in one.shares for one in every)]
    rows: list[Row] = [
        (f"{subject.label}, {role}", one.iterations,
         *(f"{100 * one.shares.get(kind, 0.0):.1f} %" for kind in kinds),
         f"{one.busy_cores:.2f} of {one.cores}", "–" if one.gpu is None else percent(one.gpu))
        for subject, roles in found
        for role, one in roles.items()
    ]  # fmt: skip
    header = ("run and role", "iterations", *kinds, "cores busy", "GPU busy")
    told = ["; ".join(_said(*item) for item in roles.items()) for _, roles in found]
    return _table(header, rows, told)


def _said(role: str, one: Profiled) -> str:
    kind = max(one.shares, key=one.shares.__getitem__)
    gpu = "" if one.gpu is None else f" and its GPU {percent(one.gpu)} of the time"
    cores = f"{one.busy_cores:.2f} of {one.cores} cores busy{gpu}"
    return f"{role}: {100 * one.shares[kind]:.0f} % {kind}, {cores}"


# ----- slots


def idle_slots(found: Sequence[tuple[Subject, Mapping[Place, Mapping[int, float]]]]) -> Picture:
    """The share of rounds in which slots had nothing to do."""
    rows = [
        (subject.label, name_of(place), short(place.kind), f"{len(rounds):,}",
         percent(fmean(rounds.values())), percent(max(rounds.values())))
        for subject, shares in found
        for place, rounds in shares.items()
    ]  # fmt: skip
    told = []
    for subject, _ in found:
        by_strategy = placements.idle_by_strategy(subject.run)
        each = [
            f"{percent(fmean(shares))} in {count(len(shares), 'round')} of {short(strategy)}"
            for strategy, shares in chosen_evenly(sorted(by_strategy.items()), _MOST_ROWS)
        ]
        told.append(f"idle in the mean: {', '.join(each)}")
    header = ("run", "slot", "kind", "rounds", "idle, mean", "idle, most")
    return _table(header, rows, told)


def fitted_curves(found: Sequence[tuple[Subject, Mapping[str, Fit]]]) -> Picture:
    """The curves of seconds by batches, and what they leave."""
    rows = [
        (subject.label, short(kind), f"{len(fit.points):,}", *map(said, fit.curve),
         said_seconds(median(map(abs, fit.residuals()))))
        for subject, kinds in found
        for kind, fit in kinds.items()
    ]  # fmt: skip
    told = []
    for _, kinds in found:
        parts = []
        for kind, fit in list(kinds.items())[:2]:
            terms = zip(map(said, fit.curve), ("·x", "·log(x)", ""), strict=True)
            curve = " + ".join(f"{factor}{of}" for factor, of in terms if factor != "0")
            parts.append(f"{short(kind) or 'slots'}: {curve or '0'} seconds")
        told.append("; ".join(parts))
    header = ("run", "kind", "clients", "a [s]", "b [s]", "d [s]", "residual, median")
    return _table(header, rows, told)


def numbers_of_slots(found: Sequence[tuple[Subject, Mapping[int, Sequence[Tried]]]]) -> Picture:
    """How hosts searched for the number of slots that trains the most batches a second."""
    rows: list[Row] = []
    told = []
    for subject, hosts in found:
        gains = []
        for host, tried in hosts.items():
            rows += [
                (subject.label, f"host {host}", f"{one.num_slots:,}",
                 f"{one.rounds[0]:,} to {one.rounds[-1]:,}", said(median(one.rates)))
                for one in tried
            ]  # fmt: skip
            gain = median(tried[-1].rates) / median(tried[0].rates)
            numbers = f"{tried[0].num_slots} to {tried[-1].num_slots}"
            gains.append(f"host {host} went from {numbers} ({gain:.2f} ×)")
        told.append(f"slots, and batches a second: {', '.join(gains[:8])}")
    header = ("run", "host", "slots", "rounds", "batches a second, median")
    return _table(header, rows, told)
