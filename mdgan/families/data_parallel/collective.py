"""A group whose members send each other parts of tensors: gloo (torch.distributed).

Members talk over connections of their own, one between any two, which gloo opens. Where each of
them listens travels over the links of the run, so that nothing else has to listen.

gloo does not encrypt, and believes what it is sent: members must be on machines and networks that
one person owns. See `docs/security.md`.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch import distributed as _distributed

from mdgan.families.data_parallel.vectors import GradientVector
from mdgan.gan.exact_sum import MeanOfRows, average

_Gloo: Any = _distributed.ProcessGroupGloo
_Store: Any = _distributed.Store  # type: ignore[attr-defined] # it is there

_SECONDS = 30.0
"""Until all members are connected; and for how long one may send nothing while others wait."""

_LISTENING_SECONDS = 10.0
_MARGIN_SECONDS = 5.0
_OF_A_PLACE_BYTES = 512
_OF_A_MEMBER_BYTES = 8


def most_place_bytes(size: int) -> int:
    """How long `Collective.place` can be in a group of so many members."""
    return _OF_A_PLACE_BYTES + _OF_A_MEMBER_BYTES * size


class Counted(msgspec.Struct, frozen=True):
    """The workers whose gradients count."""

    members: Sequence[Sequence[int]]  # by rank of the member that carries them
    weights: Mapping[int, float]  # of each of them in the mean

    @property
    def workers(self) -> list[int]:
        """All of them, in the order of their members."""
        return [worker for workers in self.members for worker in workers]


class Collective:
    """One member of a group, which listens from the beginning.

    Several members may be in one process, each in a thread of its own.

    They find a mean together: each adds up a part of it for all. A member sends each other one that
    one's part of its gradients, adds up what comes for its own part, and sends the mean of that to
    all. So 8 bytes of each weight leave a member and 8 come, however many there are (Rajbhandari
    et al. 2020, "ZeRO", section 7.1). The bits are those of `average`: all that is added up for a
    weight lies in one place. Buffers, which are few, go to all members.

    Args:
        rank: of this member, from 0.
        size: the number of members, at least two.
        address: of this machine, where the others reach it.

    Attributes:
        place: where it listens, for the others; empty if it cannot.
    """

    def __init__(self, rank: int, size: int, address: str) -> None:
        self.size = size
        self._board = _Noticeboard()
        self._means = MeanOfRows()
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
        """Waits until all members, at places by rank, have connected; whether they have."""
        fits = len(places) == self.size
        fits &= all(0 < len(place) <= most_place_bytes(self.size) for place in places)
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

    def mean(
        self, like: GradientVector, counted: Counted, found: Mapping[int, Tensor]
    ) -> Tensor | None:
        """The mean of what members have found, who all call it at a time.

        Args:
            like: what is averaged.
            found: by worker, what this member's have found, float32 of the vector's shape.

        Returns:
            What `GradientVector.write` takes, float64 on the CPU; None if the group is broken.
        """
        own = [found[n].cpu() for n in counted.workers if n in found]
        blocks, width = like.shape
        cut = like.num_gradient_blocks
        mean = torch.empty(blocks * width, dtype=torch.float64)
        gradients = [vector[:cut].reshape(-1) for vector in own]
        if cut and not self._average(mean[: cut * width], gradients, counted):
            return None
        buffers = [vector[cut:].reshape(-1) for vector in own]
        if blocks > cut and not self._share(mean[cut * width :], buffers, counted):
            return None
        return mean.view(like.shape)

    def _average(self, mean: Tensor, own: Sequence[Tensor], counted: Counted) -> bool:
        """Each member finds the mean of a part."""
        part = -(-len(mean) // self.size)
        given = torch.zeros(self.size, len(own), part)
        for n, vector in enumerate(own):
            for piece, whole in zip(torch.split(vector, part), given[:, n], strict=False):
                whole[: len(piece)] = piece
        order = counted.workers
        taken = torch.empty(len(order), part)
        sizes_taken = [len(workers) * part for workers in counted.members]
        sizes_given = [len(own) * part] * self.size
        if not self.trade(taken.view(-1), given.view(-1), sizes_taken, sizes_given=sizes_given):
            return False
        rows = [taken[n] for n in sorted(range(len(order)), key=order.__getitem__)]
        its_mean = torch.empty(part)
        self._means.write(its_mean, rows, counted.weights)
        whole = torch.empty(self.size * part)
        if not self.gather(whole, its_mean):
            return False
        mean.copy_(whole[: len(mean)])
        return True

    def _share(self, mean: Tensor, own: Sequence[Tensor], counted: Counted) -> bool:
        """Each member gets everything."""
        most = max(map(len, counted.members))
        given = torch.zeros(most, len(mean))
        for row, vector in zip(given, own, strict=False):
            row.copy_(vector)
        whole = torch.empty(self.size, most, len(mean))
        if not self.gather(whole.view(-1), given.view(-1)):
            return False
        found = {
            worker: row
            for workers, rows in zip(counted.members, whole, strict=True)
            for worker, row in zip(workers, rows, strict=False)
        }
        mean.copy_(average(found, (), counted.weights))
        return True

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
            self._group = _Gloo(self._board, rank, self.size, options)
        except Exception:  # gloo raises what the parser of a foreign place happens to run into
            if not self._board.own.done():
                self._board.own.set_result(b"")


class _Noticeboard(_Store):  # type: ignore[misc] # torch does not say what it is
    """Where gloo tells the place of this member, and reads those of all."""

    def __init__(self) -> None:
        super().__init__()
        self.own: Future[bytes] = Future()  # where this member listens
        # Those of all members, by rank; none if they are not to connect.
        self.places: Future[list[bytes]] = Future()

    def set(self, _key: str, value: bytes) -> None:
        self.own.set_result(bytes(value))

    def wait(self, _keys: list[str], _timeout: timedelta | None = None) -> None:
        self.places.result(_SECONDS)

    def get(self, key: str) -> bytes:
        return self.places.result(_SECONDS)[int(key.rpartition("/")[2])]
