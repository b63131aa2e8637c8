"""The cores of this machine, its cache folder, and paths as users write them."""

import os
import time
from pathlib import Path

import psutil

_IN_THE_WAY = ("user", "system", "irq", "softirq", "steal")
"""What keeps a core from this process; programs that were started with `nice` give way."""


def num_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cores_taken(seconds: float = 0.2) -> float:
    """How many of the cores that this process may use other programs keep busy, on average.

    Args:
        seconds: how long to look; meanwhile this process sleeps.

    Returns:
        0 to `num_cores()`; 0 where the system does not tell.
    """
    try:
        began, before = time.monotonic(), _seconds_taken()
        time.sleep(seconds)
        taken = (_seconds_taken() - before) / (time.monotonic() - began)
    except OSError:
        return 0.0
    return min(max(taken, 0.0), float(num_cores()))  # the system counts in steps of 10 ms


def _seconds_taken() -> float:
    """Seconds since the machine was started that others had the cores of this process, added up."""
    times = psutil.cpu_times(percpu=True)
    if hasattr(os, "sched_getaffinity"):
        times = [times[core] for core in os.sched_getaffinity(0) if core < len(times)]
    return sum(getattr(each, part, 0.0) for each in times for part in _IN_THE_WAY)


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
