"""The cores of this machine, its cache folder, and paths as users write them."""

import os
from pathlib import Path


def num_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cache_folder() -> Path | None:
    """Where mdgan keeps what it can make again: `mdgan` in `$XDG_CACHE_HOME` or `~/.cache`.

    Returns:
        None if the user has no home folder.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG specification: relative paths there are to be ignored.
        base = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None
    return base / "mdgan"


def path_of(text: str) -> Path:
    """The path that a user has written; ~ is the user's home, if there is such a user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
