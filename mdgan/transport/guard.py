"""What one caller may do at a time and again and again, whatever links it opens; and one link.

A caller is known by its certificate, or by its address if it shows none of its own. Its quotas
follow from the ranks that it may have, as its certificate or the settings say.
"""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from math import inf
from typing import Any, NamedTuple, NoReturn

import grpc

from mdgan.credentials.identity import OwnIdentity
from mdgan.credentials.pem import in_words, now
from mdgan.credentials.permit import Permit, permit_of
from mdgan.credentials.revocations import Revocations
from mdgan.transport.base import Visitor
from mdgan.transport.frames import Most
from mdgan.transport.front import Front
from mdgan.transport.streams import address_of, listen

MOST_CALLS = 2048  # calls at a time; beyond them, the caller with the most loses its newest
AT_ONCE, OF_A_RANK = 8, 2
"""Calls of a kind at a time: so many, and so many for each rank that the caller may have."""
A_SECOND, IN_A_ROW = 20.0, 20
"""Calls of a kind a second, on average; and at once, as many again for each rank."""
REFUSALS_A_SECOND, REFUSALS_IN_A_ROW = 1.0, 64
"""Refused calls, of whatever kind; beyond them the connection ends with the call."""
_JOINS_A_SECOND = 0.5  # each that is let in leaves some lines in the run's records
_SMALL_BYTES = 1 << 12
_FIRST_SECONDS = 5.0
MOST_IN_A_ROW = 600
"""How many messages of a kind that is bound to a rate may come at once.

A host that tells something every second has sent so many while a network stood still, or while this
process did, for ten minutes.
"""
MOST_REMEMBERED = 4096
"""Most callers whose usage is remembered; then the one heard from longest ago is forgotten."""


