"""Quotas for calls to a gRPC server, counted for each caller, and for the messages of one link.

A caller is identified by its certificate, or by its address if it shows no certificate, or one that
all machines share. Its quotas grow with the ranks that its certificate, or the settings, allow it.
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

MOST_CALLS = 2048  # calls of all callers at a time; beyond, the caller with most loses its newest
AT_ONCE, OF_A_RANK = 8, 2
"""Calls of one kind that a caller may have at a time, and how many more for each of its ranks."""
A_SECOND, IN_A_ROW = 20.0, 20
"""Calls of one kind a second on average, and in a row; in a row, as many again for each rank."""
REFUSALS_A_SECOND, REFUSALS_IN_A_ROW = 1.0, 64
"""Refused calls, of whatever kind; beyond, the server also ends the caller's connection."""
_JOINS_A_SECOND = 0.5  # lower than for other calls: each join writes lines into the run's records
_SMALL_BYTES = 1 << 12
_FIRST_SECONDS = 5.0
MOST_IN_A_ROW = 600
"""How many messages may arrive at once if their kind has a rate.

That is one a second for ten minutes, during which the network or this process may have hung.
"""
MOST_REMEMBERED = 4096  # most buckets; beyond, the one that was used longest ago is forgotten


class Bucket:
    """A token bucket: allows `in_a_row` uses at once, and `a_second` on average."""

    def __init__(
        self, in_a_row: float, a_second: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._a_second, self._clock = in_a_row, a_second, clock
        self._tokens, self._refilled = in_a_row, clock()

    def take(self) -> bool:
        """Takes a token; False if there is none."""
        now = self._clock()
        gained = (now - self._refilled) * self._a_second
        self._tokens, self._refilled = min(self._most, self._tokens + gained), now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def give_back(self) -> None:
        """Returns a token, since the use does not count."""
        self._tokens += 1


class Allowance:
    """Counts the messages of one host by kind, against the limits of each kind.

    Args:
        asked: how many messages the server has sent to the host; see `Guest.asked`.
    """

    def __init__(
        self,
        accepts: Mapping[str, Most],
        asked: Mapping[str, int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._accepts, self._asked = accepts, asked
        rates = {kind: most.a_second for kind, most in accepts.items() if most.a_second < inf}
        self._buckets = {kind: Bucket(MOST_IN_A_ROW, rate, clock) for kind, rate in rates.items()}
        self._heard: Counter[str] = Counter()

    def allows(self, kind: str) -> bool:
        """Counts a message; False if too many of its kind have come."""
        if kind in self._buckets and not self._buckets[kind].take():
            return False
        most = self._accepts[kind]
        self._heard[kind] += 1
        return self._heard[kind] <= most.unasked + most.each * self._asked[most.answers]


class Access(NamedTuple):
    """Which callers a process admits, and their limits; the same for all of its ports."""

    # The certificate that the process shows and the authorities that it trusts; None without TLS.
    identity: OwnIdentity | None
    revocations: Revocations
    most_ranks: int  # how many ranks a host may have if its certificate names none
    # From the number of a host's ranks to the largest hello of that host.
    hello_bytes: Callable[[int], int]


@dataclass(frozen=True)
class Caller:
    """A process that calls a gRPC server, as far as the server knows it."""

    identity: str  # the fingerprint or the address, by which its quotas are counted
    shown: str  # the caller in log lines, with its address
    num_ranks: int
    permit: Permit | None = None  # what its certificate allows; None without a certificate
    certificate: str = ""  # the fingerprint of its certificate; empty if machines share it
    address: str = ""  # the IP address that it calls from; empty on this machine

    def as_visitor(self, purpose: str) -> Visitor:
        """This caller as the server's log names it."""
        return Visitor(purpose, self.certificate, self.address)


@dataclass(eq=False)
class _Call:
    caller: Caller
    kind: str
    context: Any
    bucket: Bucket = field(repr=False)


class Guard(grpc.ServerInterceptor):
    """Checks every call to a gRPC server: whether its certificate is revoked, and its quotas.

    Args:
        tell: called for each refused call, with the caller and the reason in one line.
    """

    def __init__(self, access: Access, tell: Callable[[Visitor, str], None]) -> None:
        # A caller that shows this process's certificate has the file that all machines share.
        permit = None if access.identity is None else permit_of(access.identity().certificate)
        self._shared = None if permit is None else permit.fingerprint
        self._access = access
        self._tell = tell
        self._front: Front | None = None
        self._lock = threading.Lock()  # guards what follows
        self._open: dict[str, dict[Any, _Call]] = {}
        self._buckets: OrderedDict[tuple[str, str], Bucket] = OrderedDict()

    def listen(self, server: grpc.Server, place: str) -> str:
        """Makes the server listen at a place, behind a front; see `streams.listen`."""
        place, front = listen(server, place, self._access.identity)
        self._front = front or self._front
        return place

    def close(self) -> None:
        """Closes the front, so that no caller can connect any more."""
        if self._front is not None:
            self._front.close()

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Wraps the handler of a call in `_answers`.

        The wrapped handler is always one of streams: gRPC calls others only after a request has
        come, and a stranger may never send one.
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
        """Identifies the caller; ends the call if the caller's certificate cannot be read."""
        ip_address = str(address_of(context.peer()) or "")
        address = ip_address or "this machine"
        certificates = context.auth_context().get("x509_pem_cert")
        if not certificates:
            return Caller(address, address, self._access.most_ranks, address=ip_address)
        try:
            permit = permit_of(bytes(certificates[0]))
        except ValueError as error:
            self.refuse(Caller(address, address, 0, address=ip_address), context, str(error))
        is_own = permit.fingerprint != self._shared
        return Caller(
            permit.fingerprint if is_own else address,
            f"certificate {permit.name} ({permit.fingerprint[:12]}) at {address}",
            self._access.most_ranks if permit.ranks is None else len(permit.ranks),
            permit=permit,
            certificate=permit.fingerprint if is_own else "",
            address=ip_address,
        )

    def refuse(
        self,
        caller: Caller,
        context: Any,
        reason: str,
        code: grpc.StatusCode = grpc.StatusCode.PERMISSION_DENIED,
    ) -> NoReturn:
        """Ends a call and reports it; after too many refusals also ends the caller's connection."""
        with self._lock:
            bucket = self._bucket(caller, "refused", REFUSALS_IN_A_ROW, a_second=REFUSALS_A_SECOND)
            is_abuse = not bucket.take()
        if self._front is not None and (is_abuse or self.why_outdated(caller)):
            self._front.end(context.peer())
        self._tell(caller.as_visitor("call"), f"{caller.shown}: {reason}")
        context.abort(code, reason)
        raise AssertionError("gRPC has not ended the call")

    def does_not_count(self, context: Any) -> None:
        """Takes a call off its caller's quota: the caller has shown a secret, such as a ticket."""
        with self._lock:
            for calls in self._open.values():
                if context in calls:
                    calls[context].bucket.give_back()

    def end_outdated(self) -> None:
        """Ends the calls of certificates that have expired or were revoked since the call began."""
        with self._lock:
            calls = [call for by_context in self._open.values() for call in by_context.values()]
        for call in calls:
            if self.why_outdated(call.caller):
                call.context.cancel()
                if self._front is not None:
                    self._front.end(call.context.peer())

    def why_outdated(self, caller: Caller) -> str:
        """Why a caller's certificate is no longer valid; empty if it is valid."""
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
        """Answers a call by its handler and counts it until then; ends it if it breaks a quota."""
        caller = self.caller(context)
        if reason := self.why_outdated(caller):
            self.refuse(caller, context, reason)
        if refusal := self._enter(caller, kind, context):
            self.refuse(caller, context, refusal, code=grpc.StatusCode.RESOURCE_EXHAUSTED)
        try:
            if handler is None:
                reason = "it calls a method that this server does not have"
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
                calls = self._open[caller.identity]
                del calls[context]
                if not calls:
                    del self._open[caller.identity]

    def _first(self, caller: Caller, requests: Iterator[Any], context: Any) -> Any:
        """Waits for the first request of a call; ends the call if none comes in time."""
        in_time = threading.Timer(_FIRST_SECONDS, context.cancel)
        in_time.start()
        try:
            return next(requests)
        except (StopIteration, grpc.RpcError):
            reason = "its request does not come in time, or cannot be read"
            self.refuse(caller, context, reason, code=grpc.StatusCode.INVALID_ARGUMENT)
        finally:
            in_time.cancel()

    def _enter(self, caller: Caller, kind: str, context: Any) -> str:
        """Counts a call; returns why the caller may not make it, or an empty text."""
        most = AT_ONCE + OF_A_RANK * caller.num_ranks
        victim = None
        with self._lock:
            a_second = _JOINS_A_SECOND if kind == "TakePart" else A_SECOND
            bucket = self._bucket(
                caller, kind, IN_A_ROW * (1 + caller.num_ranks), a_second=a_second
            )
            if not bucket.take():
                return f"its {kind} calls come too often"
            calls = self._open.setdefault(caller.identity, {})
            if sum(call.kind == kind for call in calls.values()) >= most:
                return f"it has {most} {kind} calls already, as many as it may have at a time"
            calls[context] = _Call(caller, kind, context, bucket=bucket)
            if sum(map(len, self._open.values())) > MOST_CALLS:
                victim = [*max(self._open.values(), key=len).values()][-1]
        if victim is not None:
            reason = f"{MOST_CALLS} calls at a time are all, and it has most: its newest ends"
            self._tell(victim.caller.as_visitor("call"), f"{victim.caller.shown}: {reason}")
            victim.context.cancel()
        return ""

    def _bucket(self, caller: Caller, kind: str, in_a_row: float, a_second: float) -> Bucket:
        """The bucket of a caller's calls of one kind; to be called with the lock held."""
        bucket = self._buckets.pop((caller.identity, kind), None) or Bucket(in_a_row, a_second)
        self._buckets[caller.identity, kind] = bucket
        if len(self._buckets) > MOST_REMEMBERED:
            self._buckets.popitem(last=False)
        return bucket


def _read_small(read: Callable[[bytes], Any], data: bytes) -> Any:
    """Parses the request of a call that is no stream; ValueError if it is too long."""
    if len(data) > _SMALL_BYTES:
        raise ValueError(f"a question of {len(data)} bytes")
    return read(data)
