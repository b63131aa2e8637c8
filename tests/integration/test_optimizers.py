"""Runs with other optimizers: over memory, resumed, spread, and one worker beside none."""

from pathlib import Path

import pytest

from mdgan.gan.optimizer_settings import LOOKAHEAD, OPTIMIZERS
from tests.processes import QUICK, ended_well, run, run_here

IN_MEMORY = ["--transport", "memory"]
FAMILIES = {
    # Swaps after 3, 6 and 9 iterations: within Lookahead windows of five steps.
    "mdgan": ["train", *QUICK, *IN_MEMORY, "--world-size", "3", "--swap-interval", "3"],
    "standalone": ["standalone", *QUICK],
    "fl-gan": [
        *("train", "--algorithm", "fl-gan", *QUICK, *IN_MEMORY, "--world-size", "3"),
        *("--round-iterations", "4"),
    ],
    "fegan": [
        *("train", "--algorithm", "fegan", *QUICK, *IN_MEMORY, "--world-size", "3"),
        *("--round-iterations", "4", "--participation", "0.5"),
    ],
}


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
    ("family", "name"),
    [
        pytest.param(family, name, marks=() if (family, name) in QUICK_ONES else pytest.mark.slow)
        for family in FAMILIES
        for name in NAMES
    ],
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
    command = [*FAMILIES[family], *flags]
    whole = run_here(*command, "--out", "whole", cwd=tmp_path)
    cut = run_here(*command, "--iterations", "8", "--out", "cut", cwd=tmp_path)
    assert cut.status == 0, cut
    resumed = run_here(command[0], "--resume", "cut", "--iterations", "12", cwd=tmp_path)
    assert "from iteration 8" in resumed.errors
    assert ended_well(resumed, tmp_path / "cut") == ended_well(whole, tmp_path / "whole")


@pytest.mark.parametrize(
    ("generator", "discriminator"),
    [
        ("lookahead:lamb", "adabelief"),
        pytest.param("lars", "lookahead:radam", marks=pytest.mark.slow),
        pytest.param("sgd", "lookahead:lamb", marks=pytest.mark.slow),
    ],
)
def test_one_worker_equals_a_single_process(
    tmp_path: Path, generator: str, discriminator: str
) -> None:
    flags = [*QUICK, *with_optimizers(generator, discriminator)]
    alone = run_here("standalone", *flags, "--out", "alone", cwd=tmp_path)
    worker = run_here(
        "train", *IN_MEMORY, "--world-size", "2", *flags, "--out", "worker", cwd=tmp_path
    )
    assert ended_well(worker, tmp_path / "worker") == ended_well(alone, tmp_path / "alone")


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
    """Discriminators move over links, and by reference."""
    flags = [*QUICK, "--world-size", "5", "--swap-interval", "3", *with_optimizers("adam", name)]
    spreads = {"1": [], "2": ["--workers-per-host", "2"], "memory": IN_MEMORY}
    found = set()
    for out, spread in spreads.items():
        start = run_here if spread == IN_MEMORY else run
        result = start("train", *flags, *spread, "--out", out, cwd=tmp_path)
        found.add(ended_well(result, tmp_path / out))
    assert len(found) == 1


def test_what_cannot_be_stacked_goes_one_by_one(tmp_path: Path) -> None:
    flags = [*QUICK, *IN_MEMORY, "--world-size", "3", *with_optimizers("sgd", "lamb")]
    plain = run_here("train", *flags, "--out", "plain", cwd=tmp_path)
    asked = run_here("train", *flags, "--vectorize", "--out", "asked", cwd=tmp_path)
    told = "computes one by one: Lamb steps one model at a time"
    assert told in asked.errors
    assert told not in plain.errors
    assert ended_well(asked, tmp_path / "asked") == ended_well(plain, tmp_path / "plain")
