"""Direct tests of noise accuse wrong noise, and do not accuse right noise."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from mdgan.audit.direct import flaws_of
from mdgan.privacy.canaries import Canaries, read_watched
from mdgan.privacy.direct import DirectTests, Draw, Seen
from mdgan.privacy.noise import with_noise
from mdgan.privacy.random_stream import step_key
from tests.claims.registry import claim

NUMBERS, STEPS, SIGMA, CLIP, RATE, SAMPLES = 1500, 24, 0.7, 3.0, 0.1, 300

Noise = Callable[[Tensor, int, int], Tensor]
"""From Gaussian noise of deviation 1 [d], the number of a step and a worker to another."""


def seen(seed: int, noise: Noise | None = None, rate: float = RATE, steps: int = STEPS) -> Seen:
    """What a worker sees of some steps; without `noise` of those of the program."""
    tests, random = DirectTests(RATE, CLIP, SIGMA), np.random.default_rng(seed)
    for step in range(steps):
        drawn = int(random.binomial(SAMPLES, rate))
        known = torch.from_numpy(random.standard_normal(NUMBERS)).float()
        known *= drawn * CLIP / 2 / known.norm()
        if noise is None:
            key = step_key(b"%d" % seed, step, "noise")
            released = with_noise(known.clone(), CLIP, SIGMA, key, 1 / 32).double() * 32
        else:
            gaussian = torch.from_numpy(random.standard_normal(NUMBERS))
            released = known.double() + SIGMA * CLIP * noise(gaussian, step, seed)
        tests.add(released - known.double(), known.double(), Draw(drawn, drawn, SAMPLES))
    return tests.seen


def flaws(noise: Noise | None, first_seed: int = 0, **more: float) -> list[str]:
    """What is found of two workers."""
    workers = {str(n): [seen(first_seed + n, noise, **more)] for n in (1, 2)}  # type: ignore[arg-type] # of numbers
    return flaws_of(workers)


@claim("bound", "The tests accuse an honest run less than once in a hundred.")
def test_the_noise_of_the_program_is_not_accused() -> None:
    for run in range(3):
        assert flaws(None, 10 * run) == []


@pytest.mark.slow
@claim("bound", "The tests accuse an honest run less than once in a hundred.")
def test_the_noise_of_the_program_is_accused_in_less_than_one_run_of_a_hundred() -> None:
    accused = [flaw for run in range(300) if (flaw := flaws(None, 10 * run))]
    assert len(accused) <= 3, accused


def same_in_steps(gaussian: Tensor, step: int, _worker: int) -> Tensor:
    del gaussian
    return torch.randn(NUMBERS, generator=torch.Generator().manual_seed(step % 3)).double()


def same_at_workers(gaussian: Tensor, step: int, _worker: int) -> Tensor:
    del gaussian
    return torch.randn(NUMBERS, generator=torch.Generator().manual_seed(step)).double()


@pytest.mark.parametrize(
    ("noise", "says"),
    [
        (lambda r, *_: r / 2, "noise: 0.5 of what is stated (p < 1e-9)"),
        (lambda r, *_: r / 8, "noise: 0.12 of what is stated (p < 1e-9)"),
        (lambda r, *_: 0 * r, "noise: 0 of what is stated (p < 1e-9)"),
        (lambda r, *_: r * (torch.arange(NUMBERS) != 700), "noise on 1 of 1,500 numbers: 0 of"),
        (lambda r, *_: r * (1 - 0.9 * (torch.arange(NUMBERS) < 64)), "of 1,500 numbers: 0.1"),
        (lambda r, step, _: r * (step != 17), "noise of a step: 0 of what is stated"),
        (lambda r, *_: (2 * torch.special.ndtr(r) - 1) * 3**0.5, "values are not Gaussian"),
        (lambda r, *_: r.sign(), "values are not Gaussian"),
        (lambda r, *_: 1.05 * r.clamp(-2.2, 2.2), "values are not Gaussian"),
        (lambda r, *_: r[:750].repeat(2), "noise that repeats itself within a step"),
        (lambda r, *_: torch.cat([r[:750], -r[:750].flip(0)]), "repeats itself within a step"),
        (same_in_steps, "noise that comes again"),
        (same_at_workers, "workers 1 and 2 have the same noise"),
        (lambda r, step, _: same_at_workers(r, 0, 0) * (-1) ** step, "that of the step before"),
    ],
)  # fmt: skip
@claim("bound", "and tests whether noise and batches are as stated.")
def test_noise_that_is_not_as_stated_is_accused(noise: Noise, says: str) -> None:
    assert says in "; ".join(flaws(noise))


def test_gaussian_noise_of_the_right_size_and_more_noise_are_not_accused_of_being_little() -> None:
    assert flaws(lambda r, *_: r) == []
    assert not any("of what is stated" in flaw for flaw in flaws(lambda r, *_: 2 * r))


@claim("bound", "and tests whether noise and batches are as stated.")
def test_batches_that_draw_more_are_accused() -> None:
    assert "batches of 1.5" in "; ".join(flaws(None, rate=1.5 * RATE))


def test_sums_that_leak_beside_the_noise_are_accused() -> None:
    tests, random = DirectTests(RATE, CLIP, SIGMA), np.random.default_rng(0)
    known = torch.from_numpy(random.standard_normal(NUMBERS)) * CLIP
    for _ in range(STEPS):
        noise = SIGMA * CLIP * torch.from_numpy(random.standard_normal(NUMBERS))
        tests.add(noise + 0.5 * known, known, None)
    (flaw, *_) = flaws_of({"1": [tests.seen]})
    assert flaw.startswith("noise that follows the sum of samples")


def test_noise_that_leaves_out_the_direction_of_the_sum_is_accused() -> None:
    tests, random = DirectTests(RATE, CLIP, SIGMA), np.random.default_rng(0)
    known = torch.from_numpy(random.standard_normal(NUMBERS)) * CLIP
    for _ in range(STEPS):
        noise = SIGMA * CLIP * torch.from_numpy(random.standard_normal(NUMBERS))
        noise -= (noise @ known) / (known @ known) * known
        tests.add(noise, known, None)
    assert "noise that follows the sum of samples" in flaws_of({"1": [tests.seen]})[0]


def test_one_step_alone_is_enough_for_what_is_plain() -> None:
    """As of `moments`, which releases one sum."""
    assert flaws(None, steps=1) == []
    assert re.match(r"noise: 0\.(49|5) of what is", flaws(lambda r, *_: r / 2, steps=1)[0])
    assert flaws(same_at_workers, steps=1)[0].startswith("workers 1 and 2")
    part = flaws(lambda r, *_: r * (torch.arange(NUMBERS) > 10), steps=1)
    assert "noise on 8 of 1,500 numbers: 0 of what is stated" in part[0]


def test_lengths_are_told_by_what_they_may_be() -> None:
    tests = DirectTests(1.0, CLIP, SIGMA)
    tests.measured(longest=1.0, cut=1.0)
    noise = torch.from_numpy(np.random.default_rng(0).standard_normal(NUMBERS)) * SIGMA * CLIP
    tests.add(noise, torch.zeros(NUMBERS).double(), None)
    assert flaws_of({"1": [tests.seen]}) == []
    tests.measured(longest=3.0)
    assert flaws_of({"1": [tests.seen]}) == ["a sample adds 3 C"]


def test_what_was_seen_survives_a_process_and_files_of_older_versions_are_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "1.json"
    for process in range(2):
        canaries = Canaries(40, 1.0, 1.0, 1.0, num_planted=0)
        canaries.open(path)
        for step in range(3 + process):
            total = torch.zeros(2000, dtype=torch.float64)
            canaries.add_to(total, step_key(b"draws", step, "canaries"))
            total += torch.from_numpy(np.random.default_rng(step).standard_normal(2000))
            canaries.watch(total, torch.zeros(2000, dtype=torch.float64))
            canaries.taken()
        canaries.close()
    watched = read_watched(path)
    assert watched is not None
    assert [each.steps for each in watched.seen] == [3, 4]
    assert watched.steps == 7
    path.write_text('{"coins": [true, false], "scores": [0.5, -0.5], "planted": 0, "steps": 9}')
    watched = read_watched(path)
    assert watched is not None
    assert watched.seen == []
