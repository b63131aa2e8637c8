"""Masks of pairs of hosts cancel in the sum over all hosts, and nowhere else."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.engine.pairwise_masks import PairwiseMasks, SumNumber, unmasked

numbers = st.builds(SumNumber, st.integers(0, 2**48 - 1), st.integers(0, 2**16 - 1))


def all_masked(addends: list[Tensor], number: SumNumber) -> list[Tensor]:
    hosts = [PairwiseMasks() for _ in addends]
    keys = [host.public_key for host in hosts]
    return [
        host.masked(addend, number, [key for key in keys if key != host.public_key])
        for host, addend in zip(hosts, addends, strict=True)
    ]


@settings(max_examples=20)
@given(st.lists(st.integers(-(2**62), 2**62), min_size=3, max_size=5), numbers)
def test_the_sum_of_all_is_exact(values: list[int], number: SumNumber) -> None:
    addends = [torch.tensor([value, -value, 0]) for value in values]
    total = unmasked(dict(enumerate(all_masked(addends, number))))
    true = sum(values)
    wrapped = [(x + 2**63) % 2**64 - 2**63 for x in (true, -true, 0)]
    assert total.tolist() == wrapped


def test_what_a_host_sends_is_evenly_spread_over_all_numbers() -> None:
    """Of 64,000 bits of a mask on zeros, half are set: 5 standard deviations are 632.5."""
    (masked, *_others) = all_masked([torch.zeros(1000, dtype=torch.int64)] * 3, SumNumber(1, 0))
    ones = sum(bin(value % 2**64).count("1") for value in masked.tolist())
    assert abs(ones - 32_000) < 633


def test_without_one_host_the_others_stay_masked() -> None:
    addends = [torch.full((50,), value) for value in (1, 2, 3, 4)]
    masked = all_masked(addends, SumNumber(7, 1))
    assert not (unmasked(dict(enumerate(masked[1:]))).abs() < 2**40).any()


@pytest.mark.parametrize("other", [SumNumber(2, 0), SumNumber(1, 1)])
def test_every_sum_has_masks_of_its_own(other: SumNumber) -> None:
    one, two = PairwiseMasks(), PairwiseMasks()
    zeros = torch.zeros(8, dtype=torch.int64)
    first = one.masked(zeros, SumNumber(1, 0), [two.public_key])
    again = one.masked(zeros, other, [two.public_key])
    assert not (first == again).any()
    assert torch.equal(first, -two.masked(zeros, SumNumber(1, 0), [one.public_key]))


@pytest.mark.parametrize("key", ["", "00", "xyz", "00" * 32])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        PairwiseMasks().masked(torch.zeros(1, dtype=torch.int64), SumNumber(1, 0), [key])
