from pathlib import Path

from mdgan.observe.recorded_run import RecordedRun
from mdgan.observe.report.numbers.swaps import (
    Swap,
    discriminator_paths,
    exactness,
    holdings,
    inexact,
    losses_of_workers,
    swap_counts,
    swaps_of,
)
from tests.unit.observe.fake_run import FakeRun


def swap(iteration: int, moves: dict[int, int], arrived: set[int] | None = None) -> Swap:
    takers = frozenset(moves.values() if arrived is None else arrived)
    return Swap(iteration, moves, takers, takers == frozenset(moves.values()))


def test_a_discriminator_is_followed_from_worker_to_worker() -> None:
    swaps = [swap(10, {1: 2, 2: 1}), swap(20, {2: 3, 3: 2}), swap(30, {1: 3, 3: 1})]
    assert discriminator_paths(3, swaps, {}) == {
        1: [1, 2, 3, 1],
        2: [2, 1, 1, 3],
        3: [3, 3, 2, 2],
    }


def test_permutations_are_followed_too() -> None:
    assert discriminator_paths(3, [swap(10, {1: 2, 2: 3, 3: 1})], {}) == {
        1: [1, 2],
        2: [2, 3],
        3: [3, 1],
    }


def test_a_discriminator_is_gone_with_its_worker() -> None:
    swaps = [swap(10, {1: 2, 2: 1}), swap(20, {1: 3, 3: 1})]
    paths = discriminator_paths(3, swaps, {2: 15})
    assert paths == {1: [1, 2, None], 2: [2, 1, 3], 3: [3, 3, 1]}


def test_what_did_not_arrive_stays_with_its_giver() -> None:
    paths = discriminator_paths(2, [swap(10, {1: 2, 2: 1}, arrived={2})], {2: 30})
    assert paths == {1: [1, 2], 2: [2, None]}


def test_swaps_are_counted_by_giver_and_taker() -> None:
    swaps = [swap(10, {1: 2, 2: 1}), swap(20, {1: 2, 2: 1}, arrived={1})]
    assert swap_counts(swaps) == {(1, 2): 1, (2, 1): 2}


def test_recorded_swaps_are_read(tmp_path: Path) -> None:
    fake = FakeRun(workers=5, iterations=60, swap_interval=10, inexact=frozenset({1}))
    swaps = swaps_of(RecordedRun.read(fake.write(tmp_path / "run")))
    assert [swap.iteration for swap in swaps] == [10, 20, 30, 40, 50]
    assert all(len(swap.moves) == 4 and swap.arrived == set(swap.moves) for swap in swaps)
    assert inexact(swaps) == [20]
    assert exactness(swaps) == "1 of 5 swaps did not arrive bit for bit, after iteration 20"
    assert exactness(swaps[:1]) == "all discriminators of 1 swap arrived bit for bit"


def test_every_discriminator_is_at_one_worker_at_a_time(tmp_path: Path) -> None:
    run = RecordedRun.read(FakeRun(workers=7, iterations=90).write(tmp_path / "run"))
    paths = discriminator_paths(7, swaps_of(run), {})
    for places in zip(*paths.values(), strict=True):
        assert sorted(place or 0 for place in places) == list(range(1, 8))


def test_an_old_record_without_hashes_is_not_called_exact(tmp_path: Path) -> None:
    path = FakeRun(workers=2, iterations=5).write(tmp_path / "run")
    lines = ['{"event": "swap", "iteration": 3, "moves": [[1, 2], [2, 1]]}', '{"event": "swap"}']
    (path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    swaps = swaps_of(RecordedRun.read(path))
    assert len(swaps) == 1
    assert exactness(swaps) == "1 swap, not all of them verified"


def test_lost_workers_and_holdings_are_read(tmp_path: Path) -> None:
    fake = FakeRun(workers=3, iterations=40, lost={2: 17}, classes=4)
    run = RecordedRun.read(fake.write(tmp_path / "run"))
    assert losses_of_workers(run) == {2: (17, "connection closed by peer")}
    held = holdings(run)
    assert list(held) == [1, 2, 3]
    assert all(len(counts) == 4 for counts in held.values())
