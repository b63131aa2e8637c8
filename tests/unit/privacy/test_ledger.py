"""Spending of samples across crashes, orderly ends, and any division and names of samples."""

import os
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.privacy.accountant import PrivacyCharge, PrivacyHistory
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger import BLOCK, Ledger, look_up
from mdgan.privacy.ledger_file import FILE
from mdgan.privacy.ledger_view import LedgerView, Plan
from tests.claims.registry import claim
from tests.marks import examples

PLAN = Plan("as asked", "sample", "rdp", 1.5, 0.1, 100, 10_000, 4.0)
OTHER = Plan("something else", "sample", "rdp", 2.5, 0.2, 7, 7, 6.0)


def of(samples: Collection[int]) -> Contents:
    """Contents of samples that have numbers."""
    digests = sorted(number.to_bytes(32, "big") for number in samples)
    return Contents(tuple(digests))


SHARD = of(range(5))


def as_planned(plan: Plan = PLAN) -> Callable[[LedgerView], Plan]:
    """Goes on with the same plan, as `plan_of` does."""
    return lambda _known: plan


def begun(folder: Path, contents: Contents = SHARD, plan: Plan = PLAN) -> Ledger:
    return Ledger(folder, contents, as_planned(plan))


def take(ledger: Ledger, steps: int) -> list[bytes]:
    keys = []
    for _ in range(steps):
        keys.append(ledger.key("noise"))
        ledger.taken += 1
    return keys


def spend(folder: Path, samples: Collection[int], steps: int, plan: Plan = PLAN) -> None:
    ledger = begun(folder, of(samples), plan)
    take(ledger, steps)
    ledger.close()


def in_a_child(act: Callable[[Callable[[bytes], object]], object]) -> bytes:
    """What a process has told before `kill -9`."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        act(lambda told: os.write(writer, told))
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    return told


# ----- crashes and ends


@pytest.mark.parametrize("steps", [1, BLOCK, BLOCK + 1])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_after_a_crash_no_key_comes_again_and_no_step_is_lost(tmp_path: Path, steps: int) -> None:
    told = in_a_child(lambda tell: [tell(key) for key in take(begun(tmp_path), steps)])
    used = [told[i : i + 32] for i in range(0, len(told), 32)]
    assert len(set(used)) == steps
    assert steps <= look_up(tmp_path, SHARD).taken <= steps + BLOCK
    ledger = begun(tmp_path)
    assert not set(take(ledger, 2 * BLOCK)).intersection(used)
    ledger.close()


@claim("no-noise-again", "Each process draws its noise anew, so no copy of the file repeats it.")
@pytest.mark.parametrize("plan", [PLAN, OTHER])
def test_a_copy_that_is_put_back_repeats_no_key(tmp_path: Path, plan: Plan) -> None:
    spend(tmp_path / "ledger", range(5), 3)
    shutil.copytree(tmp_path / "ledger", tmp_path / "copy")
    told = []
    for folder in ("ledger", "copy"):
        ledger = begun(tmp_path / folder, plan=plan)
        told += take(ledger, 4)
        ledger.close()
        assert look_up(tmp_path / folder, SHARD).taken == 7
    assert len(set(told)) == 8


@settings(max_examples=examples(4), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2 * BLOCK + 3), st.booleans()), max_size=6))
def test_whatever_happens_no_key_comes_twice(ends: list[tuple[int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        notes: list[bytes] = []
        for steps, in_order in ends:
            ledger = begun(Path(name))
            notes += take(ledger, steps)
            if in_order:
                ledger.close()
            else:  # as if killed: the system takes the lock back, and nothing is written
                os.close(ledger._lock)
        assert len(set(notes)) == len(notes) <= look_up(Path(name), SHARD).taken + (not notes)


# ----- samples, and not shards


def past(*charges: PrivacyCharge, order: float = PLAN.order) -> tuple[PrivacyHistory, ...]:
    return (PrivacyHistory(order, tuple(sorted(charges))),)


@claim("goes-on-counting", "A worker is charged by its unit that has spent the most.")
def test_a_superset_has_the_past_of_its_worst_sample_and_a_part_only_its_own(
    tmp_path: Path,
) -> None:
    spend(tmp_path, range(3), 3)
    spend(tmp_path, range(3, 6), 5, OTHER)
    spend(tmp_path, range(2, 4), 4)  # one of each
    first, second = PrivacyCharge(1.5, 0.1, 3), PrivacyCharge(2.5, 0.2, 5)
    pasts = {0: past(first), 5: past(second, order=6.0)}
    pasts[2], pasts[3] = (
        past(PrivacyCharge(1.5, 0.1, 7)),
        past(second, PrivacyCharge(1.5, 0.1, 4), order=6.0),
    )
    for sample, known in pasts.items():
        assert look_up(tmp_path, of([sample])).histories == known
    everything = look_up(tmp_path, of(range(9)))
    assert set(everything.histories) == {known for (known,) in pasts.values()}
    assert everything.taken == 9
    assert look_up(tmp_path, of([7, 8])) == LedgerView(rows=(None,))


def test_other_divisions_have_other_random_numbers(tmp_path: Path) -> None:
    notes: list[bytes] = []
    for shard in (range(5), range(6), range(5), [4, 5], range(4)):
        ledger = begun(tmp_path, of(shard))
        notes += take(ledger, 3)
        ledger.close()
    assert len(set(notes)) == 15
    assert look_up(tmp_path, of([4])).taken == 12


def test_of_a_plan_by_prv_the_whole_counts_for_later_ones(tmp_path: Path) -> None:
    spend(tmp_path, range(5), 2, Plan("prv", "sample", "prv", 1.5, 0.1, 100, 100, 4.0))
    assert look_up(tmp_path, SHARD).histories == past(PrivacyCharge(1.5, 0.1, 100))


# ----- one process at a time


def test_one_process_at_a_time_and_no_reader_but_the_owner(tmp_path: Path) -> None:
    ledger = begun(tmp_path)
    ledger.key("noise")
    for samples in (range(5), [4], range(4, 9)):
        with pytest.raises(BadInput, match=r"--dp-ledger .*trains on some of these samples"):
            begun(tmp_path, of(samples))
    begun(tmp_path, of([7])).close()
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    ledger.close()
    begun(tmp_path, of([4])).close()
    assert not list(tmp_path.glob(".run-*"))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_another_process_is_refused_and_a_killed_one_frees_its_samples(tmp_path: Path) -> None:
    def try_it(tell: Callable[[bytes], object]) -> None:
        try:
            begun(tmp_path, of([4, 5]))
        except BadInput as error:
            tell(str(error).encode())

    ledger = begun(tmp_path)
    assert b"another run, or another worker of this one, trains on some" in in_a_child(try_it)
    ledger.close()
    in_a_child(lambda _: take(begun(tmp_path), 1))
    begun(tmp_path, of([4])).close()


# ----- damage


def test_a_damaged_ledger_is_no_new_one(tmp_path: Path) -> None:
    def write(content: bytes) -> Callable[[sqlite3.Connection], object]:
        return lambda _db: (tmp_path / FILE).write_bytes(content)

    def execute(case: str) -> Callable[[sqlite3.Connection], object]:
        return lambda db: db.execute(case)

    damages = [
        *(write(b"something else altogether" * 100), write(b"")),
        lambda _db: os.truncate(tmp_path / FILE, 5000),
        *(execute("DELETE FROM meta"), execute("UPDATE meta SET secret = 'known'")),
        *(execute("DELETE FROM runs"), execute("UPDATE runs SET plan = '{}'")),
        *(execute("UPDATE runs SET steps = -1"), execute("UPDATE runs SET steps = 'many'")),
        *(execute("DELETE FROM histories"), execute("UPDATE histories SET parent = number")),
        execute("DROP TABLE samples"),
    ]
    for damage in damages:
        spend(tmp_path, range(5), 3)
        db = sqlite3.connect(tmp_path / FILE, isolation_level=None)
        damage(db)
        db.close()
        for act in (begun, lambda folder: look_up(folder, SHARD)):
            with pytest.raises(BadInput, match=r"damaged .*restore it from a copy") as refused:
                act(tmp_path)
            assert "\n" not in str(refused.value)
        (tmp_path / FILE).unlink()


def test_a_ledger_of_another_version_is_refused(tmp_path: Path) -> None:
    spend(tmp_path, range(5), 3)
    db = sqlite3.connect(tmp_path / FILE)
    db.execute("PRAGMA user_version = 4")
    db.close()
    with pytest.raises(BadInput, match="of version 4, and this mdgan knows 3"):
        begun(tmp_path)
    old = tmp_path / "old"
    old.mkdir()
    (old / f"{'0a' * 32}.json").write_text("{}")
    for act in (begun, lambda folder: look_up(folder, SHARD)):
        with pytest.raises(BadInput, match=r"1 file\(s\) .json .* earlier version.*elsewhere"):
            act(old)


class AlmostFull(sqlite3.Connection):
    """A connection with a disk that has no room left."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        super().execute("PRAGMA max_page_count = 1")


