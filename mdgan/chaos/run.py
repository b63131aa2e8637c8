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
from mdgan.chaos.schedule import HOSTILE, Setting, draw_lies, draw_schedule
from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.launch.models import models_of, settings_with_defaults
from mdgan.launch.prepare import load_dataset
from mdgan.launch.ranks import LocalRanks, local_ranks
from mdgan.launch.resolve import Resolved, resolve
from mdgan.messages import Kind
from mdgan.observe.text_table import text_table
from mdgan.records.values import count

_ACTION = "hostile action"
_say = partial(logging.getLogger(__name__).info, extra={"shown": "result"})


def run_chaos(
    commands: Commands,
    settings: Mapping[str, Any],
    seed: int | None,
    num_faults: int,
    num_lies: int,
    kinds: Sequence[str],
    rules: Rules,
) -> int:
    """Trains while faults strike, and hosts lie.

    Args:
        commands: what to start.
        settings: of the run.
        seed: of the faults; None to draw one.
        num_faults: how many faults.
        num_lies: how many hostile actions.
        kinds: which kinds of `KINDS` may happen; none if there are no faults.
        rules: how far to go.

    Returns:
        The exit status: 0 if training survived, else 1.

    Raises:
        BadInput: these faults cannot happen in this run.
    """
    resolved = resolve([settings])
    iterations, ranks, setting = _setting(resolved, kinds, num_lies)
    seed = secrets.randbelow(10**6) if seed is None else seed
    events = [
        *(draw_schedule(seed, num_faults, kinds, setting) if kinds else ()),
        *draw_lies(seed, num_lies, setting),
    ]
    events.sort(key=lambda event: event.iteration)
    wanted = {"fault": num_faults, _ACTION: num_lies}
    drawn = " and ".join(count(number, what) for what, number in wanted.items() if number)
    _say("%s drawn from --seed %d:", drawn, seed)
    for event in events:
        _say("%9d | %s", event.iteration, event)
    run = Path(settings["out"])
    # As Ctrl-C, so that `play` ends every process that it has started.
    signal.signal(signal.SIGTERM, _interrupt)
    if not ranks.serves:  # only the server's machine sees how far the run is
        rules = replace(rules, stall_seconds=inf)
    played = play(commands, events, rules, run)
    _say("\n%s\n", text_table([row.cells() for row in rows(played)], HEADINGS))
    found = troubles(played, run, iterations, serves=ranks.serves, hosts=ranks.hosts)
    for line in found:
        _say("mdgan: %s", line)
    newcomers = count(len(played.comers), "newcomer")
    verdict = "did not survive" if found else "survived"
    lies = sum(events[place].kind == HOSTILE for place in played.strikes)
    faults = count(len(played.strikes) - lies, "fault")
    if num_lies:
        faults += f", {count(lies, _ACTION)}"
    _say("training %s %s and %s (--seed %d)", verdict, faults, newcomers, seed)
    return 1 if found else 0


def _setting(
    resolved: Resolved, kinds: Sequence[str], num_lies: int
) -> tuple[int, LocalRanks, Setting]:
    launch, dataset = resolved.launch, load_dataset(resolved)
    settings = settings_with_defaults(resolved.layers, dataset)
    ranks = local_ranks(settings, launch, None)
    if not ranks.serves and not {"server", "join"}.isdisjoint(kinds):
        raise BadInput(
            f"--ranks {launch.ranks}: rank 0 runs elsewhere; leave server and join out of --kinds"
        )
    if not ranks.hosts and (num_lies or set(kinds) - {"server", "join"}):
        raise BadInput(
            f"--ranks {launch.ranks}: no worker runs here; give --kinds server,join"
            + " and leave --hostile out" * bool(num_lies)
        )
    if "server" in kinds and not settings.makes_checkpoints:
        raise BadInput(
            f"--checkpoint-interval {settings.checkpoints.checkpoint_interval}: without "
            "checkpoints no other "
            "server can take over; give one below --iterations"
        )
    algorithm = registry.algorithm(settings.algorithm)
    sizes = algorithm.build().message_sizes(settings, models_of(settings, dataset))
    said = [*sizes.from_host(1), *sizes.between_hosts(1), Kind.SPANS]
    said += [Kind.CHECKPOINTED] * settings.makes_checkpoints
    hosts = [host[0] for host in ranks.hosts]
    phases = algorithm.phases(settings)
    setting = Setting(
        settings.training.iterations, hosts, launch.links.liveness_timeout, *phases, said
    )
    return settings.training.iterations, ranks, setting


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
