"""`mdgan chaos`: draws the faults, plays them, and tells what became of the run."""

import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any

from mdgan.chaos.outcome import HEADINGS, rows, troubles
from mdgan.chaos.play import Commands, Rules, play
from mdgan.chaos.schedule import Setting, draw_schedule
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.launch.prepare import load_dataset
from mdgan.launch.ranks import LocalRanks, local_ranks
from mdgan.launch.resolve import Resolved, resolve


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
        seed: of the faults; None for another one each time.
        num_faults: how many.
        kinds: of `KINDS`.
        rules: how far to go.

    Returns:
        The exit status: 0 if training survived, else 1.

    Raises:
        BadInput: what is asked for cannot happen here.
    """
    resolved = resolve([settings])
    iterations, ranks, setting = _setting(resolved, kinds)
    seed = secrets.randbelow(10**6) if seed is None else seed
    events = draw_schedule(seed, num_faults, kinds, setting)
    print(f"{num_faults} faults drawn from --seed {seed}:")
    for event in events:
        print(f"{event.iteration:>9} | {event}", flush=True)
    run = Path(settings["out"])
    # As Ctrl-C: nothing may be left behind, in whatever way this is ended.
    signal.signal(signal.SIGTERM, _interrupt)
    if not ranks.serves:  # how far the run is can be seen only where the server is
        rules = replace(rules, stall_seconds=inf)
    played = play(commands, events, rules, run)
    print(f"\n{as_table(HEADINGS, [row.cells() for row in rows(played)])}\n")
    found = troubles(played, run, iterations, serves=ranks.serves)
    for line in found:
        print(f"mdgan: {line}")
    verdict = "did not survive" if found else "survived"
    print(f"training {verdict} {len(played.strikes)} faults and {len(played.comers)} newcomers "
          f"(--seed {seed})", flush=True)  # fmt: skip
    return 1 if found else 0


def _setting(resolved: Resolved, kinds: Sequence[str]) -> tuple[int, LocalRanks, Setting]:
    settings, launch = resolved.with_defaults(load_dataset(resolved).defaults), resolved.launch
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


def as_table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Text in columns, each as wide as it must be."""
    widths = [max(map(len, column)) for column in zip(headings, *lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (headings, *lines)
    )


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
