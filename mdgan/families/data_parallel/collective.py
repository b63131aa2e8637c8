"""A group of hosts and the server, whose members average gradients by gloo (torch.distributed).

gloo opens a connection between any two members. The address at which a member listens travels over
the links of the run, so that no other process has to listen.

gloo does not encrypt, and believes every message: one person must own the machines and networks of
all members. See `docs/security.md`.
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
"""How long members may take to connect, and how long one may keep the others waiting."""

_LISTENING_SECONDS = 10.0
_MARGIN_SECONDS = 5.0
_OF_A_PLACE_BYTES = 512
_OF_A_MEMBER_BYTES = 8


def most_place_bytes(size: int) -> int:
    """The largest length of a `Collective.place`, bytes, in a group of `size` members."""
    return _OF_A_PLACE_BYTES + _OF_A_MEMBER_BYTES * size


class Counted(msgspec.Struct, frozen=True):
    """The workers whose gradients the members average."""

    members: Sequence[Sequence[int]]  # by rank of a member, its workers
    weights: Mapping[int, float]  # by worker, the weight of its gradients

    @property
    def workers(self) -> list[int]:
        """All these workers, in the order of their members."""
        return [worker for workers in self.members for worker in workers]


class Collective:
    """One member of a group; it listens as soon as it is made.

    Several members may be in one process, each in its own thread.

    Each member owns a part of the weights. It sends every other member the part of its gradients
    that the other one owns, averages the gradients that arrive for its own part, and sends this
    mean to all. So 8 bytes of each weight leave a member and 8 arrive, however many members there
    are (Rajbhandari et al. 2020, "ZeRO", section 7.1). The bits are those of `average`, since one
    member adds up all gradients of a weight. Buffers, which are few, go to all members.

    Args:
        rank: this member's, from 0.
        size: the number of members, at least two.
        address: of this machine, as the other members reach it.

    Attributes:
        place: what gloo tells other members to connect to; empty if it cannot listen.
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
            self.place = self._board.own_place.result(_LISTENING_SECONDS)
        except TimeoutError:
            self.place = b""

    def connect(self, places: Sequence[bytes]) -> bool:
        """Connects with the members at `places`, by rank; whether all have connected in time."""
        fits = len(places) == self.size
        fits &= all(0 < len(place) <= most_place_bytes(self.size) for place in places)
        self._board.places.set_result(list(places) if fits else [])
        self._opening.join(_SECONDS + _MARGIN_SECONDS)
        return self._group is not None

    def trade(
        self, taken: Tensor, given: Tensor, sizes_taken: Sequence[int], sizes_given: Sequence[int]
    ) -> bool:
        """Sends every member a part of a tensor, and receives one from each.

        Args:
            taken: of one dimension, on the CPU; the parts that arrive are written here, by rank.
            given: the parts for all members, by rank.
            sizes_taken: the lengths of the parts in `taken`; `sizes_given`: of those in `given`.

        Returns:
            False if a member is lost, or has sent nothing for half a minute: then this member has
            left the group, and the contents of `taken` mean nothing.
        """
        sizes = list(sizes_taken), list(sizes_given)
        return self._works(lambda group: group.alltoall_base(taken, given, *sizes))

    def gather(self, whole: Tensor, part: Tensor) -> bool:
        """Writes the equally long parts of all members to `whole`, by rank; returns as `trade`."""
        return self._works(lambda group: group._allgather_base(whole, part))

    def mean(
        self, like: GradientVector, counted: Counted, found: Mapping[int, Tensor]
    ) -> Tensor | None:
        """The mean of all counted gradients; every member calls this at the same time.

        Args:
            like: says which of the blocks are gradients, and which buffers.
            found: by worker of this member, its gradients, float32 of the shape of `like`.

        Returns:
            An argument for `GradientVector.write`, float64 on the CPU; None if the group is broken.
        """
        vectors = [found[n].cpu() for n in counted.workers if n in found]
        blocks, width = like.shape
        cut = like.num_gradient_blocks
        mean = torch.empty(blocks * width, dtype=torch.float64)
        gradients = [vector[:cut].reshape(-1) for vector in vectors]
        if cut and not self._average(mean[: cut * width], gradients, counted):
            return None
        buffers = [vector[cut:].reshape(-1) for vector in vectors]
        if blocks > cut and not self._share(mean[cut * width :], buffers, counted):
            return None
        return mean.view(like.shape)

    def _average(self, mean: Tensor, vectors: Sequence[Tensor], counted: Counted) -> bool:
        """Writes the mean of the gradients: each member computes the part that it owns."""
        part = -(-len(mean) // self.size)
        given = torch.zeros(self.size, len(vectors), part)
        for n, vector in enumerate(vectors):
            for piece, whole in zip(torch.split(vector, part), given[:, n], strict=False):
                whole[: len(piece)] = piece
        order = counted.workers
        taken = torch.empty(len(order), part)
        sizes_taken = [len(workers) * part for workers in counted.members]
        sizes_given = [len(vectors) * part] * self.size
        if not self.trade(taken.view(-1), given.view(-1), sizes_taken, sizes_given=sizes_given):
            return False
        rows = [taken[n] for n in sorted(range(len(order)), key=order.__getitem__)]
        mean_of_part = torch.empty(part)
        self._means.write(mean_of_part, rows, counted.weights)
        whole = torch.empty(self.size * part)
        if not self.gather(whole, mean_of_part):
            return False
        mean.copy_(whole[: len(mean)])
        return True

    def _share(self, mean: Tensor, vectors: Sequence[Tensor], counted: Counted) -> bool:
        """Writes the mean of the buffers: every member gets those of all, and averages."""
        most = max(map(len, counted.members))
        outgoing = torch.zeros(most, len(mean))
        for row, vector in zip(outgoing, vectors, strict=False):
            row.copy_(vector)
        whole = torch.empty(self.size, most, len(mean))
        if not self.gather(whole.view(-1), outgoing.view(-1)):
            return False
        row_of = {
            worker: row
            for workers, rows in zip(counted.members, whole, strict=True)
            for worker, row in zip(workers, rows, strict=False)
        }
        mean.copy_(average(row_of, (), counted.weights))
        return True

    def _works(self, begin: Callable[[Any], Any]) -> bool:
        if self._group is None:
            return False
        try:
            begin(self._group).wait()
        except RuntimeError:
            self._group = None  # without a reference gloo closes it, and the other members notice
            return False
        return True

    def close(self) -> None:
        """Leaves the group; the other members notice."""
        self._group = None
        if not self._board.places.done():
            self._board.places.set_result([])

    def _open(self, rank: int, address: str) -> None:
        try:
            options = _Gloo._Options()  # the only way to set the address at which gloo listens
            options._devices = [_Gloo.create_device(hostname=address)]
            options._timeout = timedelta(seconds=_SECONDS)
            options._threads = 1
            self._group = _Gloo(self._board, rank, self.size, options)
        except Exception:  # gloo's parser of another member's place raises various errors
            if not self._board.own_place.done():
                self._board.own_place.set_result(b"")


class _Noticeboard(_Store):  # type: ignore[misc] # torch does not say what it is
    """The store in which gloo writes the place of this member, and reads those of all members."""

    def __init__(self) -> None:
        super().__init__()
        self.own_place: Future[bytes] = Future()  # the place of this member
        # The places of all members, by rank; empty if this member must not connect.
        self.places: Future[list[bytes]] = Future()

    def set(self, _key: str, value: bytes) -> None:
        self.own_place.set_result(bytes(value))

    def wait(self, _keys: list[str], _timeout: timedelta | None = None) -> None:
        self.places.result(_SECONDS)

    def get(self, key: str) -> bytes:
        return self.places.result(_SECONDS)[int(key.rpartition("/")[2])]
