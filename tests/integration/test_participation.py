"""MD-GAN with fewer discriminators than workers, over real processes."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.processes import QUICK, generator_bytes, read_events, read_metrics, run, run_here

PART = [
    "--world-size",
    "7",
    "--participation",
    "0.5",
    "--swap-interval",
    "1",
    "--log-interval",
    "1",
]
MEMORY = ["--transport", "memory"]
SLOW = pytest.mark.slow


def swaps(folder: Path) -> list[dict[str, Any]]:
    return sorted(read_events(folder, "swap"), key=lambda event: int(event["iteration"]))


def in_memory(folder: Path, *flags: str, out: str) -> Path:
    result = run_here("train", *MEMORY, *flags, "--out", out, cwd=folder)
    assert result.status == 0, result
    return folder / out


def check_swaps(folder: Path, last: int) -> None:
    """Every swap is recorded, and what the next one moves is where this one has put it, whole."""
    result = swaps(folder)
    assert [event["iteration"] for event in result] == list(range(1, last))
    holders: set[int] = set()
    for event in result:
        moves = dict(event["moves"])
        assert event["exact"] is True, event
        assert all(event["taken"][str(t)] == event["given"][str(g)] for g, t in moves.items())
        if event is not result[0]:
            assert moves.keys() <= holders, "a worker gave what it did not have"
        else:
            holders = set(moves)
        holders = {moves.get(worker, worker) for worker in holders}
        assert len(holders) == 3


@SLOW
@pytest.mark.parametrize("swap", ["pairs", "derangement"])
def test_any_spread_gives_the_same_generator(tmp_path: Path, swap: str) -> None:
    flags = [*QUICK, *PART, "--swap", swap]
    folders = [
        in_memory(tmp_path, *flags, "--workers-per-host", "1", out="alone"),
        in_memory(tmp_path, *flags, out="together"),
    ]
    for count in ("1", "3", "6"):
        spread = run("train", *flags, "--workers-per-host", count, "--out", count, cwd=tmp_path)
        assert spread.status == 0, spread
        folders.append(tmp_path / count)
    assert len({generator_bytes(folder) for folder in folders}) == 1
    for folder in folders:
        check_swaps(folder, 12)
        assert [record["workers"] for record in read_metrics(folder)] == [3] * 12
        assert [e["moves"] for e in swaps(folder)] == [e["moves"] for e in swaps(folders[0])]


def server_bytes(folder: Path) -> tuple[int, int]:
    """What the server has sent as batches, and received as feedback."""
    rows = map(json.loads, (folder / "trace" / "server.jsonl").read_text().splitlines())
    last = [row for row in rows if "sent_bytes" in row][-1]
    return last["sent_bytes"]["BATCHES"], last["received_bytes"]["FEEDBACK"]


def test_the_server_sends_and_receives_that_fraction(tmp_path: Path) -> None:
    flags = [*QUICK, *PART, "--kappa", "2", "--workers-per-host", "1"]
    part = server_bytes(in_memory(tmp_path, *flags, out="part"))
    full = in_memory(tmp_path, *flags, "--participation", "1", out="full")
    assert part == pytest.approx([0.5 * count for count in server_bytes(full)], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("stale", [pytest.param("0", marks=SLOW), "1"])
def test_a_run_that_was_stopped_ends_the_same(tmp_path: Path, stale: str) -> None:
    flags = [*QUICK, *PART, "--stale", stale, "--checkpoint-interval", "5", "--swap-interval", "3"]
    in_memory(tmp_path, *flags, "--iterations", "10", out="cut")
    resumed = run_here("train", "--resume", "cut", "--iterations", "17", cwd=tmp_path)
    assert resumed.status == 0, resumed
    whole = in_memory(tmp_path, *flags, "--iterations", "17", out="whole")
    assert generator_bytes(tmp_path / "cut") == generator_bytes(whole)
    last = "checkpoints/0000017"
    workers = sorted(path.name for path in (whole / last).glob("worker-*"))
    assert len(workers) == 6
    for name in workers:
        again, once = tmp_path / "cut" / last / name, whole / last / name
        assert again.read_bytes() == once.read_bytes(), name
    moves = [event["moves"] for event in swaps(whole) if event["iteration"] > 10]
    assert [e["moves"] for e in swaps(tmp_path / "cut") if e["iteration"] > 10] == moves != []


@pytest.mark.parametrize("participation", [pytest.param("1", marks=SLOW), "0.01"])
def test_resumed_with_another_participation(tmp_path: Path, participation: str) -> None:
    flags = [*QUICK, *PART, "--checkpoint-interval", "5"]
    folder = in_memory(tmp_path, *flags, "--iterations", "5", out="run")
    other = ["--participation", participation, "--iterations", "10"]
    resumed = run_here("train", "--resume", "run", *other, cwd=tmp_path)
    assert resumed.status == 0, resumed
    count = 6 if participation == "1" else 1
    assert [record["workers"] for record in read_metrics(folder)] == [3] * 5 + [count] * 5
    given = [len(event["given"]) for event in swaps(folder) if event["iteration"] > 5]
    assert given == [count] * 4
