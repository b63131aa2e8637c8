"""A worker whose feedback is whole and of the right shape, but not what its discriminator says."""

import re
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from benchmarks.hostile import Hostile, SignFlipper
from mdgan.families.mdgan import build
from mdgan.families.mdgan.algorithm import Judgement
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.labels import Samples
from tests.claims.registry import claim
from tests.hostile.bench import RANK, TINY
from tests.marks import mostly_slow
from tests.processes import Finished, generator_bytes, read_events, read_metrics, run_here

FLAGS = (
    *("train", *TINY, "--world-size", "6", "--batch-size", "10", "--log-interval", "1"),
    *("--swap-interval", "15"),
)
ALONE = f"rank {RANK} looks like an attacker"


class Puller(Hostile):
    """Draws every sample the same way, twelve times as much as the truth moves it."""

    def feedback(self, judged: Samples) -> Judgement:
        """Returns what does not depend on samples; the rest is honest."""
        honest = super().feedback(judged)
        there = torch.linspace(-1, 1, honest.feedback[0].numel()).expand(len(honest.feedback), -1)
        pull = there.reshape(honest.feedback.shape)
        return honest._replace(feedback=pull * (12 * honest.feedback.norm() / pull.norm()))


class Opposite(Hostile):
    """Answers three times the opposite of what another worker answers, which it knows."""

    known: "Queue[Tensor]" = Queue()

    def feedback(self, judged: Samples) -> Judgement:
        """Waits for the other one; the rest is honest."""
        honest, victims = super().feedback(judged), self.known.get(timeout=300)
        pull = -victims.mean(0).expand_as(honest.feedback)
        return honest._replace(feedback=pull * (2.5 * honest.feedback.norm() / pull.norm()))


class Overheard(Hostile):
    """An honest worker whose answers the liar knows."""

    def feedback(self, judged: Samples) -> Judgement:
        """Tells them."""
        honest = super().feedback(judged)
        Opposite.known.put(honest.feedback)
        return honest


LIES: dict[str, Callable[[Worker], Worker]] = {
    "scaled": lambda honest: SignFlipper(honest, 12.0),
    "reversed": lambda honest: SignFlipper(honest, 1.0),
    "pulled": Puller,
    "opposite": Opposite,
}


def run_with(lie: str, folder: Path, *flags: str, liar: int = RANK) -> Finished:
    """A run in which one worker lies, if a lie is named."""
    make = build.make_worker

    def maybe_lying(rank: int, *rest: object) -> Worker:
        worker = make(rank, *rest)  # type: ignore[arg-type] # passed on as they come
        if lie == "opposite" and rank == 1:
            return Overheard(worker)
        return LIES[lie](worker) if lie and rank == liar else worker

    with patch.object(build, "make_worker", maybe_lying):
        ran = run_here(*FLAGS, *flags, "--out", lie or "honest", cwd=folder)
    assert ran.status == 0, ran
    return ran


@pytest.mark.parametrize("lie", mostly_slow(["scaled", "reversed", "pulled"], ["reversed"]))
def test_who_opposes_the_others_is_named_alone(tmp_path: Path, lie: str) -> None:
    ran = run_with(lie, tmp_path, "--iterations", "120")
    assert ALONE in ran.errors
    assert ran.errors.count("looks like") == 1
    scores = [row["opposing"] for row in read_metrics(tmp_path / lie) if "opposing" in row]
    assert scores[-1][str(RANK)] >= 8
    assert max(s for row in scores for n, s in row.items() if n != str(RANK)) < 8


@pytest.mark.parametrize("workers", mostly_slow([3, 4, 6], [4, 6]))
def test_who_knows_what_another_one_answers_has_nobody_named_in_its_place(
    tmp_path: Path, workers: int
) -> None:
    interval = (
        "0" if workers < 5 else "15"
    )  # without swaps the server names no worker in so few iterations
    flags = ("--world-size", str(workers + 1), "--swap-interval", interval, "--partition", "sorted")
    ran = run_with("opposite", tmp_path, *flags, "--iterations", "120", liar=2)
    message = "fewer than 5 workers answer: too few for the server to find attackers"
    assert ran.errors.count(message) == (workers < 5)
    named = re.findall(r"rank (\d+) looks like an attacker", ran.errors)
    assert named == ["2"] * (workers > 4)


def test_what_is_far_longer_than_usual_is_cut_and_may_be_let(tmp_path: Path) -> None:
    run_with("scaled", tmp_path, "--iterations", "30")
    (row,) = read_events(tmp_path / "scaled", "attendance")
    assert {n for n, counts in row["workers"].items() if "cut" in counts} == {str(RANK)}
    assert row["workers"][str(RANK)]["cut"] == 30
    (tmp_path / "any").mkdir()
    flags = ("--iterations", "30", "--set", "longest_answer=0")
    ran = run_with("scaled", tmp_path / "any", *flags)
    assert "looks like" not in ran.errors


@pytest.mark.parametrize(
    "flags", [(), pytest.param(("--secure-aggregation", "--kappa", "1"), marks=pytest.mark.slow)]
)
def test_an_honest_run_keeps_its_bits(tmp_path: Path, flags: tuple[str, ...]) -> None:
    for name, how in {"cut": (), "as it is": ("--set", "longest_answer=0")}.items():
        (tmp_path / name).mkdir()
        run_with("", tmp_path / name, "--iterations", "30", *how, *flags)
    with_cut, as_it_is = (tmp_path / name / "honest" for name in ("cut", "as it is"))
    assert generator_bytes(with_cut) == generator_bytes(as_it_is)


@pytest.mark.parametrize("lie", mostly_slow(["scaled", "reversed"], ["scaled"]))
@claim(
    "mean-alone",
    "With nine hosts or more a host that opposes the others for long is named, and not "
    "asked for feedback again",
)
def test_in_secure_sums_it_is_named_alone_and_asked_no_more(tmp_path: Path, lie: str) -> None:
    flags = ("--world-size", "10", "--secure-aggregation", "--iterations", "60")
    ran = run_with(lie, tmp_path, *flags)
    assert ALONE in ran.errors
    assert ran.errors.count("looks like") == 1
    (row,) = read_events(tmp_path / lie, "attendance")
    assert row["workers"].pop(str(RANK))["answered"] < 50
    assert {counts["answered"] for counts in row["workers"].values()} == {60}
