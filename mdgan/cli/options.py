"""One click option of every field of the configuration."""

from collections.abc import Callable, Collection
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, TypeVar

import click

from mdgan.config import Deployment, Experiment, read_config_file
from mdgan.settings import flag, kinds

Command = TypeVar("Command", bound=Callable[..., Any])


def _number_or_auto(text: str) -> int | str:
    """A whole number, or the word auto."""
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is neither a whole number nor auto") from error


def settings_options(leave_out: Collection[str] = ()) -> Callable[[Command], Command]:
    """Adds an option for every setting, and `--config`.

    Args:
        leave_out: names of settings that the command has no use for.
    """

    def decorate(command: Command) -> Command:
        items = [*fields(Experiment), *fields(Deployment)]
        for item in reversed(items):
            if item.name not in leave_out:
                command = _option(item)(command)
        return click.option(
            "--config",
            type=click.Path(path_type=Path),
            metavar="FILE.json",
            help="Settings from a file, by the names of the flags; flags win. Any run's "
            "config.json is one.",
        )(command)

    return decorate


def read_layers(config: Path | None, flags: dict[str, Any]) -> list[dict[str, Any]]:
    """The settings that the user gave: flags first, then the file.

    Raises:
        BadInput: the file cannot be used.
    """
    return [flags, read_config_file(config) if config is not None else {}]


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
        kind = _number_or_auto
    return click.option(
        flag(item.name),
        item.name,
        type=kind,
        default=None,
        metavar=about["metavar"],
        help=f"{about['help']}  [{'; '.join(notes)}]" if notes else about["help"],
    )
