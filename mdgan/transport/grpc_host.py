"""A host's end over gRPC: one stream with the server, and a service with parcels for hosts."""

import math
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import grpc

from mdgan.credentials.permit import HOST_NAME, SERVER_NAME
from mdgan.messages import Kind, Message
from mdgan.timeouts import Timeouts
from mdgan.transport import streams
from mdgan.transport.base import RELAY
from mdgan.transport.frames import (
    CutOff,
    Frame,
    Most,
    WireError,
    decode,
    encode,
    frames_of,
    next_frame,
)
from mdgan.transport.guard import Access
from mdgan.transport.host_end import HostTransport
from mdgan.transport.links_pb2 import Nothing, Order, Piece, Time
from mdgan.transport.parcel_service import ParcelService, fetch
from mdgan.transport.parcels import NothingThere, Parcels
from mdgan.transport.plain_socket import PlainSocket, knock
from mdgan.transport.until import Inbox, Until

_CLOCK_QUESTIONS = 5
_GONE_SECONDS = 0.1
_WELCOME: Mapping[str, Most] = {Kind.WELCOME: Most(1 << 24, 1 << 24)}


class GrpcHostTransport(HostTransport):
    """A host's end; see `HostTransport`.

    Args:
        place: where the server may be: `unix:` and a path, or address and port.
        hello: the fields of the first message, with the host's number as `host`; this class adds
            `listens`, where this host hands out parcels.
        parcels_at: where to hand out parcels: `unix:` and a path, or an address with port 0. If it
            is None, or if the server cannot reach it, the server hands them out.
        until: how long to wait for the server's answer.

    Raises:
        grpc.RpcError, WireError, TimeoutError: no server let this host in.
        CannotListen: gRPC cannot listen at `parcels_at`.
        Interrupted: `until` was interrupted.
    """

    def __init__(
        self,
        place: str,
        access: Access,
        hello: Mapping[str, Any],
        accepts: Mapping[str, Most],
        accepts_from_hosts: Mapping[str, Most],
        timeouts: Timeouts,
        parcels_at: str | None,
        until: Until,
    ) -> None:
        super().__init__(int(hello["host"]), timeouts.swap)
        self.server = f"at {place}"
        self._identity = identity = access.identity
        self._accepts = accepts
        self._parcel_limits = accepts_from_hosts
        self._timeouts = timeouts
        self._parcels = Parcels(timeouts.swap)
        self._has_ports = not (parcels_at or "").startswith("unix:")
        self._service = ParcelService.of_host(self._parcels, access)
        fields = {**hello, "purpose": "join", "listens": None}
        if accepts_from_hosts and parcels_at is not None:
            fields["listens"] = self._service.serve(parcels_at, timeouts)
        self._outbox = streams.Outbox()
        self._outbox.put(encode(Message(Kind.HELLO, 0, fields)))
        self._way: streams.Outbox | PlainSocket = self._outbox  # to the server
        self._over = threading.Event()
        self._channel = streams.open_channel(place, identity, SERVER_NAME, timeouts=timeouts)
        take_part: Any = self._channel.stream_stream(streams.TAKE_PART, None, Piece.FromString)
        self._call = take_part(self._outbox.pieces())
        first: Inbox[dict[str, Any] | Exception] = Inbox()
        self._reader = threading.Thread(
            target=self._read, args=(place, first), name="reader", daemon=True
        )
        self._reader.start()
        try:
            welcome = until.take(first)
            self._server_hands_out = bool(welcome.pop("relayed", False))
            self.clock_offset_seconds = self._ask_clock()
            self.welcome = welcome
        except BaseException:
            self._call.cancel()
            self._end(0)
            raise

    def close(self) -> None:
        """Says goodbye to the server; waits a moment for its goodbye and for takers of parcels."""
        self._way.end()
        self._parcels.leave(self.host, self._timeouts.farewell)
        self._end(self._timeouts.farewell)

    def _end(self, grace_seconds: float) -> None:
        self._way.end()
        self._service.stop(grace_seconds)
        self._reader.join(grace_seconds)
        self._outbox.end()
        streams.close(self._channel)

    def _read(self, place: str, first: Inbox[dict[str, Any] | Exception]) -> None:
        """Puts the server's messages into the inbox until the server says goodbye or is lost."""
        reason = "it said goodbye"
        try:
            for frame in self._frames(place, first):
                self.take_in(frame)
        except WireError as error:
            first.put(error)
            reason = self._why_gone() if isinstance(error, CutOff) else str(error)
        except grpc.RpcError as error:
            first.put(error)
            reason = streams.reason_of(error)
        self.lose_server(reason)
        self._way.cut()
        self._outbox.end()
        self._call.cancel()

    def _frames(self, place: str, first: Inbox[dict[str, Any] | Exception]) -> Iterator[Frame]:
        """Waits for the welcome, puts it into `first`, and yields the frames that follow."""
        frame = next_frame(self._call, _WELCOME)
        if frame is None:
            raise WireError("it is about to end")
        welcome = dict(decode(frame).fields)
        frames = frames_of(self._call, self._accepts)
        if (door := welcome.pop("door", None)) is not None:
            self._way = plain = knock(place, door, self._timeouts.link)
            threading.Thread(target=plain.send_waiting, name="writer", daemon=True).start()
            self._call.add_done_callback(self._cut)
            frames = plain.frames(self._accepts)
        first.put(welcome)
        yield from frames

    def _cut(self, _call: Any) -> None:
        """Ends sending, as gRPC's call has ended: by a goodbye, a lost server or one that hangs."""
        self._over.set()
        self._way.cut()

    def _why_gone(self) -> str:
        """Why the link has ended; gRPC may know only a moment after the plain socket has closed."""
        if self._over.wait(_GONE_SECONDS) and self._call.code() is not grpc.StatusCode.OK:
            return streams.reason_of(self._call)
        return "its connection closed"

    def _ask_clock(self) -> float:
        """Seconds to add to this machine's monotonic clock to get the server's (Cristian 1989)."""
        ask = self._channel.unary_unary(streams.CLOCK, Nothing.SerializeToString, Time.FromString)
        best = math.inf, 0.0
        for _ in range(_CLOCK_QUESTIONS):
            asked_at = time.monotonic()
            server_time = ask(Nothing(), timeout=self._timeouts.link).seconds
            answered_at = time.monotonic()
            best = min(best, (answered_at - asked_at, server_time - (asked_at + answered_at) / 2))
        if not math.isfinite(best[1]):
            raise WireError("its clock's answer is no number")
        return best[1]

    def _put(self, frame: Frame) -> bool:
        return self._way.put(frame)

    def _lay_out(
        self, iteration: int, frames: Mapping[int, Frame], tickets: Mapping[int, str]
    ) -> None:
        if self._server_hands_out:
            for taker, frame in frames.items():
                self._way.put(replace(frame, taker=taker))
            self._way.put(Frame(Kind.LAIDOUT, iteration, b""))
            return
        self._parcels.expect(self.host, iteration, tickets)
        for taker, frame in frames.items():
            self._parcels.put(self.host, taker, frame)
        self._parcels.laid_out(self.host, iteration)

    def _fetch(self, giver: int, iteration: int, address: Any, ticket: str) -> Frame:
        order = Order(giver=giver, iteration=iteration, taker=self.host, ticket=ticket)
        if address == RELAY:
            limits, seconds = self._parcel_limits, self._swap_seconds
            return fetch(self._channel, order, limits, timeout_seconds=seconds)
        # A lying server could name a socket of this machine, or a name for this host to look up.
        if not isinstance(address, str) or (self._has_ports and not streams.is_place(address)):
            raise NothingThere("its address is unknown")
        channel = streams.open_channel(address, self._identity, HOST_NAME, timeouts=self._timeouts)
        try:
            return fetch(channel, order, self._parcel_limits, timeout_seconds=self._swap_seconds)
        finally:
            streams.close(channel)