class Bucket:
    """Lets something happen so many times in a row, and so often a second on average."""

    def __init__(
        self, in_a_row: float, a_second: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._a_second, self._clock = in_a_row, a_second, clock
        self._left, self._counted = in_a_row, clock()

    def take(self) -> bool:
        """Counts once; False if it has happened too often."""
        now = self._clock()
        gained = (now - self._counted) * self._a_second
        self._left, self._counted = min(self._most, self._left + gained), now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """It does not count after all."""
        self._left += 1


class Allowance:
    """Counts the messages that come over one link.

    Args:
        asked: how often the server has sent each kind of message to this host, and "" for all.
    """

    def __init__(
        self,
        accepts: Mapping[str, Most],
        asked: Mapping[str, int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._accepts, self._asked = accepts, asked
        bound = {kind: most.a_second for kind, most in accepts.items() if most.a_second < inf}
        self._buckets = {kind: Bucket(MOST_IN_A_ROW, each, clock) for kind, each in bound.items()}
        self._heard: Counter[str] = Counter()

    def allows(self, kind: str) -> bool:
        """Counts a message; False if too many have come."""
        if kind in self._buckets and not self._buckets[kind].take():
            return False
        most = self._accepts[kind]
        self._heard[kind] += 1
        return self._heard[kind] <= most.unasked + most.each * self._asked[most.answers]


class Access(NamedTuple):
    """Whom a process lets call it, and how much; the same for all of its ports."""

    # What it shows and whom it trusts, as files say now; None without TLS.
    identity: OwnIdentity | None
    revocations: Revocations
    most_ranks: int  # that one host may have, if its certificate does not say
    # From a number of ranks to the most that their host says of itself.
    hello_bytes: Callable[[int], int]


@dataclass(frozen=True)
class Caller:
    """Who calls."""

    identity: str  # what it is known by
    shown: str  # the same for log lines, with its address
    num_ranks: int
    permit: Permit | None = None  # what its certificate allows; None without one
    certificate: str = ""  # its fingerprint, if it is this caller's alone; else empty
    address: str = ""  # where it calls from; empty on this machine

    def as_visitor(self, purpose: str) -> Visitor:
        """The same for the server's log."""
        return Visitor(purpose, self.certificate, self.address)


@dataclass(eq=False)
class _Call:
    caller: Caller
    kind: str
    context: Any
    bucket: Bucket = field(repr=False)


class Guard(grpc.ServerInterceptor):
    """Looks at every call of a gRPC server: revocations, and quotas of its caller.

    Args:
        tell: takes a caller that was refused, and the reason in one line.
    """

    def __init__(self, access: Access, tell: Callable[[Visitor, str], None]) -> None:
        # A certificate that this process has, too, is in a file that all machines share.
        own = None if access.identity is None else permit_of(access.identity().certificate)
        self._shared = None if own is None else own.fingerprint
        self._access = access
        self._tell = tell
        self._front: Front | None = None
        self._lock = threading.Lock()  # guards what follows
        self._open: dict[str, dict[Any, _Call]] = {}
        self._buckets: OrderedDict[tuple[str, str], Bucket] = OrderedDict()

    def listen(self, server: grpc.Server, place: str) -> str:
        """Opens a place for the server and watches it; see `streams.listen`."""
        place, front = listen(server, place, self._access.identity)
        self._front = front or self._front
        return place

    def close(self) -> None:
        """Lets no caller in any more."""
        if self._front is not None:
            self._front.close()

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Puts itself before what answers a call.

        As a stream, whatever it is: only then gRPC asks before a request has come, which may be
        never.
        """
        handler = continuation(details)
        if handler is None:
            return grpc.stream_stream_rpc_method_handler(partial(self._answers, "unknown", None))
        read = handler.request_deserializer
        return grpc.stream_stream_rpc_method_handler(
            partial(self._answers, details.method.rpartition("/")[2], handler),
            read if handler.request_streaming else partial(_read_small, read),
            handler.response_serializer,
        )

    def caller(self, context: Any) -> Caller:
        """Who calls; ends the call of one whose certificate cannot be read."""
        known = str(address_of(context.peer()) or "")
        address = known or "this machine"
        shown = context.auth_context().get("x509_pem_cert")
        if not shown:
            return Caller(address, address, self._access.most_ranks, address=known)
        try:
            permit = permit_of(bytes(shown[0]))
        except ValueError as error:
            self.refuse(Caller(address, address, 0, address=known), context, str(error))
        is_own = permit.fingerprint != self._shared
        return Caller(
            permit.fingerprint if is_own else address,
            f"certificate {permit.fingerprint[:12]} at {address}",
            self._access.most_ranks if permit.ranks is None else len(permit.ranks),
            permit=permit,
            certificate=permit.fingerprint if is_own else "",
            address=known,
        )

    def refuse(
        self,
        caller: Caller,
        context: Any,
        reason: str,
        code: grpc.StatusCode = grpc.StatusCode.PERMISSION_DENIED,
    ) -> NoReturn:
        """Ends a call, and tells so; ends the connection of one that is refused all the time."""
        with self._lock:
            bucket = self._bucket(caller, "refused", REFUSALS_IN_A_ROW, a_second=REFUSALS_A_SECOND)
            is_abuse = not bucket.take()
        if self._front is not None and (is_abuse or self.why_outdated(caller)):
            self._front.end(context.peer())
        self._tell(caller.as_visitor("call"), f"{caller.shown}: {reason}")
        context.abort(code, reason)
        raise AssertionError("gRPC has not ended the call")

    def does_not_count(self, context: Any) -> None:
        """A call shows what only few know, so that it is none too often."""
        with self._lock:
            for calls in self._open.values():
                if context in calls:
                    calls[context].bucket.give_back()

    def end_outdated(self) -> None:
        """Ends the calls of certificates that have expired, or were revoked, since."""
        with self._lock:
            calls = [call for own in self._open.values() for call in own.values()]
        for call in calls:
            if self.why_outdated(call.caller):
                call.context.cancel()
                if self._front is not None:
                    self._front.end(call.context.peer())

    def why_outdated(self, caller: Caller) -> str:
        """Why a caller's certificate counts no more; empty if it does."""
        permit = caller.permit
        if permit is None:
            return ""
        if permit.serial in self._access.revocations:
            return f"its certificate ({permit.name}) was revoked"
        if now() > permit.end:
            return f"its certificate ({permit.name}) expired at {in_words(permit.end)}; renew it"
        return ""

    def _answers(
        self, kind: str, handler: Any, requests: Iterator[Any], context: Any
    ) -> Iterator[Any]:
        """Lets a call in, as long as it is answered; ends it at once if it is one too many."""
        caller = self.caller(context)
        if reason := self.why_outdated(caller):
            self.refuse(caller, context, reason)
        if refusal := self._enter(caller, kind, context):
            self.refuse(caller, context, refusal, code=grpc.StatusCode.RESOURCE_EXHAUSTED)
        try:
            if handler is None:
                reason = "it asks for what is not here"
                self.refuse(caller, context, reason, code=grpc.StatusCode.UNIMPLEMENTED)
            if self._front is not None:
                self._front.let(context.peer())
            first = self._first(caller, requests, context)
            if handler.request_streaming:
                yield from handler.stream_stream(chain((first,), requests), context)
            elif handler.response_streaming:
                yield from handler.unary_stream(first, context)
            else:
                yield handler.unary_unary(first, context)
        finally:
            with self._lock:
                own = self._open[caller.identity]
                del own[context]
                if not own:
                    del self._open[caller.identity]

    def _first(self, caller: Caller, requests: Iterator[Any], context: Any) -> Any:
        """What a call begins with, which must come in time."""
        in_time = threading.Timer(_FIRST_SECONDS, context.cancel)
        in_time.start()
        try:
            return next(requests)
        except (StopIteration, grpc.RpcError):
            reason = "it asks nothing, or nothing that can be read"
            self.refuse(caller, context, reason, code=grpc.StatusCode.INVALID_ARGUMENT)
        finally:
            in_time.cancel()

    def _enter(self, caller: Caller, kind: str, context: Any) -> str:
        """Counts a call; why it is one too many, or empty."""
        most = AT_ONCE + OF_A_RANK * caller.num_ranks
        victim = None
        with self._lock:
            a_second = _JOINS_A_SECOND if kind == "TakePart" else A_SECOND
            bucket = self._bucket(
                caller, kind, IN_A_ROW * (1 + caller.num_ranks), a_second=a_second
            )
            if not bucket.take():
                return f"its {kind} calls come too often"
            own = self._open.setdefault(caller.identity, {})
            if sum(call.kind == kind for call in own.values()) >= most:
                return f"it has {most} {kind} calls already, as many as it may have at a time"
            own[context] = _Call(caller, kind, context, bucket=bucket)
            if sum(map(len, self._open.values())) > MOST_CALLS:
                victim = [*max(self._open.values(), key=len).values()][-1]
        if victim is not None:
            reason = f"{MOST_CALLS} calls at a time are all, and it has most: its newest ends"
            self._tell(victim.caller.as_visitor("call"), f"{victim.caller.shown}: {reason}")
            victim.context.cancel()
        return ""

    def _bucket(self, caller: Caller, kind: str, in_a_row: float, a_second: float) -> Bucket:
        """How often a caller may do something; the lock is held."""
        bucket = self._buckets.pop((caller.identity, kind), None) or Bucket(in_a_row, a_second)
        self._buckets[caller.identity, kind] = bucket
        if len(self._buckets) > MOST_REMEMBERED:
            self._buckets.popitem(last=False)
        return bucket


def _read_small(read: Callable[[bytes], Any], data: bytes) -> Any:
    """A question, of which none is long."""
    if len(data) > _SMALL_BYTES:
        raise ValueError(f"a question of {len(data)} bytes")
    return read(data)
