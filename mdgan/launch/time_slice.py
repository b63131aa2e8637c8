"""Long turns on a core for hosts that share it.

A worker's answer takes tens of milliseconds. With more hosts than cores the kernel would take a
core away every few of them, and each newcomer finds the caches full of somebody else's weights.
Linux 6.12 and later let a process ask for longer turns. Elsewhere hosts run as they did.
"""

import ctypes
import platform
import struct
import sys

SLICE_SECONDS = 0.1
"""The longest that the kernel grants; an answer rarely takes longer."""

_CALLS = {"x86_64": 314, "aarch64": 274}
"""sched_setattr, by machine: neither Python nor the C library has a name for it."""
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
_NORMAL = 0


def ask_for_long_slices() -> bool:
    """Asks that this thread, and those it starts, compute in turns of 0.1 s.

    Who wakes up meanwhile still gets a core at once: the kernel favours those with short turns.

    Returns:
        Whether the kernel took it; without Linux, or on an unknown machine, it is not asked.
    """
    number = _CALLS.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return False
    nanoseconds = int(SLICE_SECONDS * 1e9)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, _NORMAL, 0, 0, 0, nanoseconds, 0, 0)
    this_thread = 0
    done: int = ctypes.CDLL(None).syscall(number, this_thread, attributes, 0)
    return done == 0
