"""Reads the settings of a Python program, and words refusals for it."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import msgpack

from mdgan.errors import BadInput
from mdgan.launch.given import Given, combined, known_settings
from mdgan.settings.config_file import ConfigFile, read_config_file
from mdgan.settings.declare import suggest
from mdgan.settings.retired import answer


@contextlib.contextmanager
def refuses_in_python() -> Iterator[None]:
    """Lets refusals in the block name settings as keywords and commands as Python calls."""
    try:
        yield
    except BadInput as error:
        error.is_for_python = True
        raise


_ARGUMENTS = dict.fromkeys(
    ("callbacks", "scores", "quiet", "dataset", "generator", "discriminator", "z_dim")
)
"""The arguments of `mdgan.train` that are no settings."""


def plain_settings(
    settings: Mapping[str, Any], allowed: Sequence[str] = (), why_not: str = ""
) -> dict[str, Any]:
    """Converts settings to plain values as files have them, also paths, lists and NumPy's numbers.

    Args:
        allowed: the names that the caller accepts, empty for all; `why_not` is why no others.
    """
    plain: dict[str, Any] = {}
    known = known_settings()
    for name, value in settings.items():
        if name not in known:
            if reason := answer(name, value):
                raise BadInput(reason)
            raise BadInput(name, f"is no setting{suggest(name, {**known, **_ARGUMENTS})}")
        if allowed and name not in allowed:
            raise BadInput(name, why_not, f"{' and '.join(allowed)} may")
        if isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        elif isinstance(value, os.PathLike):
            value = os.fspath(value)
        elif isinstance(value, str):
            value = str.__str__(value)  # NumPy and enumerations have subclasses
        elif hasattr(value, "item"):
            with contextlib.suppress(Exception):  # arrays, and `item` of other classes
                value = value.item()
        if not isinstance(value, str | bool | int | float | None):
            raise BadInput(name, f"{type(value).__name__} is no value of a setting")
        try:
            msgpack.encode(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadInput(name, f"is no value of a setting ({error})") from error
        plain[name] = value
    return plain


def merge_file(
    settings: Mapping[str, Any],
    config: "str | os.PathLike[str] | None" = None,
    *,
    paper_scale: bool = False,
) -> ConfigFile:
    """Merges a program's settings with those of a file, which they override."""
    if not isinstance(config, str | os.PathLike | None):
        raise BadInput("config", f"{type(config).__name__} is no path", "give settings as keywords")
    path = None if config is None else Path(config)
    file, faults = read_config_file(path, known_settings(), paper_scale=paper_scale)
    return ConfigFile(combined([plain_settings(settings), file]), faults)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuses settings that cannot work, as far as that shows before a process starts."""
    Given([settings]).named()


def check_functions(callbacks: Any, scores: Any) -> None:
    """Refuses callbacks that are no list of functions, and scores that are no dict of them."""
    try:
        functions: list[Any] = [*callbacks, *(scores or {}).values()]
    except (TypeError, AttributeError):
        functions = [None]
    if not all(map(callable, functions)):
        raise BadInput("callbacks, scores", "must be a list of functions, and a dict of functions")
