"""Hands rank 0's address to the hosts through the store that torchrun serves.

Any machine that reaches the store may write there, and one in the path may pose as the store. torch
allocates as much memory for a value as the store announces, and waits without limit for some
answers. So rank 0 writes its address as whole numbers of 8 bytes each, and a separate thread talks
with the store.
"""

import re
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

# torch exports it without saying so.
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined] # see above

from mdgan.errors import BadInput
from mdgan.transport.until import Inbox, Until

Address = tuple[str, int]

_LOOK_SECONDS = 0.05
_MOST_SECONDS = 1e6
_MOST_BYTES = 300
_LENGTH = "length"
_PART_BYTES = 7  # of the address in a number, which is never negative
_PLACE = re.compile(r"([\w.-]{1,255}|\[[\w:.%]{2,99}\]):([0-9]{1,5})", re.ASCII)
_SCHEMES = {"unix", "unix-abstract", "vsock", "ipv4", "ipv6", "dns", "xds"}
"""gRPC takes these words before a colon for kinds of address; sockets need no certificate."""


class _Nonsense(Exception):
    """The store holds a value that rank 0 cannot have written."""


def publish_place(master: Address, corner: str, place: str, until: Until) -> None:
    """Writes rank 0's place into torchrun's store at `master`; BadInput without an answer."""

    def write(store: Any, _: threading.Event) -> bytes:
        text = place.encode()
        parts = range(0, len(text), _PART_BYTES)
        numbers = {str(n): int.from_bytes(text[n : n + _PART_BYTES], "big") for n in parts}
        for name, number in {**numbers, _LENGTH: len(text)}.items():  # the length last: it is whole
            store.add(name, number - store.add(name, 0))
        return b""

    _talk(master, corner, until, write)


def find_place(master: Address, corner: str, until: Until) -> str:
    """Waits until rank 0 has written where it listens, and returns that; see `publish_place`.

    Raises:
        BadInput: the store does not answer or holds nonsense, or rank 0 writes nothing in time.
        Interrupted: `until` was interrupted.
    """
    text = _talk(master, corner, until, _read).decode(errors="replace")
    match = _PLACE.fullmatch(text)
    if match is None or match[1] in _SCHEMES or not 0 < int(match[2]) < 1 << 16:
        raise BadInput(
            f"torchrun's store at {master[0]}:{master[1]} says {text!r:.120} for an address",
            way_out="another program writes there: keep its port to the machines of the run",
        )
    return text


def _read(store: Any, gave_up: threading.Event) -> bytes:
    """Waits for rank 0's address and reads it; empty once the host has given up."""
    while not (length := store.add(_LENGTH, 0)):
        if gave_up.wait(_LOOK_SECONDS):
            return b""
    if not 0 < length <= _MOST_BYTES:
        raise _Nonsense
    parts = []
    for begin in range(0, length, _PART_BYTES):
        number = store.add(str(begin), 0)
        if not 0 <= number < 1 << 8 * _PART_BYTES:
            raise _Nonsense
        parts.append(number.to_bytes(min(_PART_BYTES, length - begin), "big"))
    return b"".join(parts)


def _talk(
    master: Address, corner: str, until: Until, say: Callable[[Any, threading.Event], bytes]
) -> bytes:
    """Runs `say` with the store in another thread, so that this one can give up waiting."""
    answer, reached, gave_up = Inbox[bytes | Exception](), threading.Event(), threading.Event()
    named = f"torchrun's store at {master[0]}:{master[1]}"
    silent = f"{named} does not answer; check --rdzv-endpoint"
    limit = timedelta(seconds=min(until.left(), _MOST_SECONDS))

    def run() -> None:
        try:
            store = TCPStore(*master, None, False, timeout=limit, wait_for_workers=False)
            corner_of_store = PrefixStore(corner, store)
            reached.set()
            answer.put(say(corner_of_store, gave_up))
        except (_Nonsense, OverflowError):
            why = f"{named} holds values that no rank 0 writes"
            answer.put(BadInput(why, way_out="check --rdzv-endpoint"))
        except Exception:  # torch raises exceptions of many kinds
            answer.put(BadInput(silent))

    threading.Thread(target=run, daemon=True).start()
    try:
        return until.take(answer)
    except TimeoutError as error:
        late = f"rank 0 did not say in {named} where it listens; is it running?"
        raise BadInput(late if reached.is_set() else silent) from error
    finally:
        gave_up.set()
