"""`mdgan chaos`: draws faults, plays them on a run, and shows what followed from each."""

import logging
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from mdgan.chaos.outcome import HEADINGS, consequences, troubles
from mdgan.chaos.play import ChaosCommands, ChaosLimits, play
from mdgan.chaos.schedule import ChaosSetting, draw_schedule
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.launch.models import settings_with_defaults
from mdgan.launch.prepare import load_dataset
from mdgan.launch.ranks import LocalRanks, local_ranks
from mdgan.launch.resolve import resolve
from mdgan.observe.text_table import text_table
from mdgan.records.values import count

_say = partial(logging.getLogger(__name__).info, extra={"shown": "result"})


def run_chaos(
    commands: ChaosCommands,
    settings: Mapping[str, Any],
    seed: int | None,
    num_faults: int,
    kinds: Sequence[str],
    limits: ChaosLimits,
) -> int:
    """Trains while faults strike.

    Args:
        seed: of the faults; None to draw one.

    Returns:
        The exit status: 0 if training survived, else 1.
    """
    ranks, setting = _setting(settings, kinds)
    seed = secrets.randbelow(10**6) if seed is None else seed
    events = draw_schedule(seed, num_faults, kinds, setting)
    _say("%s drawn from --seed %d:", count(num_faults, "fault"), seed)
    for event in events:
        _say("%9d | %s", event.iteration, event)
    folder = Path(settings["out"])
    # As Ctrl-C, so that `play` ends every process that it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not ranks.serves:  # only the server's machine sees how far the run is
        limits = replace(limits, stall_seconds=inf)
    run = play(commands, events, limits, folder)
    _say("\n%s\n", text_table([each.cells() for each in consequences(run)], HEADINGS))
    problems = troubles(run, folder, setting.iterations, serves=ranks.serves)
    for line in problems:
        _say("mdgan: %s", line)
    faults, newcomers = count(len(run.strikes), "fault"), count(len(run.comers), "newcomer")
    verdict = "did not survive" if problems else "survived"
    _say("training %s %s and %s (--seed %d)", verdict, faults, newcomers, seed)
    return 1 if problems else 0


def _setting(given: Mapping[str, Any], kinds: Sequence[str]) -> tuple[LocalRanks, ChaosSetting]:
    resolved = resolve([given])
    launch, dataset = resolved.launch, load_dataset(resolved)
    settings = settings_with_defaults(resolved.layers, dataset)
    ranks = local_ranks(settings, launch, None)
    if not ranks.serves and not {"server", "join"}.isdisjoint(kinds):
        raise BadInput(
            f"--ranks {launch.ranks}: rank 0 runs elsewhere; leave server and join out of --kinds"
        )
    if not ranks.hosts and set(kinds) - {"server", "join"}:
        raise BadInput(f"--ranks {launch.ranks}: no worker runs here; give --kinds server,join")
    if "server" in kinds and not settings.makes_checkpoints:
        raise BadInput(
            f"--checkpoint-interval {settings.checkpoints.checkpoint_interval}: without "
            "checkpoints no other server can take over; give one below --iterations"
        )
    hosts = [host[0] for host in ranks.hosts]
    phases = registry.algorithm(settings.algorithm).phases(settings)
    return ranks, ChaosSetting(
        settings.training.iterations, hosts, launch.links.liveness_timeout, *phases
    )
