"""A group whose members send each other parts of tensors: gloo (torch.distributed).

Members talk over connections of their own, one between any two, which gloo opens. Where each of
them listens travels over the links of the run, so that nothing else has to listen.

gloo does not encrypt, and believes what it is sent: members must be on machines and networks that
one person owns. See `docs/security.md`.
"""

import threading
from collections.abc import Callable, Sequence
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
    """How long `Collective.place` can be.

    Args:
        size: the number of members.
    """
    return _OF_A_PLACE_BYTES + _OF_A_MEMBER_BYTES * size


class Collective:
    """One member of a group, which listens from the beginning.

    Several members may be in one process, each in a thread of its own.

    Args:
        rank: of this member, from 0.
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
        """Waits until all members have connected with each other; every member calls it once.

        Args:
            places: of all members, by rank.

        Returns:
            Whether they have.
        """
        fits = len(places) == self._size
        fits &= all(0 < len(place) <= most_place_bytes(self._size) for place in places)
        self._board.places.set_result(list(places) if fits else [])
        self._opening.join(_SECONDS + _MARGIN_SECONDS)
        return self._group is not None

    def trade(
        self, taken: Tensor, given: Tensor, sizes_taken: Sequence[int], sizes_given: Sequence[int]
    ) -> bool:
        """Gives every member a part of a tensor, and takes one from each.

        Args:
            taken: of one dimension, on the CPU; the parts are put there, by rank.
            given: the parts for the others, by rank.
            sizes_taken: how long the parts are that come; `sizes_given`: those that go.

        Returns:
            False if a member is gone, or has sent nothing for half a minute: then the group is of
            no use any more, and `taken` holds anything.
        """
        sizes = list(sizes_taken), list(sizes_given)
        return self._works(lambda group: group.alltoall_base(taken, given, *sizes))

    def gather(self, whole: Tensor, part: Tensor) -> bool:
        """Puts the parts of all members together, which are equally long; returns as `trade`."""
        return self._works(lambda group: group._allgather_base(whole, part))

    def _works(self, begin: Callable[[Any], Any]) -> bool:
        if self._group is None:
            return False
        try:
            begin(self._group).wait()
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
    """Where gloo tells the place of this member, and reads those of all.

    Attributes:
        own: where this member listens.
        places: those of all members, by rank; none if they are not to connect.
    """

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
