"""Runs with other optimizers: over memory, resumed, spread, and one worker beside none."""

from pathlib import Path

import pytest

from mdgan.gan.optimizer_settings import LOOKAHEAD, OPTIMIZERS
from tests.integration.exactness import (
    FAMILIES,
    IN_MEMORY,
    mostly_slow,
    one_worker_and_a_single_process,
    spread_and_together,
    whole_and_resumed,
)
from tests.processes import QUICK, ended_well, run_here


def with_optimizers(generator: str, discriminator: str) -> list[str]:
    """A schedule, a warmup and a norm too, each of one network alone."""
    return [
        *("--generator-optimizer", generator, "--generator-optimizer", "schedule=cosine"),
        *("--generator-optimizer", "clip_norm=0.5", "--generator-optimizer", "lr=0.01"),
        *(
            "--discriminator-optimizer",
            discriminator,
            "--discriminator-optimizer",
            "weight_decay=0.01",
        ),
        *("--discriminator-optimizer", "schedule=linear", "--discriminator-optimizer", "warmup=3"),
    ]


NAMES = [*OPTIMIZERS, *(LOOKAHEAD + name for name in OPTIMIZERS)]
QUICK_ONES = {("mdgan", "lookahead:adabelief"), ("standalone", "lamb"), ("fl-gan", "lookahead:sgd")}
"""One of each kind of state; units have them all."""


@pytest.mark.parametrize(
    ("family", "name"), mostly_slow([(f, n) for f in FAMILIES for n in NAMES], QUICK_ONES)
)
def test_resumed_within_a_window_equals_never_stopped(
    tmp_path: Path, family: str, name: str
) -> None:
    # A rate that falls until the last iteration would be another with fewer of them.
    flags = [
        *("--generator-optimizer", name, "--generator-optimizer", "warmup=10"),
        *("--generator-optimizer", "clip_norm=0.5", "--generator-optimizer", "lr=0.01"),
        *("--discriminator-optimizer", name, "--discriminator-optimizer", "weight_decay=0.01"),
    ]
    whole, resumed = whole_and_resumed(family, flags, tmp_path)
    assert resumed == whole


PAIRS = [("lookahead:lamb", "adabelief"), ("lars", "lookahead:radam"), ("sgd", "lookahead:lamb")]


@pytest.mark.parametrize(("generator", "discriminator"), mostly_slow(PAIRS, PAIRS[:1]))
def test_one_worker_equals_a_single_process(
    tmp_path: Path, generator: str, discriminator: str
) -> None:
    flags = with_optimizers(generator, discriminator)
    worker, alone = one_worker_and_a_single_process(flags, tmp_path)
    assert worker == alone


def test_rates_do_not_depend_on_how_rounds_are_cut(tmp_path: Path) -> None:
    """A client that is alone trains on with what it had, so rounds change nothing."""
    one = ["train", "--algorithm", "fl-gan", *QUICK, *IN_MEMORY, "--world-size", "2"]
    flags = with_optimizers("lookahead:sgd", "adabelief")
    found = set()
    for length in ("4", "12"):
        how = ["--round-iterations", length, "--out", length]
        found.add(ended_well(run_here(*one, *flags, *how, cwd=tmp_path), tmp_path / length))
    assert len(found) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lookahead:adabelief", "lookahead:lars", "lamb"])
def test_any_spread_gives_the_same_generator(tmp_path: Path, name: str) -> None:
    spread, together = spread_and_together(with_optimizers("adam", name), tmp_path)
    assert spread == together


def test_what_cannot_be_stacked_goes_one_by_one(tmp_path: Path) -> None:
    flags = [*QUICK, *IN_MEMORY, "--world-size", "3", *with_optimizers("sgd", "lamb")]
    plain = run_here("train", *flags, "--out", "plain", cwd=tmp_path)
    asked = run_here("train", *flags, "--vectorize", "--out", "asked", cwd=tmp_path)
    told = "computes one by one: Lamb steps one model at a time"
    assert told in asked.errors
    assert told not in plain.errors
    assert ended_well(asked, tmp_path / "asked") == ended_well(plain, tmp_path / "plain")
