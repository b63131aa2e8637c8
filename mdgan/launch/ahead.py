"""Questions to a server before this process forks its ranks: asked in a fork, as gRPC needs it."""

import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, Literal

from mdgan.credentials.identity import Identity
from mdgan.errors import BadInput, Interrupted
from mdgan.timeouts import Timeouts
from mdgan.transport.until import Until

_LOOK_SECONDS = 0.1

Tell = Callable[[Any], None]


def ask_server(
    places: Sequence[str],
    identity: Identity | None,
    timeouts: Timeouts,
    interrupted: threading.Event,
) -> Mapping[str, Any]:
    """Asks for the settings of a run, to take part in it later.

    Args:
        identity: what this machine shows and whom it trusts; None without TLS.
        timeouts: the time limits; `connect` is how long to look for the server.

    Returns:
        What the server answers.

    Raises:
        BadInput: the server refused, or there is none.
        Interrupted: asked to stop.
    """

    def work(tell: Tell) -> None:
        from mdgan.launch.find import find_server
        from mdgan.transport.visit import ask

        def attempt(place: str, until: Until) -> Mapping[str, Any]:
            return ask(place, identity, timeouts, until)

        limit, has_identity = timeouts.connect, identity is not None
        tell(find_server(places, attempt, Until(limit), limit, has_identity=has_identity))

    told: list[Mapping[str, Any]] = []
    _in_fork(work, told.append, interrupted)
    return told[0]


def watch_server(
    places: Sequence[str],
    identity: Identity | None,
    timeouts: Timeouts,
    interrupted: threading.Event,
    on_welcome: Callable[[Mapping[str, Any]], None],
) -> Literal["ended", "lost"]:
    """Watches a server until it is gone.

    Args:
        on_welcome: called with what the server answers, once it does.

    Returns:
        `ended` if it said goodbye, `lost` if its connection broke or it fell silent.
    """
    ends: list[Literal["ended", "lost"]] = []

    def work(tell: Tell) -> None:
        from mdgan.launch.find import find_server
        from mdgan.transport.visit import watch

        def attempt(place: str, until: Until) -> str:
            return watch(place, identity, timeouts, until, tell)

        limit, has_identity = timeouts.connect, identity is not None
        tell(find_server(places, attempt, Until(limit), limit, has_identity=has_identity))

    def hear(told: Any) -> None:
        if isinstance(told, str):
            ends.append("ended" if told == "ended" else "lost")
        else:
            on_welcome(told)

    _in_fork(work, hear, interrupted)
    return ends[0]


def _in_fork(
    work: Callable[[Tell], None], hear: Callable[[Any], None], interrupted: threading.Event
) -> None:
    """Does something in a fork, and hears what it tells as JSON; the fork does not outlive this."""
    forking = multiprocessing.get_context("fork")
    ours, theirs = forking.Pipe()
    child = forking.Process(target=_be_fork, args=(work, theirs, ours), daemon=True)
    child.start()
    theirs.close()
    try:
        while True:
            if interrupted.is_set():
                raise Interrupted
            if not ours.poll(_LOOK_SECONDS):
                continue
            kind, told = json.loads(ours.recv_bytes())
            if kind == "end":
                return
            if kind == "refused":
                raise BadInput(told)
            hear(told)
    except EOFError as error:
        raise BadInput("the process that asks the server was killed; start again") from error
    finally:
        child.kill()
        child.join()
        ours.close()


def _be_fork(work: Callable[[Tell], None], end: Connection, parents: Connection) -> None:
    parents.close()
    threading.Thread(target=_end_with, args=(end,), daemon=True).start()
    try:
        work(lambda told: end.send_bytes(json.dumps(["told", told]).encode()))
        last: list[Any] = ["end", None]
    except BadInput as error:
        last = ["refused", str(error)]
    end.send_bytes(json.dumps(last).encode())


def _end_with(end: Connection) -> None:
    """Ends this fork when the process that made it is gone."""
    try:
        end.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
