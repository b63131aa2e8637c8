"""Everything in one process: hosts are threads, and frames go from hand to hand."""

from collections.abc import Mapping
from typing import Any

from mdgan.errors import BadInput
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Admit
from mdgan.transport.frames import Frame, WireError
from mdgan.transport.host_end import HostTransport
from mdgan.transport.parcels import NothingThere
from mdgan.transport.server_end import Guest, ServerTransport


class MemoryNetwork:
    """The switchboard of one process, with the newest end of each host that ever joined."""

    def __init__(self, timeouts: Timeouts, admit: Admit) -> None:
        self.timeouts = timeouts
        self.server = ServerTransport(admit, timeouts.swap)
        self.hosts: dict[int, MemoryHostTransport] = {}

    def join(self, host: int, hello: Mapping[str, Any]) -> "MemoryHostTransport":
        """Adds a host and tells the server; an earlier link of the same host is gone."""
        welcome = self.server.decide({"purpose": "join", "host": host, **hello})
        if isinstance(welcome, str):
            raise BadInput("the server refused this host", welcome)
        self.hosts[host] = end = self.make_host(host, welcome)
        end.guest = self.server.let_in(host, hello, end)
        return end

    def make_host(self, host: int, welcome: Mapping[str, Any]) -> "MemoryHostTransport":
        """A host's end; other kinds of links in one process make another one."""
        return MemoryHostTransport(self, host, welcome)


class MemoryHostTransport(HostTransport):
    """A host's end; for the server's end it is the way to this host."""

    guest: Guest

    def __init__(self, network: MemoryNetwork, host: int, welcome: Mapping[str, Any]) -> None:
        super().__init__(host, network.timeouts.swap)
        self.welcome = dict(welcome)
        self._network = network

    def close(self) -> None:
        """Tells the server that this host is gone, unless it knows; laid-out parcels stay."""
        if not self.is_over:
            self.is_over = True
            self._network.server.lose(self.guest, "it said goodbye")
        self._network.server.parcels.leave(self.host)

    def put(self, frame: Frame) -> bool:
        """The server sends."""
        if not self.is_over:
            self.take_in(frame)
        return not self.is_over

    def end(self) -> None:
        """The server says goodbye."""
        self.lose_server("it said goodbye")

    def cut(self) -> None:
        """Another link of this host took its place."""
        self.lose_server("another link of this host took its place")

    def _put(self, frame: Frame) -> bool:
        self._network.server.take_in(self.guest, frame)
        return True

    def _lay_out(
        self, iteration: int, frames: Mapping[int, Frame], tickets: Mapping[int, str]
    ) -> None:
        del tickets  # the server has told them
        try:
            for taker, frame in frames.items():
                self._network.server.parcels.put(self.host, taker, frame)
        except WireError as error:
            self._network.server.lose(self.guest, str(error), lied=True)
            self.lose_server("it said goodbye")
        self._network.server.parcels.laid_out(self.host, iteration)

    def _fetch(self, giver: int, iteration: int, address: Any, ticket: str) -> Frame:
        del address  # they are all here
        if giver not in self._network.hosts:
            raise NothingThere("its address is unknown")
        parcels = self._network.server.parcels
        frame = parcels.wait_for(giver, iteration, self.host, ticket=ticket)
        parcels.fetched(giver, iteration, self.host)
        return frame
