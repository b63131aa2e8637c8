"""Arithmetic: the number of hosts that a masked sum needs."""

import pytest

from mdgan.privacy.masks import threshold
from mdgan.privacy.secure_settings import LEAST_PARTIES
from tests.claims.registry import claim


@pytest.mark.parametrize("num_hosts", [*range(3, 50), 100, 1000])
@claim(
    "opens-sums-alone",
    "A sum is of t = ⌊2n/3⌋ + 1 of its n hosts or more, at least three, even where the "
    "server lies, as long as fewer than a third of the hosts work together with it.",
)
def test_no_two_lists_of_one_sum_find_enough_hosts(num_hosts: int) -> None:
    """An honest host confirms one list alone; those that work with the server confirm both."""
    t = threshold(num_hosts)
    assert t == 2 * num_hosts // 3 + 1
    assert t >= LEAST_PARTIES >= 3
    with_server = (num_hosts - 1) // 3
    assert 3 * with_server < num_hosts <= 3 * (with_server + 1)
    honest = num_hosts - with_server
    for first in range(honest + 1):
        assert min(first, honest - first) + with_server < t
    # What t holders reveal of one list is of t - 2 others or more, beside a host and its friends.
    assert t - with_server >= 2


@claim(
    "too-few-left", "a sum of three hosts survives no drop-out, of four to six one, of seven two"
)
def test_so_many_drop_outs_leave_a_sum() -> None:
    assert [n - threshold(n) for n in range(3, 8)] == [0, 1, 1, 1, 2]
