"""`mdgan chaos`: draws faults, plays them on a run, and shows what followed from each."""

import logging
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any

from mdgan.chaos.outcome import HEADINGS, rows, troubles
from mdgan.chaos.play import Commands, Rules, play
from mdgan.chaos.schedule import Setting, draw_schedule
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.launch.models import settings_with_defaults
from mdgan.launch.prepare import load_dataset
from mdgan.launch.ranks import LocalRanks, local_ranks
from mdgan.launch.resolve import Resolved, resolve
from mdgan.observe.text_table import text_table
from mdgan.records.values import count

_say = partial(logging.getLogger(__name__).info, extra={"shown": "result"})


def run_chaos(
    commands: Commands,
    settings: Mapping[str, Any],
    seed: int | None,
    num_faults: int,
    kinds: Sequence[str],
    rules: Rules,
) -> int:
    """Trains while faults strike.

    Args:
        commands: what to start.
        settings: of the run.
        seed: of the faults; None to draw one.
        num_faults: how many faults.
        kinds: which kinds of `KINDS` may happen.
        rules: how far to go.

    Returns:
        The exit status: 0 if training survived, else 1.

    Raises:
        BadInput: these faults cannot happen in this run.
    """
    resolved = resolve([settings])
    iterations, ranks, setting = _setting(resolved, kinds)
    seed = secrets.randbelow(10**6) if seed is None else seed
    events = draw_schedule(seed, num_faults, kinds, setting)
    _say("%d faults drawn from --seed %d:", num_faults, seed)
    for event in events:
        _say("%9d | %s", event.iteration, event)
    run = Path(settings["out"])
    # As Ctrl-C, so that `play` ends every process that it has started.
    signal.signal(signal.SIGTERM, _interrupt)
    if not ranks.serves:  # only the server's machine sees how far the run is
        rules = replace(rules, stall_seconds=inf)
    played = play(commands, events, rules, run)
    _say("\n%s\n", text_table([row.cells() for row in rows(played)], HEADINGS))
    found = troubles(played, run, iterations, serves=ranks.serves)
    for line in found:
        _say("mdgan: %s", line)
    verdict = "did not survive" if found else "survived"
    faults, newcomers = count(len(played.strikes), "fault"), count(len(played.comers), "newcomer")
    _say("training %s %s and %s (--seed %d)", verdict, faults, newcomers, seed)
    return 1 if found else 0


def _setting(resolved: Resolved, kinds: Sequence[str]) -> tuple[int, LocalRanks, Setting]:
    launch = resolved.launch
    settings = settings_with_defaults(resolved.layers, load_dataset(resolved))
    ranks = local_ranks(settings, launch, None)
    if not ranks.serves and not {"server", "join"}.isdisjoint(kinds):
        raise BadInput(
            f"--ranks {launch.ranks}: rank 0 runs elsewhere; leave server and join out of --kinds"
        )
    if not ranks.hosts and set(kinds) - {"server", "join"}:
        raise BadInput(f"--ranks {launch.ranks}: no worker runs here; give --kinds server,join")
    if "server" in kinds and not settings.makes_checkpoints:
        raise BadInput(
            f"--checkpoint-interval {settings.checkpoint_interval}: without checkpoints no other "
            "server can take over; give one below --iterations"
        )
    server_phases, host_phases = registry.algorithm(settings.algorithm).phases(settings)
    hosts = [host[0] for host in ranks.hosts]
    setting = Setting(
        settings.iterations, hosts, launch.liveness_timeout, server_phases, host_phases
    )
    return settings.iterations, ranks, setting


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
