"""The store that torchrun serves: rank 0 writes there where it listens, and hosts read it."""

import threading
from datetime import timedelta
from typing import Any

import torch.distributed as dist

# torch exports it without saying so.
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined] # see above

from mdgan.errors import BadInput
from mdgan.transport.until import Inbox, Until

Address = tuple[str, int]

_PLACE = "place"
_LOOK_SECONDS = 0.05
_MOST_BYTES = 300


def publish_place(master: Address, corner: str, place: str, until: Until) -> None:
    """Writes where rank 0 listens.

    Args:
        master: where torchrun's store is.
        corner: the beginning of our names in it.
        place: where rank 0 listens: address and port.
        until: how long at most.

    Raises:
        BadInput: the store does not answer.
        Interrupted: asked to stop.
    """
    try:
        _reach(master, corner, until).set(_PLACE, place)
    except (dist.DistError, RuntimeError) as error:
        raise BadInput(_silent(master)) from error


def find_place(master: Address, corner: str, until: Until) -> str:
    """Reads where rank 0 listens, as soon as it is there; see `publish_place`.

    Raises:
        BadInput: the store does not answer, or rank 0 does not come in time.
        Interrupted: asked to stop.
    """
    store = _reach(master, corner, until)
    try:
        while not store.check([_PLACE]):
            until.slice()
            until.pause(_LOOK_SECONDS)
        text: str = store.get(_PLACE)[:_MOST_BYTES].decode(errors="replace")
    except TimeoutError as error:
        raise BadInput(
            f"rank 0 did not say in torchrun's store at {master[0]}:{master[1]} where it listens; "
            "is it running?"
        ) from error
    except (dist.DistError, RuntimeError) as error:
        raise BadInput(_silent(master)) from error
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise BadInput(f"torchrun's store at {master[0]}:{master[1]} says {text!r} for an address")
    return text


def _reach(master: Address, corner: str, until: Until) -> Any:
    """Connects to the store, which torchrun has started before this process."""
    answer: Inbox[Any] = Inbox()
    # torch waits without limit for the first word of a server that is no store.
    threading.Thread(target=_connect, args=(*master, until.left(), answer), daemon=True).start()
    store = answer.take(until.left())
    if store is None or isinstance(store, Exception):
        raise BadInput(_silent(master))
    return PrefixStore(corner, store)


def _connect(host: str, port: int, timeout_seconds: float, answer: Inbox[Any]) -> None:
    try:
        limit = timedelta(seconds=timeout_seconds)
        answer.put(TCPStore(host, port, None, False, timeout=limit, wait_for_workers=False))
    except (dist.DistError, RuntimeError) as error:
        answer.put(error)


def _silent(master: Address) -> str:
    return f"torchrun's store at {master[0]}:{master[1]} does not answer; check --rdzv-endpoint"
