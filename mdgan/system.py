"""What the operating system has: the one room that asks for it, or says what stands in for it.

Linux, and so WSL, has all of this. On macOS a fork may crash once its parent has used a framework
of the system, so processes start anew there. Windows lacks what all others have, such as signals.
"""

import ctypes
import os
import platform
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path

START = "MDGAN_START"  # the variable that says how processes start: `fork`, or `spawn`
IS_LINUX = sys.platform == "linux"
PINS_PROCESSES = hasattr(os, "sched_setaffinity")
HOLDS_PROCESSES = hasattr(os, "pidfd_open")  # by handles, which never mean a later process
_KEPT_BYTES = 1 << 28  # the most: at the end of the heap, and of a single tensor
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as in malloc.h
_SLICE_NANOSECONDS = 100_000_000  # the longest that the kernel grants
_CALLS = {"x86_64": 314, "aarch64": 274}
"""sched_setattr, by machine: neither Python nor the C library has a name for it."""
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
_NORMAL = 0
_ALL_USERS = ["0", "0", "4294967295"]
_CREDENTIALS = struct.Struct("3i")
QUIETLY = getattr(socket, "MSG_NOSIGNAL", 0)
"""Without this flag SIGPIPE ends a process that sends to a lost peer, unless it ignores it, as
Python does by itself; programs that train may have it otherwise."""


def refuse_windows() -> None:
    """Ends a command on Windows, before it imports what only works in WSL."""
    if sys.platform == "win32":
        sys.stderr.write("mdgan: Windows lacks what mdgan needs of a system; use WSL\n")
        raise SystemExit(2)


def may_fork() -> bool:
    """Whether processes are forks of this one; else each starts anew, and prepares the run again.

    Without forks nothing is shared in memory, slots take turns in their host, and no plan is made.
    """
    usual = "fork" if IS_LINUX else "spawn"
    return hasattr(os, "fork") and os.environ.get(START, usual) == "fork"


def cores_available() -> list[int]:
    """The numbers of the cores that this process may use; all cores where the system pins none."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def processor_name() -> str:
    """The system's name for this machine's processor."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def keep_freed_memory() -> bool:
    """Asks glibc to keep memory that this process frees for later use; whether it does.

    Models and messages take megabytes, and are made anew in every iteration. Memory that goes back
    to the kernel has each of its pages cleared again when it is next used.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if IS_LINUX else None
    kinds = _TRIM_THRESHOLD, _MMAP_THRESHOLD
    return mallopt is not None and all(mallopt(kind, _KEPT_BYTES) == 1 for kind in kinds)


def ask_for_long_slices() -> bool:
    """Asks that this thread, and those it starts, compute in turns of 0.1 s; whether it is granted.

    An answer takes tens of milliseconds. With more hosts than cores the kernel would take a core
    away every few milliseconds, and each host would find the caches full of other hosts' weights.
    Linux 6.12 and later let a process ask for longer turns. One that wakes up meanwhile still gets
    a core at once.
    """
    number, this_thread = _CALLS.get(platform.machine()), 0
    if not IS_LINUX or number is None:
        return False
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, _NORMAL, 0, 0, 0, _SLICE_NANOSECONDS, 0, 0)
    return bool(ctypes.CDLL(None).syscall(number, this_thread, attributes, 0) == 0)


def hold_silent_callers(listening: socket.socket, seconds: int) -> None:
    """Has the kernel hold connections on which no byte has come yet, if it can."""
    if hasattr(socket, "TCP_DEFER_ACCEPT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, seconds)


def peer_user(connection: socket.socket) -> int:
    """The user at the other end of a socket in a private folder; this user if none is named."""
    if not hasattr(socket, "SO_PEERCRED"):
        return os.geteuid()
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(told)[1])


def unknown_user() -> int | None:
    """The number of users that a container does not know, among them perhaps root; else None."""
    with suppress(OSError, ValueError):
        if Path("/proc/self/uid_map").read_text().split() != _ALL_USERS:
            return int(Path("/proc/sys/kernel/overflowuid").read_text())
    return None