class Interrupted(sqlite3.Connection):
    """A connection during which the user presses Ctrl-C when half of it is on the disk."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        super().execute("PRAGMA cache_size = 1")

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        result = super().execute(sql, *values)
        if sql.startswith("INSERT OR REPLACE"):
            self.end()
        return result

    def end(self) -> None:
        raise KeyboardInterrupt


class Killed(Interrupted):
    """The same, with `kill -9` of the process."""

    def end(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("kind", [AlmostFull, Interrupted, Killed])
def test_what_goes_wrong_while_samples_are_entered_leaves_the_account_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[sqlite3.Connection]
) -> None:
    spend(tmp_path, range(5), 3)
    before, many = (tmp_path / FILE).read_bytes(), of(range(20_000))
    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=kind))
        if kind is AlmostFull:
            with pytest.raises(BadInput, match=r"--dp-ledger .*full.*free space"):
                begun(tmp_path, many)
        elif kind is Interrupted:
            with pytest.raises(KeyboardInterrupt):
                begun(tmp_path, many)
        else:
            in_a_child(lambda _: begun(tmp_path, many))
            assert (tmp_path / FILE).read_bytes() != before, "some was written"
    assert look_up(tmp_path, SHARD).histories == past(PrivacyCharge(1.5, 0.1, 3))
    assert look_up(tmp_path, of(range(9, 20_000))) == LedgerView(rows=(None,))
    spend(tmp_path, range(9), 1)


def test_a_look_writes_nothing(tmp_path: Path) -> None:
    spend(tmp_path, range(5), 3)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert look_up(tmp_path, of(range(9))).taken == 3
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert look_up(tmp_path / "nowhere", SHARD) == LedgerView()
    assert not (tmp_path / "nowhere").exists()
