"""Questions to a server from processes that do not take part yet: joining, and standing by."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import grpc

from mdgan.credentials.identity import Identity
from mdgan.credentials.permit import SERVER_NAME
from mdgan.timeouts import Timeouts
from mdgan.transport.frames import WireError
from mdgan.transport.links_pb2 import Hello, Welcome
from mdgan.transport.streams import ASK, WATCH, open_channel
from mdgan.transport.until import Inbox, Until


def ask(
    place: str, identity: Identity | None, timeouts: Timeouts, until: Until
) -> Mapping[str, Any]:
    """Asks for the settings of a run, to take part in it later.

    Args:
        place: where the server may be: `unix:` and a path, or address and port.
        identity: what this process shows and whom it trusts; None without TLS.

    Raises:
        grpc.RpcError, WireError, TimeoutError: it does not.
        Interrupted: asked to stop.
    """
    channel = open_channel(place, identity, SERVER_NAME, timeouts)
    asking = channel.unary_unary(ASK, Hello.SerializeToString, Welcome.FromString)
    told: Inbox[Mapping[str, Any] | Exception] = Inbox()
    threading.Thread(target=_tell_all, args=(lambda: [asking(Hello())], told), daemon=True).start()
    try:
        return until.take(told)
    finally:
        channel.close()


def watch(
    place: str,
    identity: Identity | None,
    timeouts: Timeouts,
    until: Until,
    on_welcome: Callable[[Mapping[str, Any]], None],
) -> Literal["ended", "lost"]:
    """Watches a server until it is gone, after its first answer until then; see `ask`.

    Returns:
        `ended` if it said goodbye, `lost` if its connection broke or it fell silent.
    """
    channel = open_channel(place, identity, SERVER_NAME, timeouts)
    watching = channel.unary_stream(WATCH, Hello.SerializeToString, Welcome.FromString)
    told: Inbox[Mapping[str, Any] | Exception] = Inbox()
    threading.Thread(target=_tell_all, args=(lambda: watching(Hello()), told), daemon=True).start()
    try:
        on_welcome(until.take(told))
        try:
            while True:
                until.endless().take(told)
        except EOFError:
            return "ended"
        except grpc.RpcError:
            return "lost"
    finally:
        channel.close()


def _tell_all(
    answers: Callable[[], Iterator[Welcome] | list[Welcome]],
    told: Inbox[Mapping[str, Any] | Exception],
) -> None:
    """Passes on what comes, and at last why nothing more does, to a thread that looks up often."""
    try:
        for answer in answers():
            told.put(dict(json.loads(answer.fields)))
        told.put(EOFError("it is about to end"))
    except (ValueError, TypeError, RecursionError):
        told.put(WireError("its answer is damaged"))
    except grpc.RpcError as error:
        told.put(error)
