"""The server's end over gRPC: a stream for every host, answers to machines that join or watch."""

import contextlib
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from mdgan.credentials.permit import HOST_NAME
from mdgan.messages import Kind, Message
from mdgan.timeouts import Timeouts
from mdgan.transport import frames, streams
from mdgan.transport.base import DECLINE, RELAY, Admit, Later, ServerEvent
from mdgan.transport.guard import MOST_CALLS, Access, Allowance, Caller, Guard
from mdgan.transport.links_pb2 import Nothing, Piece, Time, Welcome
from mdgan.transport.parcel_service import ParcelService
from mdgan.transport.plain_socket import Door, PlainSocket
from mdgan.transport.server_end import Guest, ServerTransport
from mdgan.transport.until import Until

_REACH_SECONDS = 2.0
_LOOK_SECONDS = 1.0
_SMALL = frames.Most(256, 256, unasked=8)
_GONE_SECONDS = 0.1
SLOW_SECONDS = 1.0
"""How long a host's messages wait unread before the log says so."""
_ADMITTED_AT_ONCE = 4
_ROLES = {"join": "worker", "ask": "worker", DECLINE: "worker", "watch": "standby"}

AcceptsFrom = Callable[[int], Mapping[str, frames.Most]]
"""Takes the number of a host's workers; returns the kinds of messages that the host may send."""


class _Newcomer(NamedTuple):
    """A host that was just admitted: part of its hello, its welcome, what it may send."""

    hello: Mapping[str, Any]  # `host`, `workers` and `listens` alone
    welcome: Mapping[str, Any]
    accepts: Mapping[str, frames.Most]
    parcels: Mapping[str, frames.Most]


