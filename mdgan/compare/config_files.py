"""Reads the files of a comparison: `--config` files that may hold two more keys.

faults        faults that strike the training, written as in MDGAN_FAULTS (`launch/faults.py`)
paper_scale   settings, and perhaps `faults`, that replace those of the file with --paper-scale
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mdgan.errors import BadInput
from mdgan.launch.faults import FAULTS, read_planned
from mdgan.launch.resolve import combined, known_settings
from mdgan.settings.declare import read_config_file

_FAULTS, _PAPER_SCALE = "faults", "paper_scale"


@dataclass(frozen=True)
class ConfigFile:
    """The content of one file.

    Attributes:
        settings: as `--config` takes them.
        faults: as MDGAN_FAULTS takes them; empty for none.
    """

    settings: Mapping[str, Any]
    faults: str


def read_compared(path: Path, *, paper_scale: bool) -> ConfigFile:
    """Reads one file.

    Args:
        path: the file.
        paper_scale: whether to use its settings for the scale of the papers.

    Raises:
        BadInput: the file or a fault in it is malformed, or it has no settings for that scale.
    """
    own = read_config_file(path, known_settings() | {_FAULTS, _PAPER_SCALE})
    scaled = own.pop(_PAPER_SCALE, None)
    if paper_scale:
        if not isinstance(scaled, dict):
            raise BadInput(f'--paper-scale: {path} has no object "{_PAPER_SCALE}" of settings')
        own = {**own, **scaled}
    faults = own.pop(_FAULTS, "")
    if not isinstance(faults, str):
        raise BadInput(f'{path}: "{_FAULTS}" must be text as {FAULTS} has it')
    read_planned({FAULTS: faults})
    known = combined([own])
    unknown = sorted(name for name, value in own.items() if value is not None and name not in known)
    if unknown:
        raise BadInput(f"{path}: unknown key {unknown[0]!r} in {_PAPER_SCALE}")
    return ConfigFile(own, faults)


def without_server(faults: str) -> str:
    """Planned faults without those of the server, for a run that goes on after its server died."""
    return ";".join(f for f in faults.split(";") if f and not f.strip().startswith("server:"))
