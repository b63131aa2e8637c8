"""Named machines, and how workers are shared out to them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.plan.layout import Machines, parse_machines, shared_out


def test_a_list_of_machines() -> None:
    assert parse_machines("4x fast, 8x slow one:0.5/3,1x big/16") == (
        Machines(4, "fast"),
        Machines(8, "slow one", 0.5, 3),
        Machines(1, "big", 1.0, 16),
    )


@pytest.mark.parametrize(
    "text",
    ["", "fast", "4 fast", "4x", "0x fast", "4x fast:0", "4x fast:", "4x fast:1.2.3", "4x fast/0",
     "4x fast/9999", "99999x fast", "4x fast:-1", "4x fast:99999", "4x fast,"],
)  # fmt: skip
def test_what_is_no_list_of_machines(text: str) -> None:
    with pytest.raises(BadInput, match="--machines ") as refused:
        parse_machines(text)
    assert "\n" not in str(refused.value)


@given(st.integers(1, 7), st.lists(st.sampled_from([0.25, 0.5, 1.0, 3.0]), min_size=1, max_size=3))
def test_no_way_to_share_workers_out_is_done_sooner(num_workers: int, speeds: list[float]) -> None:
    def done(counts: tuple[int, ...]) -> float:
        return max(count / speed for count, speed in zip(counts, speeds, strict=True))

    counts = shared_out(num_workers, speeds)
    every = itertools.product(range(num_workers + 1), repeat=len(speeds))
    assert sum(counts) == num_workers
    assert done(tuple(counts)) == min(done(each) for each in every if sum(each) == num_workers)
