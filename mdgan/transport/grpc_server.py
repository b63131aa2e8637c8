"""The server's end over gRPC: a stream for every host, and questions of those who come later."""

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from mdgan.credentials.identity import Identity
from mdgan.credentials.permit import HOST_NAME, Permit, permit_of
from mdgan.credentials.revocations import Revocations
from mdgan.messages import Kind, Message
from mdgan.timeouts import Timeouts
from mdgan.transport.base import RELAY, Admit, ServerEvent
from mdgan.transport.frames import (
    CutOff,
    Frame,
    Most,
    Rates,
    WireError,
    decode,
    encode,
    frames_of,
    next_frame,
)
from mdgan.transport.links_pb2 import Nothing, Piece, Time, Welcome
from mdgan.transport.parcel_service import ParcelService
from mdgan.transport.plain_socket import Door, PlainSocket
from mdgan.transport.server_end import Guest, ServerTransport
from mdgan.transport.streams import (
    CLOSE_SECONDS,
    Outbox,
    Threads,
    listen,
    may_be_tried,
    open_channel,
    options,
)
from mdgan.transport.until import Until

HELLO = Most(1 << 20, 1 << 20)
MOST_CALLS = 2048
"""Calls at a time, the streams of hosts among them; further ones are refused."""
_MOST_UNTAKEN_BYTES = 1 << 26
_HELLO_SECONDS = 5.0
_REACH_SECONDS = 2.0
_LOOK_SECONDS = 1.0
_SMALL = Most(256, 256)
_GONE_SECONDS = 0.1
_ROLES = {"join": "worker", "ask": "worker", "watch": "standby"}

AcceptsFrom = Callable[[Mapping[str, Any]], Mapping[str, Most]]
"""From a hello to the kinds that may come from that host."""


class _Stream:
    """The way to one host; see `Line`."""

    def __init__(
        self,
        context: grpc.ServicerContext,
        permit: Permit | None,
        outbox: Outbox | PlainSocket,
    ) -> None:
        self.context = context
        self.serial = None if permit is None else permit.serial
        self.outbox = outbox
        self._over = threading.Event()

    def watch(self) -> None:
        """Notes when the connection is gone."""
        if not self.context.add_callback(self._end_all):
            self._end_all()

    def is_gone(self) -> bool:
        """Whether the connection is gone; gRPC may tell so a moment after the stream has ended."""
        return self._over.wait(_GONE_SECONDS)

    def put(self, frame: Frame) -> bool:
        """A host that takes nothing in is cut off."""
        is_put = self.outbox.put(frame)
        if not is_put:
            self.cut()
        return is_put

    def end(self) -> None:
        self.outbox.end()

    def cut(self) -> None:
        self.context.cancel()
        self.outbox.cut()

    def _end_all(self) -> None:
        self._over.set()
        self.outbox.cut()


