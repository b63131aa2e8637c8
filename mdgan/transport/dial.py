"""Finds the server among the addresses where it may be; joins, asks or watches it."""

import errno
import logging
import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mdgan import messages
from mdgan.errors import BadInput
from mdgan.messages import Kind
from mdgan.timeouts import Timeouts
from mdgan.transport.door import HANDSHAKE_SECONDS, one_line
from mdgan.transport.handshake import HandshakeFailed, NotMdgan, OtherVersion, WrongToken, as_client
from mdgan.transport.link import Link, Pulses
from mdgan.transport.until import Until

_log = logging.getLogger(__name__)

Address = tuple[str, int]

ANSWERS: Mapping[str, int] = {Kind.WELCOME: 1 << 24, Kind.REFUSED: 1 << 16}
"""What the server says to a hello, and the most bytes of it."""
RETRY_SECONDS = 0.1
_TELL_SECONDS = 10.0


class TurnedAway(Exception):
    """A server answers at an address and does not let this process in; the text says why."""


class NoServerYet(Exception):
    """An address does not answer as an mdgan server; it may do so later.

    Attributes:
        listens: whether any program listens there.
    """

    def __init__(self, text: str, *, listens: bool) -> None:
        super().__init__(text)
        self.listens = listens


class Outdated(Exception):
    """A server of an earlier generation answers; a later one must be somewhere."""


@dataclass(frozen=True)
class Entry:
    """A server let this process in.

    Attributes:
        link: to it; the caller closes it.
        welcome: what it said.
        address: where it is.
    """

    link: Link
    welcome: Mapping[str, Any]
    address: Address


def connect(address: Address, key: bytes, until: Until) -> socket.socket:
    """Connects and shakes hands.

    Raises:
        HandshakeFailed: the program there is not the expected one.
        OSError: no program answers in time.
        Interrupted: asked to stop.
    """
    connection = _connected(address, until)
    try:
        as_client(connection, key, until.shorter(HANDSHAKE_SECONDS))
    except BaseException:
        connection.close()
        raise
    return connection


def _connected(address: Address, until: Until) -> socket.socket:
    """Tries every address that a name stands for."""
    problem: OSError = OSError("no address")
    for family, kind, protocol, _, where in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        try:
            _reach(connection, where, until)
            return connection
        except OSError as error:
            problem = error
            connection.close()
        except BaseException:
            connection.close()
            raise
    raise problem


def _reach(connection: socket.socket, where: Any, until: Until) -> None:
    """Connects, waiting in slices so that an interruption is noticed."""
    connection.setblocking(False)
    result = connection.connect_ex(where)
    if result == errno.EINPROGRESS:
        poller = select.poll()
        poller.register(connection, select.POLLOUT)
        while not poller.poll(1000 * until.slice()):
            pass
        result = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if result:
        raise OSError(result, os.strerror(result))


def say_hello(
    address: Address,
    token: bytes,
    hello: Callable[[socket.socket], Mapping[str, Any]],
    timeouts: Timeouts,
    until: Until,
) -> Entry:
    """Asks one address to be let in.

    Args:
        address: where a server may be.
        token: the secret that both must know.
        hello: takes the connection; returns the fields of the hello.
        timeouts: the time limits.
        until: how long at most.

    Raises:
        TurnedAway, NoServerYet, Outdated: this process was not let in.
        Interrupted: asked to stop.
    """
    place = f"{address[0]}:{address[1]}"
    connection = _connect(address, token, until.shorter(HANDSHAKE_SECONDS), place)
    link = Link(connection, ANSWERS, timeouts.liveness)
    try:
        fields = dict(hello(connection))
        link.send(messages.hello(fields))
        answer, _ = link.receive(until.shorter(timeouts.link))
        if answer.kind == Kind.REFUSED:
            reason = one_line(answer.fields.get("reason", ""))
            raise TurnedAway(f"the server refused this host: {reason}")
        _check_generation(answer.fields, fields, place)
    except RuntimeError as error:
        link.close()
        raise NoServerYet(
            f"the server at {place} did not admit this host ({one_line(error)}); is it still "
            "running?",
            listens=True,
        ) from error
    except BaseException:
        link.close()
        raise
    return Entry(link, answer.fields, address)


