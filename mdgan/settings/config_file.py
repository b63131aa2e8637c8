"""Reads files of settings: those of `--config` and `mdgan compare`, and a run's `config.json`.

A file of the user's may hold two keys that are no settings:

faults        faults that strike a new training, written as in MDGAN_FAULTS (`launch/faults.py`)
paper_scale   settings, and perhaps `faults`, that replace those of the file with --paper-scale
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mdgan.errors import BadInput
from mdgan.settings.declare import Setting, suggest
from mdgan.settings.retired import modern
from mdgan.spelling import flag

_MOST_BYTES = 1 << 22
_FAULTS, _PAPER_SCALE = "faults", "paper_scale"


class ConfigFile(NamedTuple):
    """The content of a file: settings by name, and faults in the format of MDGAN_FAULTS."""

    settings: dict[str, Any]
    faults: str


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Makes a JSON object of its pairs; ValueError if a key is there twice, as a value was lost."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has {twice!r} twice")
    return content


def read_config_file(
    path: Path | None, known: Mapping[str, Setting], *, paper_scale: bool = False
) -> ConfigFile:
    """Reads a file of settings: one JSON object with any of their names.

    Args:
        path: None if the user names no file.
        known: every setting by name.
        paper_scale: whether the settings under `paper_scale` replace the others, key by key.

    Raises:
        BadInput: the file, or one of its keys, cannot be used. The keys under `paper_scale` are
            always checked.
    """
    if path is None:
        if paper_scale:
            raise BadInput(
                flag("paper_scale"), "is a part of a file", f"name the file with {flag('config')}"
            )
        return ConfigFile({}, "")
    source: str = flag("config", path)
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise ValueError("is longer than any file of settings")
        content = json.loads(text.decode(), object_pairs_hook=_each_once)
    except OSError as error:
        raise BadInput(source, f"cannot read it ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(source, f"not a JSON file ({error})") from error
    if not isinstance(content, dict):
        raise BadInput(source, "must hold one JSON object of settings")
    scaled = content.pop(_PAPER_SCALE, None)
    settings = _checked(content, source, known)
    if scaled is not None:
        if not isinstance(scaled, dict):
            raise BadInput(source, f"{_PAPER_SCALE} must be a JSON object of settings")
        source = f"{source}: {_PAPER_SCALE}"
        scaled = _checked(scaled, source, known)
        for name, value in scaled.items():
            if name in known and value is not None:
                try:
                    known[name].read(value)
                except BadInput as error:
                    raise BadInput(source, error.marked) from error
    if paper_scale:
        if scaled is None:
            raise BadInput(
                flag("paper_scale"), f'{path} has no object "{_PAPER_SCALE}" of settings'
            )
        settings |= scaled
    return ConfigFile(settings, settings.pop(_FAULTS, ""))


def _checked(content: dict[str, Any], source: str, known: Mapping[str, Setting]) -> dict[str, Any]:
    """Checks the names in one of the file's objects, and replaces names of earlier versions."""
    settings = modern(content, source)
    for name in settings:
        if name != _FAULTS and name not in known:
            raise BadInput(source, f"unknown key {name!r}{suggest(name, known)}")
    faults = settings.get(_FAULTS, "")
    if not (isinstance(faults, str) and faults.isascii() and faults.isprintable()):
        raise BadInput(source, f'"{_FAULTS}" must be text as MDGAN_FAULTS has it')
    return settings