@dataclass
class _Stream:
    """Sends to one host; see `Line`."""

    context: grpc.ServicerContext
    caller: Caller
    outbox: streams.Outbox | PlainSocket
    _over: threading.Event = field(default_factory=threading.Event, init=False)

    def end_with_call(self) -> None:
        """Ends the outbox when the connection is lost, or at once if it is lost already."""
        if not self.context.add_callback(self._end_all):
            self._end_all()

    def is_gone(self) -> bool:
        """Whether the connection is lost; gRPC may know only a moment after the stream's end."""
        return self._over.wait(_GONE_SECONDS)

    def put(self, frame: frames.Frame) -> bool:
        """Sends a frame, or cuts a host off that takes nothing in."""
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
        places: where the server listens: `unix:` and a path, or address and port (0: a free one).
        accepts_from: the messages that an admitted host may send.
        parcels_from: the parcels that an admitted host may lay out for other hosts.

    Raises:
        CannotListen: gRPC cannot listen at one of the places.
    """

    def __init__(
        self,
        places: Sequence[str],
        access: Access,
        admit: Admit,
        accepts_from: AcceptsFrom,
        parcels_from: AcceptsFrom,
        timeouts: Timeouts,
    ) -> None:
        super().__init__(admit, timeouts.swap)
        self._access = access
        self._guard = Guard(access, self.tell_refused)
        self._accepts_from = accepts_from
        self._parcels_from = parcels_from
        self._timeouts = timeouts
        # Once decoded, a hello takes many times its size, so few are decoded at a time.
        self._admitting = threading.BoundedSemaphore(_ADMITTED_AT_ONCE)
        self._watchers: set[threading.Event] = set()
        self._looked = 0.0
        self._doors = itertools.count()
        parcels = ParcelService(self.parcels, self._guard)
        self._server = grpc.server(
            streams.Threads(),
            handlers=[self._handler(), self._health(), parcels.handler()],
            interceptors=[self._guard],
            options=streams.options(timeouts, len(places)),
            maximum_concurrent_rpcs=2 * MOST_CALLS,
        )
        self.places = [self._guard.listen(self._server, place) for place in places]
        self._server.start()

    def receive(self, timeout_seconds: float) -> ServerEvent | None:
        """See `ServerTransport`; also ends calls of outdated certificates about once a second."""
        until = Until(timeout_seconds)
        while True:
            if time.monotonic() - self._looked > _LOOK_SECONDS:
                self._looked = time.monotonic()
                self._guard.end_outdated()
            event = super().receive(min(until.left(), _LOOK_SECONDS))
            if event is not None or until.left() <= 0:
                return event

    def close(self) -> None:
        """Says goodbye to hosts and standbys, and waits a moment for them."""
        super().close()
        with self._lock:
            watchers = list(self._watchers)
        for ended in watchers:
            ended.set()
        farewell = self._timeouts.farewell
        self._server.stop(farewell).wait(farewell + streams.CLOSE_SECONDS)
        self._guard.close()

    def lose(self, guest: Guest, reason: str, *, lied: bool = False) -> None:
        """Removes a host; takers no longer wait for the parcels that it would lay out here."""
        super().lose(guest, reason, lied=lied)
        self.parcels.leave(guest.host)

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
                    lambda _, __: Time(seconds=time.monotonic()), nothing, Time.SerializeToString
                ),
            },
        )

    def _health(self) -> grpc.GenericRpcHandler:
        """The part of gRPC's standard health service that probes use."""

        def check(request: HealthCheckRequest, context: grpc.ServicerContext) -> Any:
            if request.service:
                context.abort(grpc.StatusCode.NOT_FOUND, "there is one service, without a name")
            now = HealthCheckResponse.NOT_SERVING if self._closing else HealthCheckResponse.SERVING
            return HealthCheckResponse(status=now)

        answers = HealthCheckRequest.FromString, HealthCheckResponse.SerializeToString
        return grpc.method_handlers_generic_handler(
            "grpc.health.v1.Health", {"Check": grpc.unary_unary_rpc_method_handler(check, *answers)}
        )

    def _ask(self, _request: Nothing, context: grpc.ServicerContext) -> Welcome:
        metadata: dict[str, Any] = dict(context.invocation_metadata())
        ranks = [int(n) for n in re.findall("[0-9]{1,9}", metadata.get(streams.GIVES_BACK, ""))]
        why = bytes(metadata.get(streams.WHY, b"")).decode(errors="replace")
        asked = {"workers": ranks, "why": why}
        return Welcome(fields=json.dumps(self._answer(asked, DECLINE if ranks else "ask", context)))

    def _watch(self, _request: Nothing, context: grpc.ServicerContext) -> Iterator[Welcome]:
        """Answers a standby once, then keeps its call open until either end goes away."""
        answer = self._answer({}, "watch", context)
        ended = threading.Event()
        with self._lock:
            self._watchers.add(ended)
        if not self._closing and context.add_callback(ended.set):
            yield Welcome(fields=json.dumps(answer))
            ended.wait()
        with self._lock:
            self._watchers.discard(ended)

    def _take_part(self, pieces: Iterator[Piece], context: grpc.ServicerContext) -> Iterator[bytes]:
        newcomer = self._admit_host(pieces, context)
        relayed = newcomer.hello["listens"] == RELAY
        most_bytes = max((most.held_bytes for most in newcomer.accepts.values()), default=0)
        welcome: dict[str, Any] = {**newcomer.welcome, "relayed": relayed}
        outbox: streams.Outbox | PlainSocket = streams.Outbox()
        frames_from: Callable[[Mapping[str, frames.Most]], Iterator[frames.Frame]] = partial(
            frames.frames_of, pieces
        )
        if streams.address_of(context.peer()) is not None:
            outbox.put(frames.encode(Message(Kind.WELCOME, 0, welcome)))
        else:
            (place,) = [place for place in self.places if place.startswith("unix:")]
            with contextlib.closing(Door(place, next(self._doors))) as door:
                welcome["door"] = door.told
                yield from frames.encode(Message(Kind.WELCOME, 0, welcome)).pieces
                outbox = self._accept_plain(door, context)
            frames_from = outbox.frames
        stream = _Stream(context, self._guard.caller(context), outbox)
        owner = stream.caller.certificate or f"host {newcomer.hello['host']}"
        guest = self.let_in(
            newcomer.hello["host"], newcomer.hello, stream, owner=owner, most_bytes=most_bytes
        )
        stream.end_with_call()
        parcels = newcomer.parcels if relayed else {}
        work = guest, stream, frames_from, newcomer.accepts, parcels
        threading.Thread(target=self._read_from, args=work, name="reader", daemon=True).start()
        yield from outbox.pieces()

    def _admit_host(self, pieces: Iterator[Piece], context: grpc.ServicerContext) -> _Newcomer:
        """Reads a hello and admits its host, or ends the call; drops most of the hello."""
        caller = self._guard.caller(context)
        most_bytes = self._access.hello_bytes(caller.num_ranks)
        try:
            first = frames.next_frame(pieces, {Kind.HELLO: frames.Most(most_bytes, most_bytes)})
            assert first is not None, "the guard has seen how it begins"
            with self._admitting:
                hello = frames.decode(first).fields
                welcome = self._answer(hello, "join", context)
                kept = {name: hello.get(name) for name in ("host", "workers", "listens")}
                del hello
        except (frames.WireError, grpc.RpcError) as error:
            code = grpc.StatusCode.INVALID_ARGUMENT
            self._guard.refuse(caller, context, str(error), code=code)
        num_workers = len(kept["workers"] or ())
        parcels = self._parcels_from(num_workers)
        kept["listens"] = self._place_of(kept, context.peer()) if parcels else None
        return _Newcomer(kept, welcome, self._accepts_from(num_workers), parcels=parcels)

    def _read_from(
        self,
        guest: Guest,
        stream: _Stream,
        frames_from: Callable[[Mapping[str, frames.Most]], Iterator[frames.Frame]],
        accepts: Mapping[str, frames.Most],
        parcels: Mapping[str, frames.Most],
    ) -> None:
        """Puts a host's messages into the inbox, and its parcels, until its link ends."""
        reason, lied = "", False
        expected = {**accepts, **parcels}
        most_bytes = max((most.body_bytes for most in parcels.values()), default=0)
        if parcels:
            expected[Kind.LAIDOUT] = _SMALL
        allows = Allowance(expected, guest.asked).allows
        try:
            for frame in frames_from(expected):
                if not allows(frame.kind):
                    raise frames.WireError(f"{frame.kind} messages come too often, or unasked")
                if frame.kind == Kind.LAIDOUT:
                    self.parcels.laid_out(guest.host, frame.iteration)
                elif frame.kind in parcels:
                    # Takers get different workers of the giver: together at most one full parcel.
                    self.parcels.put(guest.host, frame.taker, frame, most_bytes=most_bytes)
                else:
                    if not self.await_room(guest, SLOW_SECONDS):
                        problem = "the server reads no more of it while so many bytes wait"
                        caller = stream.caller
                        self.tell_slowed(caller.as_visitor("join"), f"{caller.shown}: {problem}")
                        self.await_room(guest)
                    self.take_in(guest, frame)
            if not stream.is_gone():
                reason = "it said goodbye"
        except (frames.CutOff, grpc.RpcError):
            pass
        except frames.WireError as error:
            if lied := not stream.is_gone():
                reason = str(error)
        self.lose(guest, reason or self._why_gone(guest, stream), lied=lied)
        stream.end()

    def _accept_plain(self, door: Door, context: grpc.ServicerContext) -> PlainSocket:
        """Waits for a host's connection to the door that its welcome names, or ends the call."""
        if not context.add_callback(door.wake):
            door.wake()
        try:
            return door.take(self._timeouts.link)
        except frames.WireError as error:
            caller = self._guard.caller(context)
            self.tell_refused(caller.as_visitor("join"), f"{caller.shown}: {error}")
            context.abort(grpc.StatusCode.CANCELLED, str(error))

    def _why_gone(self, guest: Guest, stream: _Stream) -> str:
        """Why a host's link has ended; gRPC does not give a server the reason."""
        if why := self._guard.why_outdated(stream.caller):
            return why
        closed, limit = "its connection closed", self._timeouts.liveness
        if time.monotonic() - guest.heard < limit / 2:
            return closed
        return f"{closed}, or it was silent for {limit:g} s"

    def _answer(
        self, hello: Mapping[str, Any], purpose: str, context: grpc.ServicerContext
    ) -> Mapping[str, Any]:
        """Answers a caller's hello, or ends the call if the caller may not come in."""
        caller = self._guard.caller(context)
        ranks = hello.get("workers")
        workers = ranks if isinstance(ranks, list) else []
        ranks_wanted = [rank for rank in workers if isinstance(rank, int)]
        permit = caller.permit
        named = sorted((permit and permit.ranks) or ())
        hello = {**hello, "serial": f"{permit.serial:x}" if permit else "", "ranks": named}
        if permit is not None and (refusal := permit.refusal(_ROLES[purpose], ranks_wanted)):
            self._guard.refuse(caller, context, refusal)
        answer = self.decide({**hello, "purpose": purpose}, caller.certificate, caller.address)
        if isinstance(answer, str):
            code = grpc.StatusCode.PERMISSION_DENIED
            # A standby may have taken over from a server that ends, so its hosts go on searching.
            if self._closing:
                code = grpc.StatusCode.CANCELLED
            elif isinstance(answer, Later):
                code = grpc.StatusCode.RESOURCE_EXHAUSTED
            context.abort(code, answer)
        return answer

    def _place_of(self, hello: Mapping[str, Any], peer: str) -> str:
        """Where others fetch a host's parcels: at the host if the server reaches it, or `RELAY`."""
        place = hello.get("listens")
        if not isinstance(place, str):
            return RELAY
        if place.startswith("unix:"):
            return place if streams.address_of(peer) is None else RELAY
        return place if streams.may_be_tried(place, peer) and self._reaches(place) else RELAY

    def _reaches(self, place: str) -> bool:
        """Whether the server can open a link to a place, with the run's certificates."""
        channel = streams.open_channel(
            place, self._access.identity, HOST_NAME, timeouts=self._timeouts
        )
        try:
            grpc.channel_ready_future(channel).result(_REACH_SECONDS)
        except grpc.FutureTimeoutError:
            return False
        finally:
            channel.close()
        return True
