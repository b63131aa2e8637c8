"""One click option of every field of the configuration."""

from collections.abc import Callable, Collection
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, TypeVar

import click

from mdgan.errors import BadInput
from mdgan.records.run_directory import RunDirectory
from mdgan.settings.config import read_config_file
from mdgan.settings.declare import flag, kinds
from mdgan.settings.deployment import Deployment
from mdgan.settings.experiment import Experiment

Command = TypeVar("Command", bound=Callable[..., Any])


def number_or_auto(text: str) -> int | str:
    """A whole number, or the word auto."""
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is neither a whole number nor auto") from error


def settings_options(
    leave_out: Collection[str] = (), *, experiment: bool = True, config: bool = True
) -> Callable[[Command], Command]:
    """Adds an option for every setting, and `--config` if one file may hold them all.

    Args:
        leave_out: names of settings that the command has no use for.
        experiment: whether to offer what is computed, and not only where.
        config: whether to offer `--config` beside it.
    """

    def decorate(command: Command) -> Command:
        items = [*(fields(Experiment) if experiment else ()), *fields(Deployment)]
        for item in reversed(items):
            if item.name not in leave_out:
                command = _option(item)(command)
        if not (experiment and config):
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
    """The settings that the user gave: flags first, then the file, then the run that goes on.

    Raises:
        BadInput: a file cannot be used.
    """
    layers = [flags, read_config_file(config) if config is not None else {}]
    if resume is not None:
        if flags.get("out") is not None:
            raise BadInput(f"--out {flags['out']}: the run goes on in its folder {resume}")
        layers.append(RunDirectory.open(resume).read_config())
    return layers


def _option(item: "Field[Any]") -> Callable[[Command], Command]:
    about = item.metadata
    default = about["default_text"] or item.default
    notes = [f"paper: {about['symbol']}"] if about["symbol"] else []
    if default is not None:
        notes.append(f"default: {default}")
    if bool in kinds(item):
        return click.option(
            flag(item.name), item.name, is_flag=True, default=None, help=about["help"]
        )
    kind: Any = {int: click.INT, float: click.FLOAT, str: click.STRING}[kinds(item)[0]]
    if about["choices"]:
        kind = click.Choice(about["choices"])
    elif item.default == "auto":
        kind = number_or_auto
    return click.option(
        flag(item.name),
        item.name,
        type=kind,
        default=None,
        metavar=about["metavar"],
        help=f"{about['help']}  [{'; '.join(notes)}]" if notes else about["help"],
    )
