"""`--cores`: how it is read, what is refused, and on which cores processes compute."""

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.launch import machine
from mdgan.launch.settings import LaunchSettings
from mdgan.settings.machine import check_cores, num_cores, parse_cores, pin
from tests.unit.settings.refusals import refusal

USABLE = sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("0", [{0}]),
        ("0,1,1", [{0}, {1}, {1}]),
        ("0..3, 4..7", [{0, 1, 2, 3}, {4, 5, 6, 7}]),
        ("2..2,0", [{2}, {0}]),
    ],
)
def test_entries_are_read_in_order(text: str, entries: list[set[int]]) -> None:
    assert parse_cores(text) == tuple(map(frozenset, entries))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "'' is no core; write \"0,1,1\""),
        ("0,", "'' is no core"),
        ("0;1", "'0;1' is no core"),
        ("-1", "'-1' is no core"),
        ("0..", "'0..' is no core"),
        ("²", "'²' is no core"),
        ("99999", "'99999' is no core"),
        ("all", "'all' is no core"),
        ("0,3..1", "3..1 runs backwards; write 1..3"),
    ],
)
def test_what_is_no_list_is_refused_in_one_line(text: str, reason: str) -> None:
    assert refusal(LaunchSettings, {"cores": text}).startswith(f"--cores {text}: {reason}")


@given(st.text(alphabet="0123456789., a", max_size=12))
def test_junk_is_read_or_refused(text: str) -> None:
    try:
        entries = parse_cores(text)
    except ValueError:
        entries = ()
    assert len(entries) in (0, text.count(",") + 1)
    assert all(entries)


def test_hosts_use_all_cores_unless_the_user_says_which() -> None:
    assert LaunchSettings().core_sets == ()
    assert LaunchSettings(cores="1,0..1").core_sets == (frozenset({1}), frozenset({0, 1}))


def test_a_core_that_is_not_there_is_named() -> None:
    check_cores(f"{USABLE[0]},{USABLE[-1]}")
    with pytest.raises(BadInput, match=r"--cores 9998\.\.9999: core 9998 is none"):
        check_cores("9998..9999")


@pytest.mark.parametrize(
    ("usable", "named"), [({4, 5, 6}, "4..6"), ({0, 2}, "0, 2"), ({3}, "3..3")]
)
def test_cores_that_are_there_are_named(
    usable: set[int], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: usable)
    with pytest.raises(
        BadInput,
        match=re.escape(f"core 1 is none that this process may use; use some of {named}, or any"),
    ):
        check_cores("1")


def test_a_system_that_pins_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdgan.settings.machine.PINS_PROCESSES", False)
    with pytest.raises(BadInput, match="--cores 0: this system pins no process"):
        check_cores("0")


def test_a_core_that_was_taken_away_is_told_in_one_line() -> None:
    with pytest.raises(BadInput, match="--cores 9998,9999: the system refuses them"):
        pin(frozenset({9998, 9999}))


def hosts_on(cores: str, num_hosts: int) -> list[tuple[set[int], int | None, int]]:
    """Where each host computes, how many share that, and with how many threads.

    Each is its own thread here, which can be pinned alone.
    """
    launch = LaunchSettings(cores=cores)

    def start(host: int) -> tuple[set[int], int | None, int]:
        sharing = machine.take_cores(launch, host, num_hosts)
        return os.sched_getaffinity(0), sharing, machine.num_threads(launch, sharing or num_hosts)

    results = []
    for host in range(num_hosts):
        with ThreadPoolExecutor(1) as one:
            results.append(one.submit(start, host).result())
    return results


def test_without_cores_nothing_is_pinned() -> None:
    assert hosts_on("any", 1) == [(set(USABLE), None, num_cores())]


@pytest.mark.skipif(len(USABLE) < 2, reason="needs two cores")
def test_each_host_gets_its_entry_and_threads_follow() -> None:
    one, other = USABLE[:2]
    alone, shared = ({one}, 1, 1), ({other}, 2, 1)
    assert hosts_on(f"{one},{other},{other}", 3) == [alone, shared, shared]
    in_turn = [({one}, 2, 1), ({other}, 1, 1), ({one}, 2, 1)]
    assert hosts_on(f"{one},{other}", 3) == in_turn


@pytest.mark.skipif(USABLE[:2] != [0, 1], reason="needs the cores 0 and 1")
def test_overlapping_entries_share_threads() -> None:
    assert hosts_on("0..1", 1) == [({0, 1}, 1, 2)]
    assert hosts_on("0..1,1", 2) == [({0, 1}, 2, 1), ({1}, 2, 1)]
    assert set(USABLE) == os.sched_getaffinity(0), "this thread was left alone"
