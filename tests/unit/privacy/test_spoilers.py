"""Sums of other groups show which host spoils masked sums, and accuse no other."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.privacy.spoilers import ABSURD_SUM_FACTOR, SpoilerSearch, UsualSums
from tests.claims.registry import claim
from tests.marks import examples

LEAST = 3
Spoils = Callable[[list[int]], bool]


def ask(search: SpoilerSearch, hosts: list[int], spoils: Spoils) -> tuple[set[str], bool]:
    """One question: who is found guilty, and whether any sum can be used."""
    owners = {host: f"host {host}" for host in hosts}
    sums = search.sums_of(owners, LEAST) if search.is_on else [hosts]
    arguments = [host for its in sums for host in its]
    assert len(set(arguments)) == len(arguments), "no answer is in two sums"
    assert all(len(its) >= LEAST for its in sums)
    spoiled = [its for its in sums if spoils(its)]
    guilty = {search.guilty([owners[host] for host in its]) for its in spoiled} - {None}
    search.note(len(hosts), LEAST, any_spoiled=bool(spoiled))
    return {owner for owner in guilty if owner is not None}, len(spoiled) < len(sums)


@pytest.mark.parametrize("divides", [True, False])
@pytest.mark.parametrize("number", [4, 5, 7, 12, 40])
@claim(
    "spoiler-found",
    "A host that was in three spoiled sums or more, in more than any other of the last "
    "one's hosts, and alone in all of these, has a strike",
)
def test_one_that_always_spoils_is_found_soon(number: int, divides: bool) -> None:
    search, hosts = SpoilerSearch(divides=divides), list(range(1, number + 1))
    for _ in range(500):
        guilty, _ = ask(search, hosts, lambda its: 2 in its)
        if guilty:
            break
    assert guilty == {"host 2"}
    search.forget("host 2")
    hosts.remove(2)
    for _ in range(500):
        assert ask(search, hosts, lambda _: False) == (set(), True)
    assert not search.is_on


@settings(deadline=None, max_examples=examples(24))
@given(st.integers(4, 12), st.booleans(), st.randoms(use_true_random=False))
@claim("spoiler-found", "No honest host is found guilty for what one other host does.")
def test_one_that_spoils_as_it_likes_has_no_other_one_found_guilty(
    number: int, divides: bool, random: Random
) -> None:
    search, hosts = SpoilerSearch(divides=divides), list(range(1, number + 1))
    for _ in range(60):
        guilty, _ = ask(search, hosts, lambda its: 2 in its and random.random() < 0.5)
        assert guilty <= {"host 2"}


@pytest.mark.parametrize("divides", [True, False])
@pytest.mark.parametrize("number", [4, 5, 7, 12])
def test_one_that_spoils_beside_another_one_alone_costs_ever_fewer_sums(
    number: int, divides: bool
) -> None:
    """The server cannot tell which of the two it is, so it keeps them apart."""
    search, hosts, in_vain = SpoilerSearch(divides=divides), list(range(1, number + 1)), list[int]()
    for question in range(1000):
        guilty, is_used = ask(search, hosts, lambda its: {1, 2} <= set(its))
        assert not guilty
        in_vain += [] if is_used else [question]
    assert len([question for question in in_vain if question >= 500]) <= 25


@pytest.mark.parametrize("number", [12, 40])
def test_a_fourth_that_always_spoils_is_found(number: int) -> None:
    search, hosts = SpoilerSearch(divides=True), list(range(1, number + 1))
    liars, num_in_vain = set(hosts[::4]), 0
    for _ in range(200):
        guilty, is_used = ask(search, hosts, lambda its: bool(liars & set(its)))
        num_in_vain += not is_used
        for owner in guilty & {f"host {host}" for host in liars}:
            hosts.remove(int(owner.removeprefix("host ")))
            search.forget(owner)
    assert not liars & set(hosts)
    assert num_in_vain < 30


def test_an_absurdly_long_sum_is_seen_beside_others_and_after_others() -> None:
    far = 2 * ABSURD_SUM_FACTOR
    usual = UsualSums()
    assert usual.absurd({0: far, 1: 1.0, 2: 1.5}) == {0}
    assert usual.absurd({0: far}) == {0}
    assert usual.absurd({0: 5.0}) == set()


def test_sums_may_vanish_and_come_back_and_grow() -> None:
    usual, norms = (
        UsualSums(),
        [1.0, 1.2, 1.1, 1.0, *[1e-9] * 20, 2.0, *(1.5**n for n in range(40))],
    )
    for norm in norms:
        assert not usual.absurd({0: norm})
    assert not UsualSums().absurd({0: 0.0, 1: 0.0})
    assert not UsualSums().absurd({})
