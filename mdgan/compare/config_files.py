"""What a comparison reads: a `--config` file, in which two more names may stand.

faults        what is to befall the training, as MDGAN_FAULTS has it (`launch/faults.py`)
paper_scale   settings that hold instead with --paper-scale, and perhaps `faults`
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mdgan.errors import BadInput
from mdgan.launch.faults import FAULTS, read_planned
from mdgan.launch.resolve import combined, known_settings
from mdgan.settings.config_file import read_config_file

_FAULTS, _PAPER_SCALE = "faults", "paper_scale"


@dataclass(frozen=True)
class ConfigFile:
    """What one file asks for.

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
        paper_scale: whether its settings for the papers' scale are to hold.

    Raises:
        BadInput: it is no such file, a fault is malformed, or it has no such settings.
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
    """The faults of a run that goes on after its server was struck."""
    return ";".join(f for f in faults.split(";") if f and not f.strip().startswith("server:"))
