"""Finds the server among the places where it may be, and says in words why it does not answer.

It imports gRPC: see `mdgan.transport.streams`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import grpc

from mdgan.errors import BadInput
from mdgan.transport.frames import WireError, one_line
from mdgan.transport.until import Until

RETRY_SECONDS = 0.1
_ONE_TRY_SECONDS = 10.0
_CHECK = "check --master-addr and --master-port"

Found = TypeVar("Found")


class TurnedAway(Exception):
    """A server answers at a place and does not let this process in; the text says why."""


class NoServerYet(Exception):
    """A place does not answer as an mdgan server; it may do so later.

    Attributes:
        listens: whether any program listens there.
    """

    def __init__(self, text: str, *, listens: bool = True) -> None:
        super().__init__(text)
        self.listens = listens


class Outdated(Exception):
    """A server of an earlier generation answers; a later one must be somewhere."""


def find_server(
    places: Sequence[str],
    attempt: Callable[[str, Until], Found],
    until: Until,
    timeout_seconds: float,
) -> Found:
    """Tries the places in order, again and again, until one lets this process in.

    Args:
        places: where the server may be, most likely first.
        attempt: tries one, for so long.
        until: how long at most.
        timeout_seconds: the same, to be told.

    Raises:
        BadInput: every server that answered refused this process, or none answered in time.
        Interrupted: asked to stop.
    """
    problem = (
        f"no server answers at {' or '.join(map(shown, places))} after {timeout_seconds:g} s; "
        "start rank 0 there, or check --master-addr, --master-port and the firewall"
    )
    is_known = False
    while True:
        refusals: list[str] = []
        for place in places:
            try:
                return _attempted(place, attempt, until)
            except TurnedAway as error:
                refusals.append(str(error))
            except Outdated as error:
                problem, is_known = str(error), True
            except NoServerYet as error:
                if error.listens and not is_known:
                    problem = str(error)
        if refusals:
            raise BadInput(refusals[0])
        if until.left() <= 0:
            raise BadInput(problem)
        until.pause(RETRY_SECONDS)


def check_generation(welcome: Mapping[str, Any], known: Any, place: str) -> None:
    """Checks that a server is not one that another has replaced.

    Raises:
        Outdated: it is.
    """
    theirs = welcome.get("generation", 0)
    if not isinstance(theirs, int) or theirs < known:
        raise Outdated(
            f"the server at {shown(place)} is an older one, of generation {theirs}; this host has "
            f"seen generation {known}"
        )


def shown(place: str) -> str:
    """A place as users know it."""
    return place.removeprefix("unix:")


def _attempted(place: str, attempt: Callable[[str, Until], Found], until: Until) -> Found:
    try:
        return attempt(place, until.shorter(_ONE_TRY_SECONDS))
    except grpc.RpcError as error:
        raise why_not(error, place) from error
    except (TimeoutError, EOFError, WireError) as error:
        raise NoServerYet(
            f"the server at {shown(place)} did not admit this host ({one_line(error)}); is it "
            "still running?"
        ) from error


def why_not(error: grpc.RpcError, place: str) -> TurnedAway | NoServerYet:
    """What it means that a call to a place has failed, in one line with the way out."""
    code, details = error.code(), one_line(error.details() or "")
    where = f"whatever listens at {shown(place)}"
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return TurnedAway(f"the server refused this host: {details}")
    if code is not grpc.StatusCode.UNAVAILABLE:
        return TurnedAway(f"{where} is no mdgan server; {_CHECK}")
    for signs, told in _PROBLEMS:
        if any(sign in details for sign in signs):
            text = told.format(where=where, place=shown(place), name=place.rpartition(":")[0])
            return NoServerYet(text)
    if any(sign in details for sign in _NOBODY):
        return NoServerYet(details, listens=False)
    return NoServerYet(
        f"{where} closes the connection; it may want --credentials, or others than these, or be "
        f"no mdgan server; {_CHECK}"
    )


_NOBODY = ("Connection refused", "No such file", "No route", "unreachable", "timed out")
_PROBLEMS = (
    (
        ("DNS", "Domain name", "resolution"),
        "--master-addr {name}: unknown host; give a name or an address",
    ),
    (
        ("Peer name", "Hostname", "peer name"),
        "the server at {place} cannot be trusted: its certificate is not for a server of this "
        "name; check --master-addr, or issue it with --role server",
    ),
    (
        ("certificate verify failed", "CERTIFICATE_VERIFY_FAILED"),
        "the server at {place} cannot be trusted: its certificate is of another authority, or its "
        "time is over; give --credentials of the same `mdgan credentials` everywhere, and check "
        "this machine's clock",
    ),
    (
        ("handshake", "Handshake", "WRONG_VERSION", "wrong version"),
        "{where} does not speak TLS as this machine does; give --credentials on every machine, or "
        "on none, and check --master-addr and --master-port",
    ),
)
"""What gRPC's core says, and what it means."""
