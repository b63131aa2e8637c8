"""Asks a server for its run's settings, as a machine that joins, or watches it, as a standby."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Literal

import grpc

from mdgan.credentials.identity import OwnIdentity
from mdgan.credentials.permit import SERVER_NAME
from mdgan.timeouts import Timeouts
from mdgan.transport.frames import WireError
from mdgan.transport.links_pb2 import Nothing, Welcome
from mdgan.transport.streams import ASK, GIVES_BACK, WATCH, WHY, open_channel
from mdgan.transport.until import Inbox, Until


def ask(
    place: str,
    identity: OwnIdentity | None,
    timeouts: Timeouts,
    until: Until,
    gives_back: Sequence[int] = (),
    why: str = "",
) -> Mapping[str, Any]:
    """Asks a server for the settings of its run, to take part in it later.

    Args:
        place: where the server may be: `unix:` and a path, or address and port.
        identity: what this process shows and whom it trusts; None without TLS.
        gives_back: ranks that this process cannot take, which it may have been promised.
        why: the reason why it cannot; empty if the server knows.

    Raises:
        grpc.RpcError, WireError, TimeoutError: the server does not answer.
        Interrupted: `until` was interrupted.
    """
    ranks, reason = ",".join(map(str, gives_back)), why.encode()
    metadata = ((GIVES_BACK, ranks), (WHY, reason)) if gives_back else ()
    with _answers(place, identity, timeouts, method=ASK, metadata=metadata) as answers:
        return until.take(answers)


def watch(
    place: str,
    identity: OwnIdentity | None,
    timeouts: Timeouts,
    until: Until,
    on_welcome: Callable[[Mapping[str, Any]], None],
) -> Literal["ended", "lost"]:
    """Waits for a server's first answer, then until the server is gone; see `ask`.

    Returns:
        `ended` if the server said goodbye, `lost` if its connection broke or it fell silent.
    """
    with _answers(place, identity, timeouts, method=WATCH) as answers:
        on_welcome(until.take(answers))
        try:
            while True:
                until.endless().take(answers)
        except EOFError:
            return "ended"
        except grpc.RpcError:
            return "lost"


@contextmanager
def _answers(
    place: str,
    identity: OwnIdentity | None,
    timeouts: Timeouts,
    method: str,
    metadata: tuple[tuple[str, str | bytes], ...] = (),
) -> Iterator[Inbox[Mapping[str, Any] | Exception]]:
    """Calls a server; yields an inbox that another thread fills with the answers."""
    with closing(open_channel(place, identity, SERVER_NAME, timeouts=timeouts)) as channel:
        ask: Any = channel.unary_stream(method, Nothing.SerializeToString, Welcome.FromString)
        inbox: Inbox[Mapping[str, Any] | Exception] = Inbox()
        answers = ask(Nothing(), metadata=metadata)
        threading.Thread(target=_forward, args=(answers, inbox), daemon=True).start()
        yield inbox


def _forward(answers: Iterator[Welcome], inbox: Inbox[Mapping[str, Any] | Exception]) -> None:
    """Puts each answer into the inbox, and last the reason why no more come."""
    try:
        for answer in answers:
            inbox.put(dict(json.loads(answer.fields)))
        inbox.put(EOFError("it is about to end"))
    except (ValueError, TypeError, RecursionError):
        inbox.put(WireError("its answer is damaged"))
    except grpc.RpcError as error:
        inbox.put(error)
