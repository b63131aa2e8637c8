"""Tries the places where a server may listen, and words the error if none lets this process in.

This module imports gRPC: see `mdgan.transport.streams`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import grpc

from mdgan.errors import BadInput, one_line
from mdgan.spelling import flag
from mdgan.storage.private_folders import NotPrivate, check_socket
from mdgan.transport.frames import WireError
from mdgan.transport.streams import ASK, reason_of
from mdgan.transport.until import Until

RETRY_SECONDS = 0.1
_LATER_SECONDS = 1.0
_ONE_TRY_SECONDS = 10.0
_FAIR_TRY_SECONDS = 1.0
_TLS_SECONDS = 2.0
_DOUBTFUL_TIMES = 3

_ADDRESS, _PORT = f"{flag('master_addr')}", f"{flag('master_port')}"  # in sentences

Found = TypeVar("Found")


class TurnedAway(Exception):
    """A server answers at a place and refuses this process; the text is the reason.

    `find_server` believes it only after more than `doubtful_times` such answers in a row.
    """

    def __init__(self, text: str, doubtful_times: int = 0) -> None:
        super().__init__(text)
        self.doubtful_times = doubtful_times


class NoServerYet(Exception):
    """No mdgan server answers at a place yet; `listens` tells whether any program listens there."""

    def __init__(
        self, text: str, *, listens: bool = True, pause_seconds: float = RETRY_SECONDS
    ) -> None:
        super().__init__(text)
        self.listens = listens
        self.pause_seconds = pause_seconds


class Outdated(Exception):
    """The server that answers is of an earlier generation; a later one has replaced it."""


def find_server(
    places: Sequence[str],
    attempt: Callable[[str, Until], Found],
    until: Until,
    timeout_seconds: float,
    *,
    has_identity: bool,
) -> Found:
    """Tries the places in order, again and again, until one lets this process in.

    Raises:
        BadInput: every server that answered refused this process, or none answered in time.
    """
    problem = (
        f"no server answers at {' or '.join(map(shown, places))} after {timeout_seconds:g} s; "
        f"start rank 0 there, or check {_ADDRESS}, {_PORT} and the firewall"
    )
    is_known = False
    doubts: Counter[str] = Counter()
    while True:
        refusals: list[str] = []
        pause_seconds = RETRY_SECONDS
        for place in places:
            # A try that is cut short by the end of the search says nothing new.
            is_fair = not doubts or until.left() > _FAIR_TRY_SECONDS
            try:
                return _attempted(place, attempt, until, has_identity)
            except TurnedAway as error:
                doubts[place] += 1
                if doubts[place] > error.doubtful_times:
                    refusals.append(str(error))
            except Outdated as error:
                problem, is_known = str(error), True
            except NoServerYet as error:
                doubts[place] = 0
                pause_seconds = max(pause_seconds, error.pause_seconds)
                if error.listens and is_fair and not is_known:
                    problem = str(error)
        if refusals:
            raise BadInput(refusals[0])
        if until.left() <= 0:
            raise BadInput(problem)
        until.pause(pause_seconds)


def check_generation(welcome: Mapping[str, Any], known: Any, place: str) -> None:
    """Raises `Outdated` if another server has replaced the one that sent this welcome."""
    generation = welcome.get("generation", 0)
    if not isinstance(generation, int) or generation < known:
        raise Outdated(
            f"the server at {shown(place)} is an older one, of generation {generation}; this host "
            f"has seen generation {known}"
        )


def check_ours(place: str) -> None:
    """Raises `NoServerYet` if a socket is not this user's: another user may have taken its name."""
    if not place.startswith("unix:"):
        return
    try:
        check_socket(place)
    except (OSError, NotPrivate) as error:
        raise NoServerYet(one_line(error), listens=isinstance(error, NotPrivate)) from error


def shown(place: str) -> str:
    """A place for messages: without gRPC's prefix `unix:`."""
    return place.removeprefix("unix:")


def _attempted(
    place: str, attempt: Callable[[str, Until], Found], until: Until, has_identity: bool
) -> Found:
    check_ours(place)
    try:
        return attempt(place, until.shorter(_ONE_TRY_SECONDS))
    except grpc.RpcError as error:
        raise why_not(error, place, has_identity) from error
    except (TimeoutError, EOFError, WireError) as error:
        raise NoServerYet(_words(_SLOW, place, one_line(error))) from error


