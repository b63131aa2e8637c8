"""Tensors and arrays in the memory that the processes of one machine share."""

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mdgan.engine.common_memory import CommonMemory

_LINE_BYTES = 64


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
