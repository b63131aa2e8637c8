"""Sums over several processes at once, without one in the middle: gloo's ring (torch.distributed).

Every member is sent about twice the bytes of the tensor, however many members there are. They talk
over connections of their own, one between any two members, which gloo opens. Where each listens
travels over the links of the run, so that nothing else has to listen.

gloo does not encrypt, and believes what it is sent: members must be on machines and networks that
one person owns. See `docs/security.md`.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from torch import Tensor
from torch import distributed as _distributed

_Gloo: Any = _distributed.ProcessGroupGloo
_Store: Any = _distributed.Store  # type: ignore[attr-defined] # it is there

_SECONDS = 30.0
"""Until all members are connected; and for how long one may send nothing while others wait."""

_LISTENING_SECONDS = 10.0
_MARGIN_SECONDS = 5.0
_OF_A_PLACE_BYTES = 512
_OF_A_MEMBER_BYTES = 8


def most_place_bytes(size: int) -> int:
    """How long `Collective.place` can be."""
    return _OF_A_PLACE_BYTES + _OF_A_MEMBER_BYTES * size


class Collective:
    """One member of a group, which listens from the beginning.

    Several members may be in one process, each in a thread of its own.

    Args:
        size: the number of members, at least two.
        address: of this machine, where the others reach it.

    Attributes:
        place: where it listens, for the others; empty if it cannot.
    """

    def __init__(self, rank: int, size: int, address: str) -> None:
        self._size = size
        self._board = _Noticeboard()
        self._group: Any = None
        self._opening = threading.Thread(
            target=self._open, args=(rank, address), name="collective", daemon=True
        )
        self._opening.start()
        try:
            self.place = self._board.own.result(_LISTENING_SECONDS)
        except TimeoutError:
            self.place = b""

    def connect(self, places: Sequence[bytes]) -> bool:
        """Waits until all members, with places by rank, have connected; whether they have.

        Every member calls it once.
        """
        fits = len(places) == self._size
        fits &= all(0 < len(place) <= most_place_bytes(self._size) for place in places)
        self._board.places.set_result(list(places) if fits else [])
        self._opening.join(_SECONDS + _MARGIN_SECONDS)
        return self._group is not None

    def add_up(self, *tensors: Tensor) -> bool:
        """Replaces tensors by their sums over all members, who call it with tensors that are alike.

        Args:
            tensors: int64, float32 or bfloat16, on the CPU. Sums of whole numbers are the same in
                any order; others are the same at every member.

        Returns:
            False if a member is gone, or has sent nothing for half a minute: then the group is of
            no use any more, and the tensors hold anything.
        """
        group = self._group
        if group is None:
            return False
        try:
            for tensor in tensors:
                if tensor.numel():
                    group.allreduce([tensor]).wait()
        except RuntimeError:
            self._group = None  # once nothing refers to it, the others find it closed
            return False
        return True

    def close(self) -> None:
        """Leaves the group, which the others notice."""
        self._group = None
        if not self._board.places.done():
            self._board.places.set_result([])

    def _open(self, rank: int, address: str) -> None:
        try:
            options = _Gloo._Options()  # the only way to say where gloo listens
            options._devices = [_Gloo.create_device(hostname=address)]
            options._timeout = timedelta(seconds=_SECONDS)
            options._threads = 1
            self._group = _Gloo(self._board, rank, self._size, options)
        except Exception:  # gloo raises what the parser of a foreign place happens to run into
            if not self._board.own.done():
                self._board.own.set_result(b"")


class _Noticeboard(_Store):  # type: ignore[misc] # torch does not say what it is
    """Where gloo tells the place of this member, and reads those of all."""

    def __init__(self) -> None:
        super().__init__()
        self.own: Future[bytes] = Future()
        self.places: Future[list[bytes]] = Future()

    def set(self, key: str, value: bytes) -> None:
        """This member listens."""
        del key
        self.own.set_result(bytes(value))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Waits for the places."""
        del keys, timeout
        self.places.result(_SECONDS)

    def get(self, key: str) -> bytes:
        """The place of a member, whose rank the key ends with."""
        return self.places.result(_SECONDS)[int(key.rpartition("/")[2])]
