"""What clients hold, drawn or as `--partition` gives it."""

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from mdgan.data.partition import partition
from mdgan.data.scheme import parse_partition

Table = dict[int, list[int]]
"""Client → samples of each class, of any length."""

tables = st.dictionaries(
    st.integers(1, 99), st.lists(st.integers(0, 60), max_size=6), min_size=1, max_size=12
)


def square(table: Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """[clients, classes], in the table's order."""
    most = max(map(len, table.values()))
    return np.array([[*row, *[0] * (most - len(row))] for row in table.values()], dtype=np.int64)


def partition_table(scheme: str, seed: int, num_clients: int = 20) -> Table:
    """Ten classes of 180 samples."""
    labels = torch.arange(10).repeat_interleave(180)
    parts = partition(labels, parse_partition(scheme), num_clients, seed)
    return {n: torch.bincount(labels[p], minlength=10).tolist() for n, p in enumerate(parts, 1)}
