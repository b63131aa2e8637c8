"""One click option for every setting."""

from collections.abc import Callable, Collection
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, TypeVar

import click

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.launch.resolve import known_settings
from mdgan.launch.settings import LaunchSettings
from mdgan.records.run_directory import RunDirectory
from mdgan.settings.declare import Kind, flag, read_config_file

Command = TypeVar("Command", bound=Callable[..., Any])


def number_or_auto(text: str) -> int | str:
    """A whole number, or the word auto."""
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is neither a whole number nor auto") from error


def output_option(help: str) -> Callable[[Command], Command]:
    """Adds `-o FILE`, which the command gets as `output`; None if the user does not give it."""
    path = click.Path(path_type=Path)
    return click.option("-o", "output", type=path, metavar="FILE", help=help)


def settings_options(
    leave_out: Collection[str] = (), *, shared: bool = True, config: bool = True
) -> Callable[[Command], Command]:
    """Adds an option for every setting, and `--config` if one file may hold them all.

    Args:
        leave_out: names of settings that the command does not use.
        shared: whether to offer the settings that must be equal on every rank.
        config: whether to offer `--config` beside them.
    """

    def decorate(command: Command) -> Command:
        items = [*registry.declared_settings().values(), *fields(LaunchSettings)]
        for item in reversed(items):
            if item.name not in leave_out and (shared or not item.metadata["shared"]):
                command = _option(item)(command)
        if not (shared and config):
            return command
        return click.option(
            "--config",
            type=click.Path(path_type=Path),
            metavar="FILE.json",
            help="Settings from a file, by the names of the flags; flags win. Any run's "
            "config.json is one.",
        )(command)

    return decorate


def read_layers(
    config: Path | None, flags: dict[str, Any], resume: Path | None = None
) -> list[dict[str, Any]]:
    """The settings that the user gave: flags, then the file, then the run to go on with.

    Raises:
        BadInput: a file cannot be used.
    """
    layers = [flags, read_config_file(config, known_settings()) if config is not None else {}]
    if resume is not None:
        if flags.get("out") is not None:
            raise BadInput(f"--out {flags['out']}: the run goes on in its folder {resume}")
        layers.append(RunDirectory.open(resume).read_config())
    return layers


def _option(item: "Field[Any]") -> Callable[[Command], Command]:
    kind: Kind = item.metadata["kind"]
    names, about = (flag(item.name), item.name), _about(item)
    if item.name == "algorithm":
        choice = click.Choice(registry.names())
        return click.option(*names, type=choice, default=None, help=about)
    if kind.type is bool:
        return click.option(*names, is_flag=True, default=None, help=about)
    types: dict[type, Any] = {int: click.INT, float: click.FLOAT, str: click.STRING}
    read: Any = types[kind.type]
    if kind.choices:
        read = click.Choice(kind.choices)
    elif kind.word == "auto":
        read = number_or_auto
    return click.option(
        *names, type=read, default=None, metavar=item.metadata["metavar"], help=about
    )


def _about(item: "Field[Any]") -> str:
    """A setting's help: which algorithms have it, its sign in the papers, its default."""
    if item.name == "algorithm":
        each = [f"{name}: {registry.algorithm(name).about}" for name in registry.names()]
        return f"What trains. {'; '.join(each)}.  [default: {registry.DEFAULT}]"
    about, notes = item.metadata, []
    having = registry.with_setting(item.name)
    if having and len(having) < len(registry.names()):
        notes.append(", ".join(having))
    if about["symbol"]:
        notes.append(f"paper: {about['symbol']}")
    default = about["default_text"] or item.default
    others = {
        name: value
        for name in registry.names()
        if (value := registry.algorithm(name).defaults.get(item.name)) is not None
    }
    if default is not None and default is not False:
        own = "".join(f"; {name}: {value}" for name, value in others.items())
        notes.append(f"default: {default}{own}")
    return f"{about['help']}  [{'; '.join(notes)}]" if notes else str(about["help"])
