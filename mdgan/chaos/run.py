"""`mdgan chaos`: draws faults, plays them on a run, and shows the consequences of each."""

import logging
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import torch

from mdgan.chaos.play import ChaosCommands, ChaosLimits, ChaosRun, play
from mdgan.chaos.schedule import ChaosEvent, ChaosSetting, draw_schedule
from mdgan.errors import BadInput
from mdgan.launch.faults import SERVER, Strike
from mdgan.launch.given import Given
from mdgan.launch.ranks import LocalRanks, local_ranks
from mdgan.launch.settled import load, settle
from mdgan.observe.text_table import text_table
from mdgan.records.happenings import BACK, JOINED, LATE, LEFT, LOST, REFUSED, RESUMED, SHUT_OUT
from mdgan.records.run_directory import RunDirectory
from mdgan.spelling import count, flag
from mdgan.storage.checkpoints import Checkpoints

_say = partial(logging.getLogger(__name__).info, extra={"shown": "result"})

_CLOCK_SECONDS = 0.02  # how much earlier than a fault its record may seem to be
_GONE = (LOST, LEFT)
_SERVER_IS_GONE = ("lost the server", "the server is gone")


def run_chaos(
    commands: ChaosCommands,
    settings: Mapping[str, Any],
    seed: int | None,
    num_faults: int,
    kinds: Sequence[str],
    limits: ChaosLimits,
) -> int:
    """Trains while faults of a seed strike; returns the exit status, 0 if training survived."""
    ranks, setting = _setting(settings, kinds)
    seed = secrets.randbelow(10**6) if seed is None else seed
    events = draw_schedule(seed, num_faults, kinds, setting=setting)
    # As Ctrl-C, so that `play` ends every process that it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _say("%s drawn from --seed %d:", count(num_faults, "fault"), seed)
    for event in events:
        _say("%9d | %s", event.iteration, event)
    folder = Path(settings["out"])
    if not ranks.serves:  # only the server's machine sees how far the run is
        limits = replace(limits, stall_seconds=inf)
    run = play(commands, events, limits, run=folder)
    _say("\n%s\n", text_table([each.cells() for each in consequences(run)], HEADINGS))
    problems = troubles(run, folder, setting.iterations, serves=ranks.serves)
    for line in problems:
        _say("mdgan: %s", line)
    faults, newcomers = count(len(run.strikes), "fault"), count(len(run.comers), "newcomer")
    verdict = "did not survive" if problems else "survived"
    _say("training %s %s and %s (--seed %d)", verdict, faults, newcomers, seed)
    return 1 if problems else 0


def _setting(values: Mapping[str, Any], kinds: Sequence[str]) -> tuple[LocalRanks, ChaosSetting]:
    settled = settle(load(Given([values]).named()))
    launch, settings = settled.launch, settled.settings
    ranks = local_ranks(settings, launch, None)
    if not ranks.serves and not {"server", "join"}.isdisjoint(kinds):
        why = "rank 0 runs elsewhere"
        raise BadInput(flag("ranks", launch.ranks), why, "leave server and join out of --kinds")
    if not ranks.hosts and set(kinds) - {"server", "join"}:
        why = "no worker runs here"
        raise BadInput(flag("ranks", launch.ranks), why, "give --kinds server,join")
    if "server" in kinds and not settings.makes_checkpoints:
        raise BadInput(
            flag("checkpoint_interval", settings.checkpoints.checkpoint_interval),
            "without checkpoints no other server can take over",
            f"give one below {flag('iterations')}",
        )
    hosts = [host[0] for host in ranks.hosts]
    phases = settled.algorithm.phases(settings)
    return ranks, ChaosSetting(
        settings.training.iterations, hosts, launch.links.liveness_timeout, *phases
    )


@dataclass(frozen=True)
class Consequence:
    """The consequences of one event."""

    event: ChaosEvent
    iteration: int | None = None  # in which the fault struck; None if it did not
    noticed_seconds: float | None = None  # until another process noticed; None if none did
    # Until the process, or its replacement, took part again; None if neither did.
    over_seconds: float | None = None
    lost: int = 0  # iterations that had to be done again
    happened: str = "did not strike: its target was not there"

    def cells(self) -> list[str]:
        """The cells of a table's row."""
        times = (self.noticed_seconds, self.over_seconds)
        at = "–" if self.iteration is None else str(self.iteration)
        seconds = ["–" if moment is None else f"{moment:.2f}" for moment in times]
        return [str(self.event), at, *seconds, str(self.lost), self.happened]


HEADINGS = ("fault", "at iteration", "noticed after s", "over after s", "lost", "what happened")
"""Headings of the columns of `Consequence.cells`."""


def consequences(run: ChaosRun) -> list[Consequence]:
    """The consequences of every event, in order."""
    return [_consequence(run, place) for place in range(len(run.events))]


def _consequence(run: ChaosRun, place: int) -> Consequence:
    event, strike = run.events[place], run.strikes.get(place)
    if event.fault is None:
        return _of_comer(run, place)
    if strike is None:
        return Consequence(event)
    if not run.history.events:
        happened = "it struck; the server's records tell more"
        return Consequence(event, strike.iteration, happened=happened)
    if event.fault.role == SERVER:
        return _of_server(run, event, strike)
    return _of_host(run, event, strike, role=event.fault.role)


