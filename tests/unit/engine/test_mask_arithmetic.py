"""Masks cancel in the sum over all hosts and nowhere else; t of n holders put secrets together."""

import os
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.engine.stages.mask_arithmetic import (
    LIMBS,
    PRIME,
    Limbs,
    Mask,
    as_secret,
    masked,
    put_together,
    shared,
    sign_between,
    without_masks,
)

quick = settings(deadline=None, max_examples=40)
bytes_of_secrets = st.binary(min_size=32, max_size=32)


@quick
@given(data=st.data(), secrets=st.lists(bytes_of_secrets, min_size=1, max_size=4))
def test_any_t_holders_put_the_secrets_together(data: st.DataObject, secrets: list[bytes]) -> None:
    num_holders = data.draw(st.integers(1, 12))
    threshold = data.draw(st.integers(1, num_holders))
    true = np.stack([as_secret(each) for each in secrets])
    rows = shared(true, threshold, num_holders)
    holders = data.draw(st.permutations(range(num_holders)))[:threshold]
    found = put_together(rows[holders], [1 + holder for holder in holders])
    assert found.dtype == true.dtype
    assert (found == true).all()


@quick
@given(bytes_of_secrets, bytes_of_secrets, st.integers(2, 6))
def test_fewer_shares_fit_every_secret(one: bytes, other: bytes, threshold: int) -> None:
    """For t - 1 shares of one secret there is a polynomial through them and any other secret."""
    rows = shared(as_secret(one), threshold, threshold)
    seen, points = rows[: threshold - 1], list(range(1, threshold))
    # The share at the last point that would make it the other secret, by linearity.
    zeros = np.zeros((threshold - 1, 1, LIMBS), dtype=np.uint16)
    unit = np.ones((1, 1, LIMBS), dtype=np.uint16)
    of_seen = put_together(np.concatenate([seen, 0 * unit]), [*points, threshold]).astype(int)
    weight = int(put_together(np.concatenate([zeros, unit]), [*points, threshold])[0, 0])
    last = (as_secret(other).astype(int) - of_seen) * pow(weight, -1, PRIME) % PRIME
    fitting = np.concatenate([seen, last.reshape(1, 1, LIMBS).astype(np.uint16)])
    assert (put_together(fitting, [*points, threshold]) == as_secret(other)).all()


def test_shares_of_equal_secrets_are_spread_alike_over_the_field() -> None:
    """A share is even over all numbers, whatever the secret: ±5 standard deviations of the mean."""
    for secret in (bytes(32), b"\xff" * 32, bytes(range(32))):
        secrets = np.repeat(as_secret(secret)[None], 1000, axis=0)
        rows = shared(secrets, 3, 4).astype(float)
        error = PRIME / np.sqrt(12 * 1000 * LIMBS)
        assert (abs(rows.mean(axis=(1, 2)) - (PRIME - 1) / 2) < 5 * error).all()


@pytest.mark.parametrize("num_hosts", [50, 200])
def test_many_holders(num_hosts: int) -> None:
    secret = as_secret(b"\xfe" * 32)
    threshold = 2 * num_hosts // 3 + 1
    rows = shared(secret, threshold, num_hosts)[-threshold:]
    points = list(range(num_hosts - threshold + 1, num_hosts + 1))
    assert (put_together(rows, points) == secret).all()


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
    total = without_masks(dict(enumerate(sent)), map(Mask, own))
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
        assert not (without_masks(dict(enumerate(sent)), map(Mask, known)).abs() < 2**40).any()
    without = dict(enumerate(sent[1:]))
    assert not (without_masks(without, map(Mask, own[1:])).abs() < 2**40).any()


def test_the_addend_stays_as_it_is() -> None:
    addend = torch.arange(6).view(2, 3)
    assert masked(addend, [Mask(seed())]).shape == (2, 3)
    assert torch.equal(addend, torch.arange(6).view(2, 3))
