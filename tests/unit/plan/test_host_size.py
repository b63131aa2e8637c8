"""Which sizes of hosts are tried."""

import pytest

from mdgan.plan.host_size import candidates


@pytest.mark.parametrize(
    ("num_workers", "cores", "sizes"),
    [(1, 2, [1]), (4, 2, [4, 2, 1]), (10, 2, [10, 5, 3, 2, 1]), (3, 16, [3, 1])],
)
def test_one_for_all_one_a_core_one_a_worker_and_halves_between(
    num_workers: int, cores: int, sizes: list[int]
) -> None:
    assert candidates(num_workers, cores) == sizes
