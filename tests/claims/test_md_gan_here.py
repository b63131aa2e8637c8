"""Whole runs keep the promises of docs/md-gan-here.md."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.claims.registry import claim
from tests.processes import QUICK, REPOSITORY, read_events, run_here

PAGE = REPOSITORY / "docs" / "md-gan-here.md"
FROZEN = ["--discriminator-optimizer", "lr=1e-30"]
"""Steps that are too short for float32, so that only moments and running means change."""


def states(cwd: Path, name: str, *flags: str) -> list[dict[str, Tensor]]:
    """What the workers hold at the end, in their order."""
    options = ["--transport", "memory", "--eval-interval", "0", *QUICK, *FROZEN, *flags]
    ran = run_here("train", *options, "--out", name, cwd=cwd)
    assert ran.status == 0, ran
    return [load_file(path) for path in sorted((cwd / name).glob("checkpoints/*/worker-*"))]


def part(state: dict[str, Tensor], *words: str) -> Tensor:
    """Some of a state's tensors in one; running means and counts are no weights."""
    results = [
        tensor.flatten().double()
        for name, tensor in sorted(state.items())
        if any(word in name for word in words) and "running" not in name and "num_" not in name
    ]
    assert results, sorted(state)
    return torch.cat(results)


@claim("first-line", "and which flags change an iteration")
def test_the_page_shows_what_its_command_says(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (command,) = re.findall(r"`mdgan (train --world-size \d+)`:\n", text)
    (shown,) = re.findall(r"```\n(MD-GAN .*)\n```", text)
    changed = ["--step-samples", "99", "--stale", "1", "--swap", "derangement"]
    for flags, expected in ([], True), (changed, False):
        ran = run_here(*command.split(), "--dry-run", *flags, cwd=tmp_path)
        (line,) = re.findall(r"^  trains +(.*)$", ran.output, re.MULTILINE)
        assert (line == shown) is expected
    assert "exchange along a permutation" in line
    assert line.endswith(
        "each learns from 99 own samples and all batches (--step-samples), --stale 1"
    )


@claim("begin-equal", "all θ_n begin equal, drawn from `--seed`")
def test_discriminators_begin_equal_and_by_the_seed(tmp_path: Path) -> None:
    flags = ["--world-size", "4", "--iterations", "1"]
    results = {seed: states(tmp_path, seed, *flags, "--seed", seed) for seed in ("0", "1")}
    weights = {
        seed: [part(each, "model.") for each in of_seed] for seed, of_seed in results.items()
    }
    for of_seed in weights.values():
        assert len(of_seed) == 3
        assert all(torch.equal(each, of_seed[0]) for each in of_seed)
    assert not torch.equal(weights["0"][0], weights["1"][0])


@pytest.mark.parametrize("kind", ["all", "weights"])
@claim("pairs", "The optimizer's moments move with θ_n")
@claim("pairs", "`--set swap_state=weights`: θ_n alone")
def test_moments_move_with_a_discriminator_unless_told_otherwise(tmp_path: Path, kind: str) -> None:
    """Discriminators that stay as they are have the moments of the data that they saw."""
    flags = ["--world-size", "3", "--partition", "sorted", "--iterations", "5", "--kappa", "1"]
    stayed = states(tmp_path, "stayed", *flags, "--swap-interval", "0")
    swapped = states(tmp_path, kind, *flags, "--swap-interval", "4", "--set", f"swap_state={kind}")
    (event,) = read_events(tmp_path / kind, "swap")
    assert event["exact"]
    assert not event["refused"]
    for own, other in zip(stayed, swapped, strict=True):
        kept_its_own = torch.equal(part(own, "exp_avg"), part(other, "exp_avg"))
        assert kept_its_own is (kind == "weights")
