"""Settings as a Python program gives them, and refusals in its words."""

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
    """Refusals of a function name settings as keywords, and commands as calls."""
    try:
        yield
    except BadInput as error:
        error.is_for_python = True
        raise


_ARGUMENTS = dict.fromkeys(
    ("callbacks", "scores", "quiet", "dataset", "generator", "discriminator", "z_dim")
)
"""What `mdgan.train` takes beside settings."""


def plain(
    settings: Mapping[str, Any], among: Sequence[str] = (), why_not: str = ""
) -> dict[str, Any]:
    """Settings by name as files have them, from paths, lists and NumPy's numbers, too.

    Args:
        among: those that may be given, if not all; `why_not` is what is said of others.
    """
    found: dict[str, Any] = {}
    known = known_settings()
    for name, value in settings.items():
        if name not in known:
            if said := answer(name, value):
                raise BadInput(said)
            raise BadInput(name, f"is no setting{suggest(name, {**known, **_ARGUMENTS})}")
        if among and name not in among:
            raise BadInput(name, why_not, f"{' and '.join(among)} may")
        if isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        elif isinstance(value, os.PathLike):
            value = os.fspath(value)
        elif isinstance(value, str):
            value = str.__str__(value)  # NumPy's and enumerations' are subclasses
        elif hasattr(value, "item"):
            with contextlib.suppress(Exception):  # more than one value, or of a foreign class
                value = value.item()
        if not isinstance(value, str | bool | int | float | None):
            raise BadInput(name, f"{type(value).__name__} is no value of a setting")
        try:
            msgpack.encode(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadInput(name, f"is no value of a setting ({error})") from error
        found[name] = value
    return found


def with_file(
    settings: Mapping[str, Any],
    config: "str | os.PathLike[str] | None" = None,
    *,
    paper_scale: bool = False,
) -> ConfigFile:
    """The settings that a program gives, above those of a file, and the file's faults."""
    if not isinstance(config, str | os.PathLike | None):
        raise BadInput("config", f"{type(config).__name__} is no path", "give settings as keywords")
    path = None if config is None else Path(config)
    file, faults = read_config_file(path, known_settings(), paper_scale=paper_scale)
    return ConfigFile(combined([plain(settings), file]), faults)


def check(settings: Mapping[str, Any]) -> None:
    """Refuses what is plainly wrong, before any process is started."""
    Given([settings]).named()


def check_functions(callbacks: Any, scores: Any) -> None:
    """Refuses what is no list of functions, or no functions by name."""
    try:
        own: list[Any] = [*callbacks, *(scores or {}).values()]
    except (TypeError, AttributeError):
        own = [None]
    if not all(map(callable, own)):
        raise BadInput("callbacks, scores", "must be a list of functions, and a dict of functions")