def why_not(error: grpc.RpcError, place: str, has_identity: bool) -> TurnedAway | NoServerYet:
    """Explains why a call to a place has failed, in one line with the way out."""
    code, details = error.code(), one_line(error.details() or "")
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return TurnedAway(f"the server refused this host: {details}")
    if code in _LATER:
        is_postponed = code is grpc.StatusCode.RESOURCE_EXHAUSTED  # see `Later`, and quotas
        pause = _LATER_SECONDS if is_postponed else RETRY_SECONDS
        return NoServerYet(_words(_SLOW, place, reason_of(error)), pause_seconds=pause)
    if code is not grpc.StatusCode.UNAVAILABLE:
        return TurnedAway(_words(_NO_SERVER, place))
    for signs, text in _FOR_GOOD.items():
        if any(sign in details for sign in signs):
            return TurnedAway(_words(text, place))
    if any(sign in details for sign in _NOBODY):
        return NoServerYet(details, listens=False)
    if any(sign in details for sign in _UNKNOWN):
        return NoServerYet(_words(_UNKNOWN_HOST, place))
    is_local = place.startswith("unix:")
    if not (is_local or has_identity) and _speaks_tls(place):
        return TurnedAway(_words(_WANTS_TLS, place))
    is_closed = any(sign in details for sign in _CLOSED) and "andshake" not in details
    if has_identity and is_closed and not is_local:
        # With TLS 1.3 a client does not learn that the server refused its certificate: it sees a
        # closed connection. A server that dies at this moment looks the same, but only once.
        return TurnedAway(_words(_WANTS_OTHERS, place), doubtful_times=_DOUBTFUL_TIMES)
    return NoServerYet(_words(_CLOSES, place))


def _speaks_tls(place: str) -> bool:
    """Whether the program at a place, which closed a connection without TLS, speaks TLS."""
    private = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(place, grpc.ssl_channel_credentials(), private) as channel:
        ask: Any = channel.unary_unary(ASK)
        try:
            ask(b"", timeout=_TLS_SECONDS)
        except grpc.RpcError as error:  # this channel trusts none of mdgan's authorities
            return "verif" in (error.details() or "").lower()
    return True


def _words(text: str, place: str, reason: str = "") -> str:
    where = shown(place)
    return text.format(place=where, name=where.rpartition(":")[0], reason=reason)


_SLOW = "the server at {place} did not admit this host ({reason}); is it still running?"
_NO_SERVER = (
    "whatever listens at {place} is no mdgan server of this version; "
    f"check {_ADDRESS} and {_PORT}"
)
_UNKNOWN_HOST = f"{flag('master_addr', '{name}')}: unknown host; give its address"
_CLOSES = (
    "whatever listens at {place} closes the connection; start rank 0 there, or check "
    f"{_ADDRESS} and {_PORT}"
)
_WANTS_TLS = (
    f"whatever listens at {{place}} wants certificates; give {flag('credentials', 'FILE')}, the "
    "same on every machine or one of the same authority"
)
_WANTS_OTHERS = (
    "the server at {place} does not accept this machine's certificate: to the server it is of "
    f"another authority, or its time is over or has not begun; give {flag('credentials')} of the "
    "same `mdgan credentials` everywhere, and check the clocks"
)
_CANNOT_TRUST = "the server at {place} cannot be trusted: its certificate "
_LATER = (
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)
# Parts of gRPC's messages, and below what they mean.
_CLOSED = ("Socket closed", "reset by peer", "Broken pipe")
_NOBODY = ("Connection refused", "No such file", "No route", "unreachable", "timed out")
_UNKNOWN = ("DNS", "Domain name", "resolving", "resolution")
_FOR_GOOD = {
    ("HTTP/2", "http1"): _NO_SERVER,
    ("has expired",): _CANNOT_TRUST
    + "has expired by this machine's clock; check the clock, or make new credentials",
    ("not yet valid",): _CANNOT_TRUST
    + "is not valid yet by this machine's clock; the clocks differ, set them, or wait",
    ("CERTIFICATE_VERIFY_FAILED", "certificate verify failed"): _CANNOT_TRUST
    + f"is of another authority; give {flag('credentials')} of the same `mdgan credentials` "
    "everywhere",
    ("Hostname Verification", "Peer name"): _CANNOT_TRUST
    + f"is not for a server of this name; check {_ADDRESS}, or issue it with --role server",
    ("WRONG_VERSION", "wrong version"): "whatever listens at {place} does not speak TLS; give "
    f"{flag('credentials')} on every machine or on none, and check {_ADDRESS} and {_PORT}",
}
