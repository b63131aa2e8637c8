"""Which sizes of hosts are tried, and which one wins."""

import pytest

from mdgan.plan.forks import ForkFailed
from mdgan.plan.host_size import candidates, fastest


@pytest.mark.parametrize(
    ("num_workers", "cores", "sizes"),
    [(1, 2, [1]), (4, 2, [4, 2, 1]), (10, 2, [10, 5, 3, 2, 1]), (3, 16, [3, 1])],
)
def test_one_for_all_one_a_core_one_a_worker_and_halves_between(
    num_workers: int, cores: int, sizes: list[int]
) -> None:
    assert candidates(num_workers, cores) == sizes


def test_the_fastest_wins_and_hopeless_ones_are_not_tried() -> None:
    took = {10: 2.0, 5: 1.0, 3: 0.98, 2: 1.6}
    assert fastest([10, 5, 3, 2, 1], took.__getitem__) == (5, took)


def test_more_processes_than_the_machine_can_hold() -> None:
    def seconds(size: int) -> float:
        if size < 5:
            raise ForkFailed("no memory")
        return 1.0 / size

    assert fastest([10, 5, 3, 1], seconds) == (10, {10: 0.1, 5: 0.2})
