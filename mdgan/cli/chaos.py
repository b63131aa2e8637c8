"""`mdgan chaos`: trains while faults kill, halt, remove and add processes."""

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
    help="Kinds of faults to draw from.",
)
@number("--spare", least=0, default=1, metavar="N", help="Workers here to leave alive at any time.")
@seconds("--least-gap", least=0, default=0.0, help="Least time between two faults.")
@seconds(
    "--stall", least=1, default=300.0, help="Give up when no iteration was recorded for this long."
)
@click.argument("train_flags", nargs=-1, type=click.UNPROCESSED, metavar="[-- TRAIN_FLAGS…]")
def chaos(train_flags: tuple[str, ...], **options: Any) -> int:
    """Run `mdgan train TRAIN_FLAGS` while its processes die, halt, leave, and join.

    Faults strike only processes that this command starts; on several machines it may run on each,
    with its --ranks. The seed decides the faults. At the end a table shows the outcome of each.
    Unless TRAIN_FLAGS say otherwise, --liveness-timeout is 5 and --checkpoint-interval 50 here.

    Exit status 0 means: training reached its last iteration, all files are whole, no process is
    left, and the server treated no worker as a liar.
    """
    seed, kinds = options["seed"], options["kinds"]
    settings = _read_train_flags(train_flags)
    _add_defaults(settings, kinds)
    prepare_environment(many_processes=True)
    from mdgan.chaos.play import ChaosCommands, ChaosLimits
    from mdgan.chaos.run import run_chaos
    from mdgan.launch.settled import load

    loaded = load(Given([settings]).named())
    settings |= loaded.from_folders  # a command for some ranks may not find these by itself
    for note in loaded.notes:
        _log.info("%s", note)
    commands = ChaosCommands(_command_line(train, settings), _command_line(join, settings))
    if "server" in kinds:
        address = _flags_of(settings, ("master_addr", "master_port"))
        commands = ChaosCommands(
            _command_line(train, {**settings, "ranks": "0"}),
            commands.join,
            ["standby", settings["out"], *address],
            _command_line(train, {**settings, "ranks": _worker_ranks(settings)}),
        )
    liveness = loaded.launch.links.liveness_timeout
    limits = ChaosLimits(options["spare"], options["least_gap"], liveness, options["stall"])
    return run_chaos(commands, settings, seed, options["faults"], kinds, limits)


def _read_train_flags(train_flags: tuple[str, ...]) -> dict[str, Any]:
    """Reads the flags of `mdgan train`, and its --config, as settings by name."""
    flags = train.make_context("mdgan chaos", [*train_flags]).params
    resumes = flags.pop("resume") is not None or flags.pop("resume_or_start") is not None
    if flags.pop("dry_run") or resumes:
        raise BadInput("mdgan chaos", "starts a new run", "leave --dry-run and --resume out")
    launcher, *_ = (flags.pop(name) for name in ("launcher", "ray_address", "host_resources"))
    flags, file = read_layers(flags.pop("config"), flags)
    settings = {**file, **{name: value for name, value in flags.items() if value is not None}}
    named = Given([settings], launcher=launcher if launcher != "ray" else "processes").named()
    runs_elsewhere = launcher == "ray" or named.task is not None
    if runs_elsewhere or named.launch.transport == "memory":
        way_out = f"leave other launchers and {flag('transport', 'memory')} out"
        raise BadInput("mdgan chaos", "strikes processes that it starts", way_out)
    return settings


def _add_defaults(settings: dict[str, Any], kinds: tuple[str, ...]) -> None:
    """Adds settings that all commands must share, with timeouts that suit many faults."""
    settings.setdefault("liveness_timeout", 5.0)
    settings.setdefault("checkpoint_interval", 50)
    settings.setdefault("out", f"runs/chaos-{datetime.now():%Y%m%d-%H%M%S}")
    if "master_addr" not in settings and "server" in kinds:
        settings["master_addr"] = f"{_THIS_MACHINE},{_ITS_STANDBY}"
    if not settings.get("master_port"):
        with socket.create_server((_THIS_MACHINE, 0)) as probe:
            settings["master_port"] = probe.getsockname()[1]


def _worker_ranks(settings: Mapping[str, Any]) -> str:
    """Writes `--ranks` without rank 0, since workers start after the server."""
    world_size = Given([settings]).named().draft.world_size
    ranks = parse_ranks(settings.get("ranks") or f"0..{world_size - 1}", world_size)
    return ",".join(str(rank) for rank in ranks if rank > 0)


def _command_line(command: click.Command, settings: Mapping[str, Any]) -> list[str]:
    """Writes the line of a command, with those of the settings that it takes, as flags or keys."""
    names = tuple(parameter.name for parameter in command.params if parameter.name)
    settings_by_key: dict[str, Setting] = {}
    for option in command.params:
        if isinstance(option, KeysOption):
            settings_by_key |= option.items
    flags: list[str] = [str(command.name), *_flags_of(settings, names)]
    for name in sorted(settings.keys() & settings_by_key.keys()):
        flags += settings_by_key[name].given(settings[name]).split(" ", 1)
    return flags


def _flags_of(settings: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    flags: list[str] = []
    for name, value in settings.items():
        if name in names and value is not False:
            flags += [flag(name)] if value is True else [flag(name), str(value)]
    return flags