class GrpcServerTransport(ServerTransport):
    """The server's end; see `ServerTransport`.

    Args:
        places: where it listens: `unix:` and a path, or address and port (0: a free one).
        identity: what the server shows and whom it trusts; None without TLS.
        accepts_from: what may come from a host with a hello that was admitted.
        parcels_from: the parcels that such a host may have for other hosts.

    Raises:
        CannotListen: gRPC cannot listen at one of the places.
    """

    def __init__(
        self,
        places: Sequence[str],
        identity: Identity | None,
        revocations: Revocations,
        admit: Admit,
        accepts_from: AcceptsFrom,
        parcels_from: AcceptsFrom,
        timeouts: Timeouts,
    ) -> None:
        super().__init__(admit, timeouts.swap)
        self._identity = identity
        # A certificate that the server has, too, is in a file that all machines share.
        self._shared = None if identity is None else permit_of(identity.certificate).fingerprint
        self._revocations = revocations
        self._accepts_from = accepts_from
        self._parcels_from = parcels_from
        self._timeouts = timeouts
        self._watchers: set[threading.Event] = set()
        self._looked = 0.0
        self._doors = itertools.count()
        self._health = health.HealthServicer()
        self._server = grpc.server(
            Threads(),
            handlers=[self._handler(), ParcelService(self.parcels).handler()],
            options=options(timeouts),
            maximum_concurrent_rpcs=MOST_CALLS,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.places = [listen(self._server, place, identity) for place in places]
        self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        self._server.start()

    def receive(self, timeout_seconds: float) -> ServerEvent | None:
        """The next event from any host, or None when the time is up."""
        until = Until(timeout_seconds)
        while True:
            if time.monotonic() - self._looked > _LOOK_SECONDS:
                self._looked = time.monotonic()
                self._shut_out_revoked()
            event = super().receive(min(until.left(), _LOOK_SECONDS))
            if event is not None or until.left() <= 0:
                return event

    def close(self) -> None:
        """Says goodbye to hosts and standbys, and waits a moment for them."""
        self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        super().close()
        with self._lock:
            watchers = list(self._watchers)
        for ended in watchers:
            ended.set()
        farewell = self._timeouts.farewell
        self._server.stop(farewell).wait(farewell + CLOSE_SECONDS)

    def lose(self, guest: Guest, reason: str, *, lied: bool = False) -> None:
        """A host is gone, and so are the parcels that it would have laid out here."""
        super().lose(guest, reason, lied=lied)
        self.parcels.leave(guest.host)

    def _shut_out_revoked(self) -> None:
        with self._lock:
            guests = list(self._guests.values())
        for guest in guests:
            serial = guest.line.serial if isinstance(guest.line, _Stream) else None
            if serial is not None and serial in self._revocations:
                self.lose(guest, "its certificate was revoked")
                guest.line.cut()

    def _handler(self) -> grpc.GenericRpcHandler:
        nothing, welcome = Nothing.FromString, Welcome.SerializeToString
        return grpc.method_handlers_generic_handler(
            "mdgan.Server",
            {
                "Ask": grpc.unary_unary_rpc_method_handler(self._ask, nothing, welcome),
                "Watch": grpc.unary_stream_rpc_method_handler(self._watch, nothing, welcome),
                "TakePart": grpc.stream_stream_rpc_method_handler(
                    self._take_part, Piece.FromString, None
                ),
                "Clock": grpc.unary_unary_rpc_method_handler(
                    lambda _, __: Time(seconds=time.monotonic()),
                    nothing,
                    Time.SerializeToString,
                ),
            },
        )

    def _ask(self, _request: Nothing, context: grpc.ServicerContext) -> Welcome:
        answer = self._answer({}, "ask", self._permit(context), context)
        return Welcome(fields=json.dumps(answer))

    def _watch(self, _request: Nothing, context: grpc.ServicerContext) -> Iterator[Welcome]:
        """Lasts until the other end is gone, or the server ends."""
        answer = self._answer({}, "watch", self._permit(context), context)
        ended = threading.Event()
        with self._lock:
            self._watchers.add(ended)
        if not self._closing and context.add_callback(ended.set):
            yield Welcome(fields=json.dumps(answer))
            ended.wait()
        with self._lock:
            self._watchers.discard(ended)

    def _take_part(self, pieces: Iterator[Piece], context: grpc.ServicerContext) -> Iterator[bytes]:
        permit, peer = self._permit(context), context.peer()
        in_time = threading.Timer(_HELLO_SECONDS, context.cancel)
        in_time.start()
        try:
            first = next_frame(pieces, {Kind.HELLO: HELLO})
            hello = {} if first is None else dict(decode(first).fields)
        except (WireError, grpc.RpcError) as error:
            reason = str(error) or "it sent no hello"
            self.tell_refused(f"{peer}: {reason}")
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        finally:
            in_time.cancel()
        welcome = self._answer(hello, "join", permit, context)
        accepts, parcels = self._accepts_from(hello), self._parcels_from(hello)
        place = self._place_of(hello, peer) if parcels else None
        relayed = place == RELAY
        added: dict[str, Any] = {"relayed": relayed}
        outbox: Outbox | PlainSocket = Outbox()
        come: Callable[[Mapping[str, Most]], Iterator[Frame]] = partial(frames_of, pieces)
        if not peer.startswith("unix:"):
            outbox.put(encode(Message(Kind.WELCOME, 0, {**welcome, **added})))
        else:
            with contextlib.closing(self._door()) as door:
                added["door"] = door.told
                yield from encode(Message(Kind.WELCOME, 0, {**welcome, **added})).pieces
                outbox = self._taken(door, peer, context)
            come = outbox.frames
        stream = _Stream(context, permit, outbox)
        told = {**hello, "listens": place}
        guest = self.let_in(hello["host"], told, stream)
        stream.watch()
        work = guest, stream, come, accepts, parcels if relayed else {}
        threading.Thread(target=self._take_from, args=work, name="reader", daemon=True).start()
        yield from outbox.pieces()

    def _take_from(
        self,
        guest: Guest,
        stream: _Stream,
        come: Callable[[Mapping[str, Most]], Iterator[Frame]],
        accepts: Mapping[str, Most],
        parcels: Mapping[str, Most],
    ) -> None:
        """Takes in what a host sends, until it says goodbye or is gone."""
        reason, lied = "it said goodbye", False
        expected = {**accepts, **parcels}
        most_bytes = max((most.body_bytes for most in parcels.values()), default=0)
        if parcels:
            expected[Kind.LAIDOUT] = _SMALL
        rates = Rates(expected)
        try:
            for frame in come(expected):
                if not rates.allows(frame.kind):
                    raise WireError(f"{frame.kind} messages come too often")
                if frame.kind == Kind.LAIDOUT:
                    self.parcels.laid_out(guest.host, frame.iteration)
                elif frame.kind in parcels:
                    # Its workers are shared out among takers: all together are not more than one.
                    self.parcels.put(guest.host, frame.taker, frame, most_bytes)
                else:
                    guest.await_room(_MOST_UNTAKEN_BYTES)
                    self.take_in(guest, frame)
            if stream.is_gone():
                reason = self._why_gone(guest)
        except CutOff:
            reason = self._why_gone(guest)
        except WireError as error:
            lied = not stream.is_gone()
            reason = str(error) if lied else self._why_gone(guest)
        except grpc.RpcError:
            reason = self._why_gone(guest)
        self.lose(guest, reason, lied=lied)
        stream.end()

    def _door(self) -> Door:
        """Where a host of this machine connects for messages."""
        (place,) = [place for place in self.places if place.startswith("unix:")]
        return Door(place, next(self._doors))

    def _taken(self, door: Door, peer: str, context: grpc.ServicerContext) -> PlainSocket:
        """The connection of a host that has been told of a door; ends the call without one."""
        if not context.add_callback(door.wake):
            door.wake()
        try:
            return door.take(self._timeouts.link)
        except WireError as error:
            self.tell_refused(f"{peer}: {error}")
            context.abort(grpc.StatusCode.CANCELLED, str(error))

    def _why_gone(self, guest: Guest) -> str:
        """Why a host's connection is gone, which gRPC does not tell the server's end of a call."""
        closed, limit = "its connection closed", self._timeouts.liveness
        if time.monotonic() - guest.heard < limit / 2:
            return closed
        return f"{closed}, or it was silent for {limit:g} s"

    def _answer(
        self,
        hello: Mapping[str, Any],
        purpose: str,
        permit: Permit | None,
        context: grpc.ServicerContext,
    ) -> Mapping[str, Any]:
        """What a newcomer is told; ends the call if it may not come in."""
        ranks = hello.get("workers") if purpose == "join" else None
        said = ranks if isinstance(ranks, list) else []
        wanted = [rank for rank in said if isinstance(rank, int)]
        refusal = None
        if permit is not None and permit.serial in self._revocations:
            refusal = f"its certificate ({permit.name}) was revoked"
        elif permit is not None:
            refusal = permit.refusal(_ROLES[purpose], wanted)
            if permit.ranks is not None:
                hello = {**hello, "ranks": sorted(permit.ranks)}
        if refusal is not None:
            self.tell_refused(refusal)
        known_by = "" if permit is None else permit.fingerprint
        own = "" if known_by == self._shared else known_by
        answer = refusal or self.decide({**hello, "purpose": purpose}, own)
        if isinstance(answer, str):
            denied, later = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.CANCELLED
            # Another server may have taken over from one that ends: its hosts look on.
            context.abort(later if self._closing else denied, answer)
        return answer

    def _permit(self, context: grpc.ServicerContext) -> Permit | None:
        """What the newcomer's certificate allows; None if it needs none here."""
        shown = context.auth_context().get("x509_pem_cert")
        if not shown:
            return None
        try:
            return permit_of(bytes(shown[0]))
        except ValueError as error:
            self.tell_refused(str(error))
            context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))

    def _place_of(self, hello: Mapping[str, Any], peer: str) -> str:
        """Where other hosts fetch from a host: where the server finds it, or at the server."""
        place = hello.get("listens")
        if not isinstance(place, str):
            return RELAY
        if place.startswith("unix:"):
            return place if peer.startswith("unix:") else RELAY
        return place if may_be_tried(place, peer) and self._reaches(place) else RELAY

    def _reaches(self, place: str) -> bool:
        """Whether a host of this run listens there, as far as the server can tell."""
        channel = open_channel(place, self._identity, HOST_NAME, self._timeouts)
        try:
            grpc.channel_ready_future(channel).result(_REACH_SECONDS)
        except grpc.FutureTimeoutError:
            return False
        finally:
            channel.close()
        return True