def _of_host(run: ChaosRun, event: ChaosEvent, strike: Strike, role: str) -> Consequence:
    host = int(role[5:])
    # Records after the host's next fault may be about that fault.
    faults = [(run.events[place].fault, other.time) for place, other in run.strikes.items()]
    later = [time for fault, time in faults if fault and fault.role == role and time > strike.time]
    about = [
        event
        for event in run.history.after(strike.time - _CLOCK_SECONDS, *_GONE, LATE, BACK, JOINED)
        if host in event.row.workers and event.time < min(later, default=inf)
    ]
    noticed = next((each for each in about if each.row.kind in (*_GONE, LATE)), None)
    if noticed is None:
        slow = "unnoticed; the iteration took longer"
        alone = "no server was there to notice"
        return Consequence(event, strike.iteration, happened=slow if event.halt_seconds else alone)
    onset = next((each for each in about if each.row.kind in _GONE), noticed)
    ends = BACK if onset.row.kind == LATE else JOINED
    over = next((each for each in about if each.row.kind == ends and each.time >= onset.time), None)
    reason = f" ({onset.row.reason})" if onset.row.reason else ""
    then = "the others went on"
    if over is not None:
        then = f"back {over.row.iteration - onset.row.iteration} iteration(s) later"
    return Consequence(
        event,
        strike.iteration,
        max(0.0, noticed.time - strike.time),
        over_seconds=None if over is None else over.time - strike.time,
        happened=f"rank {host} {onset.row.kind}{reason}; {then}",
    )


def _of_server(run: ChaosRun, event: ChaosEvent, strike: Strike) -> Consequence:
    reports = [
        moment
        for actor in run.actors
        for moment, line in actor.lines
        if moment >= strike.time and any(text in line for text in _SERVER_IS_GONE)
    ]
    noticed = min(reports) - strike.time if reports else None
    resumed = next(run.history.after(strike.time, RESUMED), None)
    if resumed is None:
        happened = "it went on as before" if event.halt_seconds else "no standby took its place"
        return Consequence(event, strike.iteration, noticed, happened=happened)
    lost = max(0, strike.iteration - resumed.row.iteration)
    happened = f"a standby went on from iteration {resumed.row.iteration}"
    over = resumed.time - strike.time
    return Consequence(
        event, strike.iteration, noticed, over_seconds=over, lost=lost, happened=happened
    )


def _of_comer(run: ChaosRun, place: int) -> Consequence:
    event = run.events[place]
    if place not in run.comers:
        return Consequence(event, happened="the run did not get there")
    actor, rank = run.comers[place]
    events = run.history.after(actor.began, JOINED)
    joined = next((each for each in events if rank in each.row.workers), None)
    if joined is None:
        refused = [line for _, line in actor.lines if "refused" in line]
        why = (refused or ["the run was over before it could join"])[-1]
        return Consequence(event, event.iteration, happened=why)
    happened = f"rank {rank} joined {joined.time - actor.began:.1f} s after it was started"
    return Consequence(event, joined.row.iteration, happened=happened)


def troubles(run: ChaosRun, folder: Path, iterations: int, *, serves: bool) -> list[str]:
    """Lines about what went wrong, none if training survived; `serves`: rank 0 began here."""
    lines = [f"process {process} did not end by itself" for process in run.killed]
    if run.stalled:
        lines.append(f"no iteration was done for too long after {run.history.iteration}")
    if not serves:  # hosts show by their exit status that training ended
        train = run.actors[0].status
        struck = train is not None and train > 128 and run.strikes
        return lines if train == 0 or struck else [*lines, f"mdgan train ended with status {train}"]
    status = RunDirectory(folder).read_status() if (folder / "run.json").exists() else {}
    if (status.get("state"), status.get("iteration")) != ("finished", iterations):
        lines.append(
            f"training is {status.get('state', 'not there')} at iteration "
            f"{status.get('iteration', 0)} of {iterations}"
        )
    lines += [
        f"honest rank {worker}: {row.kind} at iteration {row.iteration} ({row.reason})"
        for _, row in run.history.after(0.0, SHUT_OUT, REFUSED)
        for worker in row.workers
        # A discriminator that a swap has just brought may make an answer unusable.
        if worker in run.hosts and row.strikes
    ]
    lines += [  # bit for bit
        f"swap at iteration {swap.iteration}: rank {taker} holds something else than {giver} gave"
        for swap in run.history.swaps
        for giver, taker in swap.moves.items()
        if swap.taken is not None
        and taker in swap.taken
        and swap.given.get(giver) not in (None, swap.taken[taker])
    ]
    return lines + _troubles_on_disk(folder, iterations)


def _troubles_on_disk(folder: Path, iterations: int) -> list[str]:
    lines = [f"half a file: {path}" for path in folder.rglob("*.tmp")]
    try:
        state, iteration = RunDirectory(folder).read_generator()
        if iteration != iterations or not all(torch.isfinite(v).all() for v in state.values()):
            lines.append(f"the generator is of iteration {iteration}, or not finite")
    except BadInput as error:
        lines.append(str(error))
    if (folder / "checkpoints").is_dir():
        newest, passed_over = Checkpoints(folder / "checkpoints", keep=1).newest()
        lines += passed_over
        if newest is None or newest.iteration != iterations:
            lines.append("the last checkpoint is missing")
    return lines