def _connect(address: Address, token: bytes, until: Until, place: str) -> socket.socket:
    """Connects, and proves that both know the token; raises as `say_hello`."""
    try:
        return connect(address, token, until)
    except WrongToken as error:
        raise TurnedAway(
            f"the server at {place} and this machine do not share a secret ({error}); give "
            "--join-token FILE, with the same file everywhere"
        ) from error
    except OtherVersion as error:
        raise TurnedAway(f"the server at {place} cannot be understood: {error}") from error
    except HandshakeFailed as error:
        wrong = (
            f"whatever listens at {place} is no mdgan server, or hangs; check --master-addr and "
            "--master-port"
        )
        if isinstance(error, NotMdgan):
            raise TurnedAway(wrong) from error
        raise NoServerYet(wrong, listens=True) from error
    except socket.gaierror as error:
        raise NoServerYet(
            f"--master-addr {address[0]}: unknown host; give a name or an address", listens=True
        ) from error
    except OSError as error:
        raise NoServerYet(str(error), listens=False) from error


def _check_generation(welcome: Mapping[str, Any], hello: Mapping[str, Any], place: str) -> None:
    theirs, known = welcome.get("generation", 0), hello.get("generation", 0)
    if not isinstance(theirs, int) or theirs < known:
        raise Outdated(
            f"the server at {place} is an older one, of generation {theirs}; this host has seen "
            f"generation {known}"
        )


def find_server(
    addresses: Sequence[Address],
    token: bytes,
    hello: Callable[[socket.socket], Mapping[str, Any]],
    timeouts: Timeouts,
    until: Until,
    timeout_seconds: float,
) -> Entry:
    """Asks the addresses in order, again and again, until one lets this process in.

    Raises:
        BadInput: every server that answered refused this process, or none answered in time.
        Interrupted: asked to stop.
    """
    told = time.monotonic()
    places = " or ".join(f"{host}:{port}" for host, port in addresses)
    problem = (
        f"no server answers at {places} after {timeout_seconds:g} s; start rank 0 there, or check "
        "--master-addr, --master-port and the firewall"
    )
    has_answered = False
    while True:
        refusals: list[str] = []
        for address in addresses:
            try:
                return say_hello(address, token, hello, timeouts, until)
            except TurnedAway as error:
                refusals.append(str(error))
            except Outdated as error:
                problem, has_answered = str(error), True
            except NoServerYet as error:
                if error.listens and not has_answered:
                    problem = str(error)
        if refusals:
            raise BadInput(refusals[0])
        if until.left() <= 0:
            raise BadInput(problem)
        if time.monotonic() - told > _TELL_SECONDS:
            told = time.monotonic()
            _log.info("waiting for the server at %s", places)
        until.pause(RETRY_SECONDS)


def ask_server(
    addresses: Sequence[Address],
    token: bytes,
    timeouts: Timeouts,
    interrupted: threading.Event | None = None,
) -> Mapping[str, Any]:
    """Asks for the settings of a run, to take part in it later.

    Args:
        addresses: where the server may be.
        token: the secret that both must know.
        timeouts: the time limits; `connect` is how long to look for the server.
        interrupted: set to give up.

    Returns:
        What the server answers.

    Raises:
        BadInput: the server refused, or there is none.
        Interrupted: asked to stop.
    """
    entry = _visit("ask", addresses, token, timeouts, interrupted)
    entry.link.close()
    return entry.welcome


def watch_server(
    addresses: Sequence[Address],
    token: bytes,
    timeouts: Timeouts,
    interrupted: threading.Event | None = None,
    on_welcome: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> Literal["ended", "lost"]:
    """Watches a server until it is gone.

    Args:
        addresses: see `ask_server`, also for the errors.
        token: see `ask_server`.
        timeouts: see `ask_server`.
        interrupted: see `ask_server`.
        on_welcome: called with what the server answers, once it does.

    Returns:
        `ended` if it said goodbye, `lost` if its connection broke or it fell silent.
    """
    entry = _visit("watch", addresses, token, timeouts, interrupted)
    pulses = Pulses(timeouts.liveness)
    try:
        pulses.add(entry.link, entry.welcome.get("liveness"))
        entry.link.expect({})
        on_welcome(entry.welcome)
        while entry.link.receive(Until(math.inf, interrupted))[0].kind != Kind.BYE:
            pass
    except RuntimeError:
        return "lost"
    finally:
        pulses.stop()
        entry.link.close()
    return "ended"


def _visit(
    purpose: str,
    addresses: Sequence[Address],
    token: bytes,
    timeouts: Timeouts,
    interrupted: threading.Event | None,
) -> Entry:
    hello = {"purpose": purpose, "liveness": timeouts.liveness}
    until = Until(timeouts.connect, interrupted)
    return find_server(addresses, token, lambda _: hello, timeouts, until, timeouts.connect)
