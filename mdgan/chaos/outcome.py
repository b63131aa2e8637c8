"""Finds out what followed from every fault, and whether the run survived."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import torch

from mdgan.chaos.history import Noticed
from mdgan.chaos.play import Played
from mdgan.chaos.schedule import HOSTILE, Event
from mdgan.errors import BadInput
from mdgan.launch.faults import SERVER, Strike
from mdgan.records.run_directory import RunDirectory
from mdgan.storage.checkpoints import Checkpoints

_CLOCK_SECONDS = 0.02  # by which the record of a fault may seem to be earlier than the fault
_OF_LIARS = ("shut out", "lost", "left", "refused", "late")  # the worst first
_SERVER_IS_GONE = ("lost the server", "the server is gone")


@dataclass(frozen=True)
class Row:
    """What followed from one event.

    Attributes:
        event: what was planned.
        iteration: in which it struck; None if it did not.
        noticed_seconds: until another process noticed; None if none did.
        over_seconds: until the process or one in its place took part again; None if none did.
        lost: iterations that had to be done again.
        happened: the same for people.
    """

    event: Event
    iteration: int | None = None
    noticed_seconds: float | None = None
    over_seconds: float | None = None
    lost: int = 0
    happened: str = "did not strike: its target was not there"

    def cells(self) -> list[str]:
        """For a table."""
        times = (self.noticed_seconds, self.over_seconds)
        at = "–" if self.iteration is None else str(self.iteration)
        seconds = ["–" if moment is None else f"{moment:.2f}" for moment in times]
        return [str(self.event), at, *seconds, str(self.lost), self.happened]


HEADINGS = ("fault", "at iteration", "noticed after s", "over after s", "lost", "what happened")
"""Of the columns of `Row.cells`."""


def rows(played: Played) -> list[Row]:
    """What followed from every event, in order."""
    found = []
    for place, planned in enumerate(played.events):
        strike = played.strikes.get(place)
        event = planned if strike is None else planned.of(strike.role)
        if event.fault is None:
            found.append(_of_comer(played, place))
        elif strike is None:
            found.append(Row(event))
        elif not played.history.events:
            happened = "it struck; the server's records tell more"
            found.append(Row(event, strike.iteration, happened=happened))
        elif event.kind == HOSTILE:
            found.append(_of_liar(played, event, strike, event.fault.role))
        elif event.fault.role == SERVER:
            found.append(_of_server(played, event, strike))
        else:
            found.append(_of_host(played, event, strike, event.fault.role))
    return found


def _of_host(played: Played, event: Event, strike: Strike, role: str) -> Row:
    host, since = int(role[5:]), strike.time - _CLOCK_SECONDS
    until = _next_strike(played, role, strike)
    about = [
        found
        for found in played.history.after(since, "lost", "left", "late", "back", "joined")
        if host in found.workers and found.time < until
    ]
    noticed = next((found for found in about if found.name in ("lost", "left", "late")), None)
    if noticed is None:
        slow = "unnoticed; the iteration took longer"
        alone = "no server was there to notice"
        return Row(event, strike.iteration, happened=slow if event.halt_seconds else alone)
    gone = next((found for found in about if found.name in ("lost", "left")), noticed)
    ends = "back" if gone.name == "late" else "joined"
    over = next((found for found in about if found.name == ends and found.time >= gone.time), None)
    return Row(
        event,
        strike.iteration,
        max(0.0, noticed.time - strike.time),
        None if over is None else over.time - strike.time,
        0,
        _in_words(gone, over, host),
    )


def _of_liar(played: Played, event: Event, strike: Strike, role: str) -> Row:
    host, since = int(role[5:]), strike.time - _CLOCK_SECONDS
    until = _next_strike(played, role, strike)
    about = [
        found
        for found in played.history.after(since, *_OF_LIARS, "joined")
        if host in found.workers and found.time < until
    ]
    worst = min(
        (found for found in about if found.name in _OF_LIARS),
        key=lambda found: (_OF_LIARS.index(found.name), found.time),
        default=None,
    )
    if worst is None:
        return Row(event, strike.iteration, happened=f"{strike.did}; no effect on rank {host}")
    later = (found for found in about if found.name == "joined" and found.time >= worst.time)
    over = next(later, None)
    what = "its answer was refused" if worst.name == "refused" else worst.name
    reason = f" ({worst.record['reason']})" if "reason" in worst.record else ""
    return Row(
        event,
        strike.iteration,
        max(0.0, worst.time - strike.time),
        None if over is None else over.time - strike.time,
        0,
        f"{strike.did}; rank {host}: {what}{reason}",
    )


def _next_strike(played: Played, role: str, strike: Strike) -> float:
    """When the same host was struck again; later records may be about that fault."""
    struck = played.strikes.items()
    faults = [(played.events[place].of(other.role).fault, other) for place, other in struck]
    later = [
        other.time
        for fault, other in faults
        if fault is not None and fault.role == role and other.time > strike.time
    ]
    return min(later, default=inf)


def _in_words(gone: Noticed, over: Noticed | None, host: int) -> str:
    reason = f" ({gone.record['reason']})" if "reason" in gone.record else ""
    if over is None:
        return f"rank {host} {gone.name}{reason}; the others went on"
    missed = over.iteration - gone.iteration
    return f"rank {host} {gone.name}{reason}; back {missed} iteration(s) later"


def _of_server(played: Played, event: Event, strike: Strike) -> Row:
    gone = [
        moment
        for actor in played.actors
        for moment, line in actor.lines
        if moment >= strike.time and any(text in line for text in _SERVER_IS_GONE)
    ]
    noticed = min(gone) - strike.time if gone else None
    resumed = next(played.history.after(strike.time, "resumed"), None)
    if resumed is None:
        happened = "it went on as before" if event.halt_seconds else "no standby took its place"
        return Row(event, strike.iteration, noticed, None, 0, happened)
    lost = max(0, strike.iteration - resumed.iteration)
    happened = f"a standby went on from iteration {resumed.iteration}"
    return Row(event, strike.iteration, noticed, resumed.time - strike.time, lost, happened)


def _of_comer(played: Played, place: int) -> Row:
    event = played.events[place]
    if place not in played.comers:
        return Row(event, happened="the run did not get there")
    actor, rank = played.comers[place]
    events = played.history.after(actor.began, "joined")
    joined = next((found for found in events if rank in found.workers), None)
    if joined is None:
        refused = [line for _, line in actor.lines if "refused" in line]
        why = (refused or ["the run was over before it could join"])[-1]
        return Row(event, event.iteration, happened=why)
    happened = f"rank {rank} joined {joined.time - actor.began:.1f} s after it was started"
    return Row(event, joined.iteration, happened=happened)


def troubles(
    played: Played,
    run: Path,
    iterations: int,
    *,
    serves: bool,
    hosts: Sequence[Sequence[int]] = (),
) -> list[str]:
    """Looks for what is wrong after the last fault; training survived if nothing is.

    Args:
        played: what happened.
        run: the run's folder.
        iterations: I.
        serves: whether rank 0 was started here.
        hosts: the workers of the hosts that the run began with; others carry one.

    Returns:
        One line for each problem.
    """
    found = [f"process {process} did not end by itself" for process in played.killed]
    if played.stalled:
        found.append(f"no iteration was done for too long after {played.history.iteration}")
    if not serves:
        return found + _troubles_of_hosts(played)
    status = RunDirectory(run).read_status() if (run / "run.json").exists() else {}
    if (status.get("state"), status.get("iteration")) != ("finished", iterations):
        found.append(
            f"training is {status.get('state', 'not there')} at iteration "
            f"{status.get('iteration', 0)} of {iterations}"
        )
    honest_until = _honest_until(played, hosts)
    found += _wronged(played, honest_until)
    found += _torn_swaps(list(played.history.after(0.0, "swap")), honest_until)
    return found + _troubles_on_disk(run, iterations)


def _troubles_of_hosts(played: Played) -> list[str]:
    """If the server is on another machine: hosts show by their exit status that training ended."""
    train = played.actors[0].status
    struck = -128 if train is None else train - 128
    if train == 0 or (struck > 0 and played.strikes):
        return []
    return [f"mdgan train ended with status {train}"]


def _honest_until(played: Played, hosts: Sequence[Sequence[int]]) -> dict[int, float]:
    """By worker of the hosts here, when its host has lied first; inf if it never has."""
    workers = {number: [number] for number in played.hosts} | {host[0]: host for host in hosts}
    until = {n: inf for carried in workers.values() for n in carried}
    for place, strike in played.strikes.items():
        fault = played.events[place].of(strike.role).fault
        if fault is not None and fault.lies:
            for n in workers.get(int(fault.role[5:]), ()):
                until[n] = min(until[n], strike.time - _CLOCK_SECONDS)
    return until


def _wronged(played: Played, honest_until: Mapping[int, float]) -> list[str]:
    """Honest workers that were treated as liars."""
    return [
        f"honest rank {worker}: {event.name} at iteration {event.iteration} "
        f"({event.record['reason']})"
        for event in played.history.after(0.0, "shut out", "refused")
        for worker in event.workers
        # What a swap has just brought may make an answer unusable; that is no strike.
        if event.time < honest_until.get(worker, 0.0) and event.record.get("strikes", 1)
    ]


def _torn_swaps(swaps: Sequence[Noticed], honest_until: Mapping[int, float]) -> list[str]:
    """Workers that took another discriminator than, bit for bit, the one that was given.

    What liars gave and took is left out: they say of that what they like.
    """
    return [
        f"swap at iteration {swap.iteration}: rank {taker} holds something else than {giver} gave"
        for swap in swaps
        for giver, taker in swap.record["moves"]
        if str(taker) in swap.record["taken"]
        and str(giver) in swap.record["given"]
        and swap.record["taken"][str(taker)] != swap.record["given"][str(giver)]
        and all(swap.time < honest_until.get(worker, inf) for worker in (giver, taker))
    ]


def _troubles_on_disk(run: Path, iterations: int) -> list[str]:
    found = [f"half a file: {path}" for path in run.rglob("*.tmp")]
    try:
        state, iteration = RunDirectory(run).read_generator()
        if iteration != iterations or not all(torch.isfinite(v).all() for v in state.values()):
            found.append(f"the generator is of iteration {iteration}, or not finite")
    except BadInput as error:
        found.append(str(error))
    if (run / "checkpoints").is_dir():
        newest, passed_over = Checkpoints(run / "checkpoints", keep=1).newest()
        found += passed_over
        if newest is None or newest.iteration != iterations:
            found.append("the last checkpoint is missing")
    return found
