"""The cores of this machine, and paths as users write them."""

import os
from pathlib import Path


def num_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def path_of(text: str) -> Path:
    """The path that a user has written; ~ is the user's home, if there is such a user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
