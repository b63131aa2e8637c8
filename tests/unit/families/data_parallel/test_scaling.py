"""What the scaling manager deals out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.families.data_parallel.scaling import BatchSizes, Scaling
from mdgan.families.data_parallel.settings import DataParallelSettings

OWN = BatchSizes(7, 9)
WORKERS = st.lists(st.integers(1, 99), min_size=1, max_size=20, unique=True).map(sorted)


@given(WORKERS, st.integers(1, 200))
def test_a_global_batch_is_dealt_out_whole(workers: list[int], total: int) -> None:
    sizes = Scaling(OWN, total).batch_sizes(workers)
    assert all(size.discriminator == size.generator for size in sizes.values())
    dealt = [size.generator for size in sizes.values()]
    assert sum(dealt) == total
    assert list(sizes) == workers[: min(total, len(workers))]
    assert dealt == sorted(dealt, reverse=True), "the first workers get the remainder"
    assert max(dealt) - min(dealt) <= 1
    assert min(dealt) >= 1


def test_without_a_global_batch_each_worker_has_its_own() -> None:
    assert Scaling(OWN).batch_sizes([2, 5, 9]) == {2: OWN, 5: OWN, 9: OWN}


@pytest.mark.parametrize(("rule", "factor"), [("none", 1.0), ("linear", 4.0), ("sqrt", 2.0)])
def test_rates_follow_the_samples_of_an_iteration(rule: str, factor: float) -> None:
    settings = DataParallelSettings(batch_size=16, lr_scaling=rule, world_size=5)
    scaling = settings.scaling()
    sizes = scaling.batch_sizes([1, 2, 3, 4]).values()
    assert scaling.rate_factor(sum(size.generator for size in sizes)) == factor
    assert scaling.rate_factor(16) == 1.0, "one worker's rates are those given"


def test_a_reference_may_be_any_batch() -> None:
    settings = DataParallelSettings(
        batch_size=16, lr_scaling="linear", reference_batch_size=64, world_size=3
    )
    assert settings.scaling().rate_factor(32) == 0.5
