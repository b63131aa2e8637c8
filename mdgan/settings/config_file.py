"""Files of settings: `--config`, and what a run writes of itself."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from mdgan.errors import BadInput
from mdgan.settings.declare import suggest
from mdgan.settings.retired import modern

_MOST_BYTES = 1 << 22


def read_config_file(path: Path, known: Collection[str]) -> dict[str, Any]:
    """Reads a `--config` file: one JSON object with any of the settings' names."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise ValueError("is longer than any file of settings")
        settings = json.loads(text.decode())
    except OSError as error:
        raise BadInput(f"--config {path}: cannot read it ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"--config {path}: not a JSON file ({error})") from error
    if not isinstance(settings, dict):
        raise BadInput(f"--config {path}: must hold one JSON object of settings")
    settings = modern(settings, f"--config {path}")
    for name in settings:
        if name not in known:
            raise BadInput(f"--config {path}: unknown key {name!r}{suggest(name, known)}")
    return settings
