"""Hosts and servers in processes of their own, which tests halt and kill.

gRPC does not survive a fork, and importing torch takes seconds. So peers are forks of one process
that has imported torch and never gRPC.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import IO, Any

from tests.processes import REPOSITORY

_LOOK_SECONDS = 0.05


@dataclass
class Peer:
    """A process at the other end.

    Attributes:
        pid: its number.
        place: where it listens, if it does.
    """

    pid: int
    place: str

    def halt(self) -> None:
        """Stops it, and waits until it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        while _state(self.pid) != "T":
            time.sleep(_LOOK_SECONDS)

    def kill(self) -> None:
        """Ends it at once."""
        os.kill(self.pid, signal.SIGKILL)


@contextlib.contextmanager
def peer(role: str, **how: Any) -> Iterator[Peer]:
    """A process that has joined, or listens; it ends with the block.

    Args:
        role: `host` or `server`.
        how: see `_host` and `_server`.
    """
    nursery = _nursery()
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write(json.dumps([role, how]) + "\n")
    nursery.stdin.flush()
    pid = int(nursery.stdout.readline())
    try:
        yield Peer(pid, json.loads(nursery.stdout.readline()))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - the system's own file
        return file.read().rpartition(")")[2].split()[0]


@cache
def _nursery() -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", "from tests.unit.transport.peers import main; main()"],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def main() -> None:
    """Forks a peer for each line, until the tests are over."""
    import mdgan.transport.frames  # noqa: F401 - so that the forks need not

    assert "grpc" not in sys.modules
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    children: list[int] = []
    for line in sys.stdin:
        role, how = json.loads(line)
        child = os.fork()
        if child == 0:
            print(os.getpid(), flush=True)
            _be(role, how, sys.stdout)
        children.append(child)
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def _be(role: str, how: Mapping[str, Any], output: IO[str]) -> None:
    try:
        link, place = _host(**how) if role == "host" else _server(**how)
        print(json.dumps(place), file=output, flush=True)
        while link:
            time.sleep(1)
    finally:
        os._exit(1)


def _host(server: str, number: int, parcels_at: str | None, lays_out: int = 0) -> tuple[Any, str]:
    """A host that takes in what comes and says nothing.

    Args:
        server: where to join.
        number: of the host.
        parcels_at: where it hands out parcels.
        lays_out: an iteration for which it has a parcel for host 2.
    """
    from mdgan.transport.base import Tickets
    from tests.unit.transport.networks import QUICK, host_of, note

    network: Any = SimpleNamespace(
        place=server, identity=None, timeouts=QUICK, parcels_at=lambda _: parcels_at
    )
    host = host_of(network, {"host": number})
    if lays_out:
        host.exchange(lays_out, {2: note(lays_out, 1.0)}, [], {}, Tickets({2: "a secret"}, {}))
    return host, server


def _server(liveness: float = 30.0, place: str | None = None) -> tuple[Any, str]:
    """A server that lets every host in.

    Args:
        liveness: seconds.
        place: where it listens, if not on a socket.
    """
    from tests.unit.transport.networks import QUICK, GrpcNetwork

    network = GrpcNetwork(replace(QUICK, liveness=liveness), place=place)
    return network, network.place
