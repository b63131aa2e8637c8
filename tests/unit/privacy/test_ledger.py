"""What the samples of a worker have spent, over crashes, orderly ends and new ranks."""

import os
import signal
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.data.shard import Shard
from mdgan.errors import BadInput
from mdgan.privacy.accountant import Charge
from mdgan.privacy.ledger import BLOCK, Ledger, Plan, fingerprint, read
from tests.unit.privacy.halves import Few, make_shard

PLAN = Plan("as asked", 1.5, 10_000)
NAME = "shard"


def begun(folder: Path) -> Ledger:
    ledger = Ledger(folder, NAME)
    ledger.begin(PLAN, 0.1)
    return ledger


def take(ledger: Ledger, steps: int) -> list[bytes]:
    keys = []
    for _ in range(steps):
        keys.append(ledger.key("noise"))
        ledger.advance()
    return keys


def killed_after(folder: Path, steps: int) -> list[bytes]:
    """The keys that a process has used before `kill -9`."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        for key in take(begun(folder), steps):
            os.write(writer, key)
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        used = pipe.read()
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    return [used[i : i + 32] for i in range(0, len(used), 32)]


@pytest.mark.parametrize("steps", [1, BLOCK, BLOCK + 1])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_after_a_crash_no_key_comes_again_and_no_step_is_lost(tmp_path: Path, steps: int) -> None:
    used = killed_after(tmp_path, steps)
    assert len(set(used)) == steps
    content = read(tmp_path / f"{NAME}.json")
    assert content is not None
    assert steps <= content.taken <= steps + BLOCK
    ledger = begun(tmp_path)
    assert not set(take(ledger, 2 * BLOCK)).intersection(used)
    ledger.close()


def test_after_an_orderly_end_the_next_key_is_that_which_would_have_come(tmp_path: Path) -> None:
    for folder in ("whole", "cut"):
        (tmp_path / folder).mkdir()
    ledger = begun(tmp_path / "whole")
    secret = (tmp_path / "whole" / f"{NAME}.json", tmp_path / "cut" / f"{NAME}.json")
    take(ledger, 0)
    ledger.key("noise")
    ledger.close()
    secret[1].write_bytes(secret[0].read_bytes())
    whole = begun(tmp_path / "whole")
    expected = take(whole, 10)
    whole.close()
    found = []
    for steps in (3, 0, 7):
        cut = begun(tmp_path / "cut")
        found += take(cut, steps)
        cut.key("noise")  # a half that was learnt early, and leaves nothing
        cut.close()
    assert found == expected
    assert secret[0].read_bytes() == secret[1].read_bytes()


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 2 * BLOCK + 3), st.booleans()), max_size=6))
def test_whatever_happens_no_key_comes_twice(ends: list[tuple[int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        seen: list[bytes] = []
        for steps, in_order in ends:
            ledger = begun(Path(name))
            seen += take(ledger, steps)
            if in_order:
                ledger.close()
            else:  # as if killed: the system takes the lock back, and nothing is written
                os.close(ledger._lock)
        last = begun(Path(name))
        assert len(set(seen)) == len(seen) <= last.content.taken
        last.close()


def test_steps_of_several_kinds_are_all_there(tmp_path: Path) -> None:
    ledger = begun(tmp_path)
    take(ledger, 3)
    ledger.close()
    ledger = begun(tmp_path)
    ledger.begin(Plan("something else", 2.5, 7), 0.2)
    take(ledger, 4)
    ledger.close()
    content = read(tmp_path / f"{NAME}.json")
    assert content is not None
    assert content.charges == (Charge(1.5, 0.1, 3), Charge(2.5, 0.2, 4))


def test_one_process_at_a_time_and_no_reader_but_the_owner(tmp_path: Path) -> None:
    ledger = begun(tmp_path)
    ledger.key("noise")
    with pytest.raises(BadInput, match="another worker of this machine trains on the same"):
        Ledger(tmp_path, NAME)
    assert ledger.path.stat().st_mode & 0o777 == 0o600
    ledger.close()
    begun(tmp_path).close()


def test_a_damaged_ledger_is_no_new_one(tmp_path: Path) -> None:
    path = tmp_path / f"{NAME}.json"
    path.write_text('{"secret": "00", "entries": []}')
    with pytest.raises(BadInput, match=r"damaged .*restore it from a copy"):
        Ledger(tmp_path, NAME)


def test_a_shard_is_known_again_whatever_its_rank_and_order() -> None:
    shard = make_shard(100)
    again = Shard(Few(shard.taken(torch.arange(100)).images), torch.arange(100), torch.Generator())
    again.next_batch(7)
    assert fingerprint(again) == fingerprint(shard)
    assert fingerprint(make_shard(100, seed=1)) != fingerprint(shard)
    assert fingerprint(make_shard(99)) != fingerprint(shard)
