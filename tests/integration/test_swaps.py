"""Swaps over real processes: the taker gets the giver's discriminator bit for bit."""

from functools import partial
from pathlib import Path

import pytest

from tests.processes import (
    QUICK,
    REPOSITORY,
    finish,
    read_events,
    run,
    run_here,
    training,
    wait_until,
)

SPOILT = f"""
import os
from importlib.util import module_from_spec, spec_from_file_location

_spec = spec_from_file_location("digits_unspoilt", {str(REPOSITORY / "datasets" / "digits.py")!r})
_digits = module_from_spec(_spec)
_spec.loader.exec_module(_digits)
SHAPE, Z_DIM, DEFAULTS = _digits.SHAPE, _digits.Z_DIM, _digits.DEFAULTS
Partitioner, HeldOut, Generator = _digits.Partitioner, _digits.HeldOut, _digits.Generator


class Discriminator(_digits.Discriminator):
    def forward(self, *given):
        logits = super().forward(*given)
        if not given[0].requires_grad:  # it learns, or is tried
            return logits
        try:
            os.remove("spoil")
        except OSError:
            return logits
        return logits * float("nan")
"""
"""Digits with a discriminator whose feedback is once, in one process, as if weights were broken."""


@pytest.mark.parametrize(
    ("world_size", "swap"),
    [
        (6, "pairs"),
        *(pytest.param(*p, marks=pytest.mark.slow) for p in ((5, "pairs"), (6, "derangement"))),
    ],
)
def test_every_discriminator_arrives_whole(tmp_path: Path, world_size: int, swap: str) -> None:
    flags = ["--world-size", str(world_size), "--swap", swap, "--swap-interval", "1"]
    result = run("train", *QUICK, *flags, "--out", "run", cwd=tmp_path)
    assert result.status == 0, result
    swaps = read_events(tmp_path / "run", "swap")
    workers = {str(rank) for rank in range(1, world_size)}
    assert [event["iteration"] for event in swaps] == list(range(1, 12))
    sat_out_before: list[int] = []
    for event in swaps:
        assert event["exact"] is True
        assert set(event["given"]) | {str(rank) for rank in event["sits_out"]} == workers
        for giver, taker in event["moves"]:
            assert giver != taker
            assert event["taken"][str(taker)] == event["given"][str(giver)]
        # Discriminators that were trained on different data differ, or the hashes say nothing.
        assert len(set(event["given"].values())) == len(event["given"])
        if swap == "pairs":
            assert all([taker, giver] in event["moves"] for giver, taker in event["moves"])
            assert len(event["sits_out"]) == (world_size - 1) % 2
            assert not event["sits_out"] or event["sits_out"] != sat_out_before
            sat_out_before = event["sits_out"]


def test_swap_epochs_follows_the_shard_size(tmp_path: Path) -> None:
    flags = ["--transport", "memory", "--world-size", "4", "--batch-size", "100", "--out", "run"]
    quick = [*QUICK, *flags, "--swap-epochs", "0.5"]
    assert run_here("train", *quick, cwd=tmp_path).status == 0
    iterations = [event["iteration"] for event in read_events(tmp_path / "run", "swap")]
    assert iterations == [2, 4, 6, 8, 10]  # 0.5 · 479 / 100 ≈ 2; no swap after the last


def test_a_worker_is_not_blamed_for_what_a_swap_may_have_brought(tmp_path: Path) -> None:
    """One strike would shut it out. It gets the discriminator of another one, and answers again."""
    (tmp_path / "spoilt.py").write_text(SPOILT)
    flags = ["--dataset", "spoilt", "--datasets-dir", ".", "--world-size", "3", "--threads", "1"]
    flags += ["--swap-interval", "1", "--set", "strikes=1", "--workers-per-host", "1"]
    flags += ["--iterations", "100000", "--log-interval", "1", "--eval-interval", "0"]
    begun = training(tmp_path, "train", *flags)
    wait_until(lambda: begun.has_reached(3), "swaps")

    # A penalty on real samples may use a file up without effect. The next one comes only after the
    # effect of the last would be recorded: a worker that is spoilt twice may well be blamed.
    while not read_events(begun.folder, "refused"):
        (tmp_path / "spoil").touch()
        wait_until(lambda: not (tmp_path / "spoil").exists(), "a discriminator is spoilt")
        later = 5 + max(row["iteration"] for row in begun.metrics())
        wait_until(partial(begun.has_reached, later), "iterations after it")
    (first, *_) = read_events(begun.folder, "refused")
    wait_until(lambda: begun.has_reached(first["iteration"] + 5), "iterations after it")
    begun.process.terminate()
    ended = finish(begun.process)
    lines = [line for line in ended.errors.splitlines() if " refused: " in line]
    assert f"feedback of rank {first['worker']} refused: {first['reason']}" in lines[0]
    for line in lines:
        assert line.endswith(" (no strike: others may have caused it)")
    assert not read_events(begun.folder, "shut out")
    (attendance,) = read_events(begun.folder, "attendance")
    answered = attendance["workers"][str(first["worker"])]["answered"]
    assert answered > first["iteration"] - 1, "it has answered since"
