"""Runs with a server that lies: a real one, of which all that passes it may be read and changed.

To add a case, subclass `LyingServer` and change the messages that go to a host or come from
a host, or the parcels that one host has for another. What a method returns is passed on.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mdgan.engine.host_keys import HostKeys
from mdgan.launch import processes
from mdgan.messages import Message
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Admit
from mdgan.transport.frames import Frame, decode, encode
from mdgan.transport.memory import MemoryHostTransport, MemoryNetwork
from mdgan.transport.server_end import ServerTransport
from tests.processes import Finished, run_here
from tests.unit.credentials.test_signing import AUTHORITY, issued

SIX = (
    *("train", "--transport", "memory", "--world-size", "7", "--workers-per-host", "1"),
    *("--threads", "1", "--batch-size", "4", "--sample-interval", "0"),
    *("--checkpoint-interval", "0", "--iterations", "4"),
)
"""Six hosts, in one sum: five of them can unmask it."""
OF = {"mdgan": ("--kappa", "1"), "fl-gan": ("--round-iterations", "1")}
ALL = tuple(range(1, 7))


class LyingServer:
    """What a server does besides its work. This one does nothing."""

    network: "LyingNetwork"

    def to_host(self, host: int, message: Message) -> Sequence[Message]:
        """What a host gets instead."""
        del host
        return [message]

    def from_host(self, host: int, message: Message) -> Sequence[Message]:
        """What the rest of the server gets instead."""
        del host
        return [message]

    def parcel(self, giver: int, taker: int, message: Message) -> Message:
        """What a host gets instead of what another one has laid out for it."""
        del giver, taker
        return message

    def pretend_gone(self, host: int) -> None:
        """The rest of the server believes that a host is lost; the host knows nothing of it."""
        link = self.network.hosts[host]
        assert isinstance(link, MemoryHostTransport)
        self.network.server.lose(link.guest, "so the server says")
        self.network.left.append(link)


class LyingNetwork(MemoryNetwork):
    """The network of a run whose server lies."""

    def __init__(self, lies: LyingServer, timeouts: Timeouts, admit: Admit) -> None:
        super().__init__(timeouts, admit)
        self.server = _Server(admit, self)
        self.lies = lies
        self.left: list[MemoryHostTransport] = []
        lies.network = self

    def make_host(self, host: int, welcome: Mapping[str, Any]) -> MemoryHostTransport:
        """A link on which the server listens."""
        return _Link(self, host, welcome)


class _Server(ServerTransport):
    def __init__(self, admit: Admit, network: LyingNetwork) -> None:
        super().__init__(admit, 60.0)
        self._network = network

    def close(self) -> None:
        """Ends the links of hosts that were said to be gone, too."""
        super().close()
        for link in self._network.left:
            link.lose_server("it said goodbye")


class _Link(MemoryHostTransport):
    def __init__(self, network: LyingNetwork, host: int, welcome: Mapping[str, Any]) -> None:
        super().__init__(network, host, welcome)
        self._lies = network.lies

    def put(self, frame: Frame) -> bool:
        """See `Line`."""
        messages = self._lies.to_host(self.host, decode(frame))
        sent = [super(_Link, self).put(encode(message)) for message in messages]
        return all(sent)

    def _put(self, frame: Frame) -> bool:
        for message in self._lies.from_host(self.host, decode(frame)):
            super()._put(encode(message))
        return True

    def _fetch(self, giver: int, iteration: int, address: Any, ticket: str) -> Frame:
        frame = super()._fetch(giver, iteration, address, ticket)
        return encode(self._lies.parcel(giver, self.host, decode(frame)))


def certified(workers: Sequence[int], _credentials: object) -> HostKeys:
    """Every host has its own certificate."""
    return HostKeys(workers, issued(AUTHORITY, "worker", *workers))


def lying_run(
    folder: Path, lies: LyingServer, *flags: str, secure: bool = True, algorithm: str = "mdgan"
) -> Finished:
    """Trains in `folder / "run"`; certificates are there, as between machines."""
    flags = (
        *SIX,
        "--algorithm",
        algorithm,
        *OF[algorithm],
        *["--secure-aggregation"] * secure,
        *flags,
    )
    with (
        patch.object(processes, "MemoryNetwork", partial(LyingNetwork, lies)),
        patch.object(processes, "HostKeys", certified),
    ):
        return run_here(*flags, "--out", "run", cwd=folder)
