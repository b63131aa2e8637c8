"""What a server tells those who do not work for it: a newcomer who asks, and a standby."""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from mdgan.messages import Kind
from mdgan.timeouts import Timeouts
from mdgan.transport.dial import Address, find_server
from mdgan.transport.pulses import Pulses
from mdgan.transport.until import Until


def ask_server(
    addresses: Sequence[Address],
    token: bytes,
    hello: Mapping[str, Any],
    timeouts: Timeouts,
    interrupted: threading.Event | None = None,
) -> Mapping[str, Any]:
    """Asks for the settings of a run, to take part in it later.

    Args:
        addresses: where the server may be.
        token: the secret of those who may join.
        hello: what the server is told besides.
        timeouts: all time limits; `connect` is how long to look for the server.
        interrupted: set to give up.

    Returns:
        What the server answers.

    Raises:
        BadInput: the server refused, or there is none.
        Interrupted: asked to stop.
    """
    until = Until(timeouts.connect, interrupted)
    fields = {**hello, "purpose": "ask", "liveness": timeouts.liveness}
    entry = find_server(addresses, token, lambda _: fields, timeouts, until, timeouts.connect)
    entry.link.close()
    return entry.welcome


def watch_server(
    addresses: Sequence[Address],
    token: bytes,
    hello: Mapping[str, Any],
    timeouts: Timeouts,
    interrupted: threading.Event | None = None,
    on_welcome: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> Literal["ended", "lost"]:
    """Watches a server until it is gone.

    Args:
        addresses: where the server may be.
        token: the secret of those who may join.
        hello: what the server is told besides.
        timeouts: all time limits; `connect` is how long to look for the server.
        interrupted: set to give up.
        on_welcome: called with what the server answers, once it does.

    Returns:
        `ended` if it said goodbye, `lost` if its connection broke or it fell silent.

    Raises:
        BadInput: the server refused, or there is none.
        Interrupted: asked to stop.
    """
    until = Until(timeouts.connect, interrupted)
    fields = {**hello, "purpose": "watch", "liveness": timeouts.liveness}
    entry = find_server(addresses, token, lambda _: fields, timeouts, until, timeouts.connect)
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
