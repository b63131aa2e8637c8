"""The transport within one process: hosts are threads, and frames are passed as Python objects."""

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
    """Links the server to the hosts of one process; keeps the newest end of each host."""

    def __init__(self, timeouts: Timeouts, admit: Admit) -> None:
        self.timeouts = timeouts
        self.server = ServerTransport(admit, timeouts.swap)
        self.hosts: dict[int, MemoryHostTransport] = {}

    def join(self, host: int, hello: Mapping[str, Any]) -> "MemoryHostTransport":
        """Asks the server to admit a host; replaces an earlier link of the same host."""
        welcome = self.server.decide({"purpose": "join", "host": host, **hello})
        if isinstance(welcome, str):
            raise BadInput("the server refused this host", welcome)
        self.hosts[host] = end = self.make_host(host, welcome)
        end.guest = self.server.let_in(host, hello, end)
        return end

    def make_host(self, host: int, welcome: Mapping[str, Any]) -> "MemoryHostTransport":
        """Makes a host's end; subclasses make another kind of end."""
        return MemoryHostTransport(self, host, welcome)


class MemoryHostTransport(HostTransport):
    """A host's end, which the server also uses as its `Line` to this host."""

    guest: Guest

    def __init__(self, network: MemoryNetwork, host: int, welcome: Mapping[str, Any]) -> None:
        super().__init__(host, network.timeouts.swap)
        self.welcome = dict(welcome)
        self._network = network

    def close(self) -> None:
        """Tells the server, if the link is still open, that this host leaves; parcels stay."""
        if not self.is_over:
            self.is_over = True
            self._network.server.lose(self.guest, "it said goodbye")
        self._network.server.parcels.leave(self.host)

    def put(self, frame: Frame) -> bool:
        """Takes a frame that the server sends; False if the link has ended."""
        if not self.is_over:
            self.take_in(frame)
        return not self.is_over

    def end(self) -> None:
        """Takes the server's goodbye."""
        self.lose_server("it said goodbye")

    def cut(self) -> None:
        """Ends this link, because the same host has joined again."""
        self.lose_server("another link of this host took its place")

    def _put(self, frame: Frame) -> bool:
        self._network.server.take_in(self.guest, frame)
        return True

    def _lay_out(
        self, iteration: int, frames: Mapping[int, Frame], tickets: Mapping[int, str]
    ) -> None:
        del tickets  # the server's parcels have them since `order_exchange`
        try:
            for taker, frame in frames.items():
                self._network.server.parcels.put(self.host, taker, frame)
        except WireError as error:
            self._network.server.lose(self.guest, str(error), lied=True)
            self.lose_server("it said goodbye")
        self._network.server.parcels.laid_out(self.host, iteration)

    def _fetch(self, giver: int, iteration: int, address: Any, ticket: str) -> Frame:
        del address  # all hosts are in this process
        if giver not in self._network.hosts:
            raise NothingThere("its address is unknown")
        parcels = self._network.server.parcels
        frame = parcels.wait_for(giver, iteration, self.host, ticket=ticket)
        parcels.fetched(giver, iteration, self.host)
        return frame
