"""Questions to a server from processes that do not take part yet: joining, and standing by."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    """Asks for the settings of a run, to take part in it later.

    Args:
        place: where the server may be: `unix:` and a path, or address and port.
        identity: what this process shows and whom it trusts; None without TLS.
        gives_back: ranks that this process cannot take, which it may have been promised.
        why: it cannot; empty if the server knows.

    Raises:
        grpc.RpcError, WireError, TimeoutError: it does not.
        Interrupted: asked to stop.
    """
    ranks, reason = ",".join(map(str, gives_back)), why.encode()
    metadata = ((GIVES_BACK, ranks), (WHY, reason)) if gives_back else ()
    with _told(place, identity, timeouts, method=ASK, metadata=metadata) as told:
        return until.take(told)


def watch(
    place: str,
    identity: OwnIdentity | None,
    timeouts: Timeouts,
    until: Until,
    on_welcome: Callable[[Mapping[str, Any]], None],
) -> Literal["ended", "lost"]:
    """Watches a server until it is gone, after its first answer until then; see `ask`.

    Returns:
        `ended` if it said goodbye, `lost` if its connection broke or it fell silent.
    """
    with _told(place, identity, timeouts, method=WATCH) as told:
        on_welcome(until.take(told))
        try:
            while True:
                until.endless().take(told)
        except EOFError:
            return "ended"
        except grpc.RpcError:
            return "lost"


@contextmanager
def _told(
    place: str,
    identity: OwnIdentity | None,
    timeouts: Timeouts,
    method: str,
    metadata: tuple[tuple[str, str | bytes], ...] = (),
) -> Iterator[Inbox[Mapping[str, Any] | Exception]]:
    """What a server answers, for a thread that looks up often."""
    channel = open_channel(place, identity, SERVER_NAME, timeouts=timeouts)
    ask: Any = channel.unary_stream(method, Nothing.SerializeToString, Welcome.FromString)
    told: Inbox[Mapping[str, Any] | Exception] = Inbox()
    answers = ask(Nothing(), metadata=metadata)
    threading.Thread(target=_tell_all, args=(answers, told), daemon=True).start()
    try:
        yield told
    finally:
        channel.close()


def _tell_all(answers: Iterator[Welcome], told: Inbox[Mapping[str, Any] | Exception]) -> None:
    """Passes on what comes, and at last why nothing more does."""
    try:
        for answer in answers:
            told.put(dict(json.loads(answer.fields)))
        told.put(EOFError("it is about to end"))
    except (ValueError, TypeError, RecursionError):
        told.put(WireError("its answer is damaged"))
    except grpc.RpcError as error:
        told.put(error)
