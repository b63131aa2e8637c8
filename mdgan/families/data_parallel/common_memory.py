"""Memory that the processes of one machine share, and a bell by which each of them is woken.

The launcher makes it before it forks, so only its own children have it: it has no name that another
program could open, and nothing is left of it when the last of them is gone.
"""

import mmap
import multiprocessing
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

SERVER = 0
"""The number of the server's bell; that of a host is its own."""
_LOOK_SECONDS = 0.1
_LINE_BYTES = 64


class CommonMemory:
    """Some bytes, all zero at first; only those that are written take memory.

    Args:
        hosts: those that share it with the server, each with its workers.

    Attributes:
        token: what only a process with this memory knows.

    Raises:
        OSError: the system has no such memory, or no semaphores.
    """

    def __init__(self, num_bytes: int, hosts: Mapping[int, Sequence[int]]) -> None:
        forks = multiprocessing.get_context("fork")
        self.hosts = {host: tuple(workers) for host, workers in hosts.items()}
        self.token = secrets.token_hex(16)
        self.bytes = mmap.mmap(-1, num_bytes)
        self._bells = {number: forks.Semaphore(0) for number in (SERVER, *hosts)}

    def wake(self, numbers: Iterable[int]) -> None:
        """Rings the bells of some processes, whether they wait or not."""
        for number in numbers:
            self._bells[number].release()

    def wait(self, number: int, is_over: Callable[[], bool]) -> bool:
        """Waits until something is so that another process writes before it rings.

        Returns:
            Whether it is so; False after a short while, for the caller to look at other things.
        """
        bell = self._bells[number]
        while not is_over():
            if not bell.acquire(timeout=_LOOK_SECONDS):
                return is_over()
        while bell.acquire(block=False):  # rings for what has been seen by now
            pass
        return True


class Room:
    """Deals out a memory, part by part; every process does it in the same order.

    Without a memory it only counts bytes, and the parts hold nothing.
    """

    def __init__(self, memory: CommonMemory | None = None) -> None:
        self.num_bytes = 0
        self._memory = memory

    def tensor(self, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """The next part, as a tensor of one dimension."""
        begin = self._take(count * dtype.itemsize)
        if self._memory is None:
            return torch.empty(count, dtype=dtype, device="meta")
        if not count:  # of which there can be no view
            return torch.empty(0, dtype=dtype)
        return torch.frombuffer(self._memory.bytes, dtype=dtype, count=count, offset=begin)

    def array(self, dtype: type[np.generic], *shape: int) -> npt.NDArray[Any]:
        """The next part, as an array."""
        begin = self._take(prod(shape) * np.dtype(dtype).itemsize)
        if self._memory is None:
            return np.zeros(shape, dtype)
        return np.frombuffer(self._memory.bytes, dtype, prod(shape), begin).reshape(shape)

    def _take(self, num_bytes: int) -> int:
        begin = self.num_bytes
        self.num_bytes += -(-num_bytes // _LINE_BYTES) * _LINE_BYTES
        return begin
