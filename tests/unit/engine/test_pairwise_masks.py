"""Masks of pairs of hosts cancel in the sum over all hosts, and nowhere else."""

import os
from itertools import combinations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.engine.pairwise_masks import Mask, masked, sign_between, unmasked
from mdgan.engine.secret_sharing import Limbs, as_secret


def seed() -> Limbs:
    return as_secret(os.urandom(32))


def all_masked(addends: list[Tensor]) -> tuple[list[Tensor], list[Limbs]]:
    """What hosts send, and each one's own seed."""
    hosts = range(len(addends))
    own, pairs = [seed() for _ in hosts], {pair: seed() for pair in combinations(hosts, 2)}
    sent = []
    for host, addend in enumerate(addends):
        between = [
            Mask(its, sign_between(host, sum(pair) - host))
            for pair, its in pairs.items()
            if host in pair
        ]
        sent.append(masked(addend, [Mask(own[host]), *between]))
    return sent, own


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(-(2**62), 2**62), min_size=3, max_size=5))
def test_the_sum_of_all_is_exact(values: list[int]) -> None:
    addends = [torch.tensor([value, -value, 0]) for value in values]
    sent, own = all_masked(addends)
    total = unmasked(dict(enumerate(sent)), map(Mask, own))
    true = sum(values)
    wrapped = [(x + 2**63) % 2**64 - 2**63 for x in (true, -true, 0)]
    assert total.tolist() == wrapped


def test_what_a_host_sends_is_evenly_spread_over_all_numbers() -> None:
    """Of 64,000 bits of a mask on zeros, half are set: 5 standard deviations are 632.5."""
    (sent, *_others), _ = all_masked([torch.zeros(1000, dtype=torch.int64)] * 3)
    ones = sum(bin(value % 2**64).count("1") for value in sent.tolist())
    assert abs(ones - 32_000) < 633


def test_each_seed_that_is_missing_hides_all() -> None:
    addends = [torch.full((50,), value) for value in (1, 2, 3, 4)]
    sent, own = all_masked(addends)
    for known in (own[1:], own[:0]):
        assert not (unmasked(dict(enumerate(sent)), map(Mask, known)).abs() < 2**40).any()
    without = dict(enumerate(sent[1:]))
    assert not (unmasked(without, map(Mask, own[1:])).abs() < 2**40).any()


def test_the_addend_stays_as_it_is() -> None:
    addend = torch.arange(6).view(2, 3)
    assert masked(addend, [Mask(seed())]).shape == (2, 3)
    assert torch.equal(addend, torch.arange(6).view(2, 3))
