"""Facts about this machine: its cores and their load, its processor, its cache folder."""

import os
import re
import time
from pathlib import Path

import psutil

from mdgan.errors import BadInput
from mdgan.spelling import flag
from mdgan.system import PINS_PROCESSES, cores_available

_IN_THE_WAY = ("user", "system", "irq", "softirq", "steal")
"""The uses of a core that count as taken; not `nice`, since such programs give way."""


def num_cores() -> int:
    """How many cores this process may use."""
    return len(cores_available())


_CORES = re.compile(r"([0-9]{1,4})(?:\.\.([0-9]{1,4}))?")


def parse_cores(text: str) -> tuple[frozenset[int], ...]:
    """Reads `--cores`: for each process in order, a core or an inclusive range of cores.

    Returns:
        The cores of each process, as the system numbers them. Processes beyond the last entry start
        again at the first.
    """
    entries = []
    for part in text.split(","):
        match = _CORES.fullmatch(part.strip())
        if match is None:
            raise ValueError(f'{part.strip()!r} is no core; write "0,1,1" or "0..3,4..7"')
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{part.strip()} runs backwards; write {last}..{first}")
        entries.append(frozenset(range(first, last + 1)))
    return tuple(entries)


def check_cores(text: str) -> None:
    """Checks that this process may use all cores of a `--cores` value."""
    if not PINS_PROCESSES:
        raise BadInput(flag("cores", text), "this system pins no process to cores", "leave it out")
    usable = cores_available()
    foreign = frozenset[int]().union(*parse_cores(text)) - frozenset(usable)
    if foreign:
        first, last = usable[0], usable[-1]
        are_all = last - first + 1 == len(usable)
        allowed = f"{first}..{last}" if are_all else ", ".join(map(str, usable))
        why = f"core {min(foreign)} is none that this process may use"
        raise BadInput(flag("cores", text), why, f"use some of {allowed}, or any")


def pin(cores: frozenset[int]) -> None:
    """Pins this thread, and all threads and processes that it starts later, to some cores."""
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        numbers = ",".join(map(str, sorted(cores)))
        why = f"the system refuses them ({error.strerror})"
        raise BadInput(flag("cores", numbers), why) from error


def cores_taken(seconds: float = 0.2) -> float:
    """Measures how many cores of this process others keep busy; 0 if the system does not tell."""
    try:
        began, before = time.monotonic(), _seconds_taken()
        time.sleep(seconds)
        busy = (_seconds_taken() - before) / (time.monotonic() - began)
    except OSError:
        return 0.0
    return min(max(busy, 0.0), float(num_cores()))  # the system counts in steps of 10 ms


def _seconds_taken() -> float:
    """Seconds for which others have used this process's cores since the start, over all cores."""
    times = psutil.cpu_times(percpu=True)
    own = [times[core] for core in cores_available() if core < len(times)]
    return sum(getattr(core, use, 0.0) for core in own for use in _IN_THE_WAY)


def cache_folder() -> Path | None:
    """`mdgan` in `$XDG_CACHE_HOME` or `~/.cache`; None if the user has no home folder."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG specification says that relative paths are to be ignored.
        base = Path(chosen) if Path(chosen).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None
    return base / "mdgan"


def path_of(text: str) -> Path:
    """The path that a user has written, with ~ as the user's home folder, if there is one."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
