"""`mdgan chaos`: trains while processes die, halt, leave, and come."""

import logging
import socket
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from mdgan.chaos.schedule import KINDS
from mdgan.cli.help import Command, KeysOption
from mdgan.cli.options import number, prepare_environment, read_layers, seconds
from mdgan.cli.train import join, train
from mdgan.errors import BadInput
from mdgan.launch.given import Given
from mdgan.launch.ranks import parse_ranks
from mdgan.settings.declare import Setting
from mdgan.spelling import flag

_log = logging.getLogger(__name__)

_THIS_MACHINE, _ITS_STANDBY = "127.0.0.1", "127.0.0.2"


def _read_kinds(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, ...]:
    kinds = tuple(dict.fromkeys(kind.strip() for kind in text.split(",")))
    for kind in kinds:
        if kind not in KINDS:
            raise click.BadParameter(f"{kind!r} is none of {', '.join(KINDS)}")
    return kinds


@click.command(cls=Command, examples=("mdgan chaos --seed 1 --faults 5 -- --iterations 2000",))
@number("--seed", least=0, metavar="N", help="Seed of the faults.  [default: another each time]")
@number("--faults", least=1, default=20, metavar="N", help="Number of faults.")
@click.option(
    "--kinds",
    callback=_read_kinds,
    default=",".join(KINDS),
    metavar="KIND,…",
    help="What may happen.",
)
@number("--spare", least=0, default=1, metavar="N", help="Workers here to leave alive at any time.")
@seconds("--least-gap", least=0, default=0.0, help="Least time between two faults.")
@seconds(
    "--stall", least=1, default=300.0, help="Give up when no iteration was recorded for this long."
)
@click.argument("train_flags", nargs=-1, type=click.UNPROCESSED, metavar="[-- TRAIN_FLAGS…]")
def chaos(train_flags: tuple[str, ...], **wanted: Any) -> int:
    """Run `mdgan train TRAIN_FLAGS` while its processes die, halt, leave, and come.

    Only processes that this command starts are struck; on several machines it may run on each, with
    its --ranks. The faults are drawn from the seed. At the end a table shows what became of each.
    Unless TRAIN_FLAGS say otherwise, --liveness-timeout is 5 and --checkpoint-interval 50 here.

    Exit status 0 means: training reached its last iteration, all that it wrote is whole, no process
    is left, and no worker was treated as a liar.
    """
    seed, kinds = wanted["seed"], wanted["kinds"]
    given = _given(train_flags)
    _complete(given, kinds)
    prepare_environment(many_processes=True)
    from mdgan.chaos.play import ChaosCommands, ChaosLimits
    from mdgan.chaos.run import run_chaos
    from mdgan.launch.settled import load

    loaded = load(Given([given]).named())
    given |= loaded.from_folders  # several commands start the ranks, and none sees all folders
    for note in loaded.notes:
        _log.info("%s", note)
    commands = ChaosCommands(_flags_for(train, given), _flags_for(join, given))
    if "server" in kinds:
        where = _as_flags(given, ("master_addr", "master_port"))
        commands = ChaosCommands(
            _flags_for(train, {**given, "ranks": "0"}),
            commands.join,
            ["standby", given["out"], *where],
            _flags_for(train, {**given, "ranks": _ranks_of_workers(given)}),
        )
    liveness = loaded.launch.links.liveness_timeout
    limits = ChaosLimits(wanted["spare"], wanted["least_gap"], liveness, wanted["stall"])
    return run_chaos(commands, given, seed, wanted["faults"], kinds, limits)


def _given(train_flags: tuple[str, ...]) -> dict[str, Any]:
    """What the flags of `mdgan train`, and its --config, say, by the names of settings."""
    flags = train.make_context("mdgan chaos", [*train_flags]).params
    resumes = flags.pop("resume") is not None or flags.pop("resume_or_start") is not None
    if flags.pop("dry_run") or resumes:
        raise BadInput("mdgan chaos", "starts a new run", "leave --dry-run and --resume out")
    launcher, *_ = (flags.pop(name) for name in ("launcher", "ray_address", "host_resources"))
    flags, file = read_layers(flags.pop("config"), flags)
    given = {**file, **{name: value for name, value in flags.items() if value is not None}}
    named = Given([given], launcher=launcher if launcher != "ray" else "processes").named()
    elsewhere = launcher == "ray" or named.task is not None
    if elsewhere or named.launch.transport == "memory":
        way_out = f"leave other launchers and {flag('transport', 'memory')} out"
        raise BadInput("mdgan chaos", "strikes processes that it starts", way_out)
    return given


def _complete(given: dict[str, Any], kinds: tuple[str, ...]) -> None:
    """Adds settings that all commands must share, with times that suit many faults."""
    given.setdefault("liveness_timeout", 5.0)
    given.setdefault("checkpoint_interval", 50)
    given.setdefault("out", f"runs/chaos-{datetime.now():%Y%m%d-%H%M%S}")
    if "master_addr" not in given and "server" in kinds:
        given["master_addr"] = f"{_THIS_MACHINE},{_ITS_STANDBY}"
    if not given.get("master_port"):
        with socket.socket() as probe:
            probe.bind((_THIS_MACHINE, 0))
            given["master_port"] = probe.getsockname()[1]


def _ranks_of_workers(given: Mapping[str, Any]) -> str:
    """`--ranks` without the server; the workers start after it."""
    world_size = Given([given]).named().draft.world_size
    ranks = parse_ranks(given.get("ranks") or f"0..{world_size - 1}", world_size)
    return ",".join(str(rank) for rank in ranks if rank > 0)


def _flags_for(command: click.Command, given: Mapping[str, Any]) -> list[str]:
    """A command with the settings that it has, as its flags or its keys."""
    names = tuple(parameter.name for parameter in command.params if parameter.name)
    keys: dict[str, Setting] = {}
    for option in command.params:
        if isinstance(option, KeysOption):
            keys |= option.items
    flags: list[str] = [str(command.name), *_as_flags(given, names)]
    for name in sorted(given.keys() & keys.keys()):
        flags += keys[name].given(given[name]).split(" ", 1)
    return flags


def _as_flags(given: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    flags: list[str] = []
    for name, value in given.items():
        if name in names and value is not False:
            flags += [flag(name)] if value is True else [flag(name), str(value)]
    return flags
