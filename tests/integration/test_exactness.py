"""Resumed runs, spread runs, and one worker instead of none give the same bits with each option."""

from pathlib import Path

import pytest

from mdgan.gan.optimizer_settings import LOOKAHEAD, OPTIMIZERS
from mdgan.models.settings import ARCHITECTURES
from tests.integration.exactness import (
    FAMILIES,
    SETS,
    SMALL,
    one_worker_and_a_single_process,
    spread_and_together,
    whole_and_resumed,
)
from tests.marks import mostly_slow
from tests.processes import QUICK, ended_well, run_here

WASSERSTEIN = ["--discriminator-loss", "wasserstein", "--generator-loss", "wasserstein"]
LABELS = ["--set", "label_prior=data"]


def with_optimizer(name: str) -> list[str]:
    """For both networks; no rate falls, which would be another with fewer iterations."""
    return [
        *("--generator-optimizer", name, "--generator-optimizer", "warmup=10"),
        *("--generator-optimizer", "clip_norm=0.5", "--generator-optimizer", "lr=0.01"),
        *("--discriminator-optimizer", name, "--discriminator-optimizer", "weight_decay=0.01"),
    ]


HELP = {
    "penalties": [*WASSERSTEIN, "--r1", "1", "--gradient-penalty", "10"],
    "spectral norm": ["--spectral-norm", "--r1", "1"],
    "diffaugment": ["--augment", "diffaugment", "--ema", "5"],
    "ada": ["--augment", "ada", "--set", "ada_target=-0.5", "--r1", "1"],
}
"""Two of them at once, where they go together."""
NO_PICTURES = {"dcgan3d", "table"}
CASES = {
    **{name: ["--architecture", name, *SMALL] for name in ARCHITECTURES if name not in NO_PICTURES},
    "table": ["--dataset", "breast-cancer", *SMALL],
    **{name: with_optimizer(name) for name in OPTIMIZERS},
    **{LOOKAHEAD + name: with_optimizer(LOOKAHEAD + name) for name in OPTIMIZERS},
    **HELP,
    "merged halves": ["--merge-halves", "--augment", "ada"],
    "auxiliary": [*SETS, "auxiliary", *LABELS, *HELP["diffaugment"], "--r1", "1"],
    "projection": [*SETS, "projection", *LABELS, *HELP["penalties"]],
}
QUICK_ONES = {
    *(("mdgan", "auxiliary"), ("mdgan", "ada"), ("mdgan", "lookahead:adabelief")),
    *(("fl-gan", "table"), ("fl-gan", "spectral norm"), ("standalone", "diffaugment")),
}
"""One of each kind of state; units have them all."""


@pytest.mark.parametrize(
    ("family", "name"), mostly_slow([(f, n) for f in FAMILIES for n in CASES], QUICK_ONES)
)
def test_resumed_equals_never_stopped(
    conditional_sets: Path, tmp_path: Path, family: str, name: str
) -> None:
    """The run's folder alone says which models it has."""
    whole, resumed = whole_and_resumed(family, CASES[name], tmp_path, conditional_sets)
    assert resumed == whole


@pytest.mark.parametrize("name", mostly_slow(CASES, ["auxiliary", "ada", "table"]))
def test_one_worker_equals_a_single_process(
    conditional_sets: Path, tmp_path: Path, name: str
) -> None:
    steps = ["--local-steps", "2"]
    worker, alone = one_worker_and_a_single_process(
        [*CASES[name], *steps], tmp_path, conditional_sets
    )
    assert worker == alone
    plain = run_here("standalone", *QUICK, *steps, "--out", "plain", cwd=tmp_path)
    assert ended_well(plain, tmp_path / "plain") != alone


@pytest.mark.parametrize("name", mostly_slow(CASES, ["ada"]))
def test_any_spread_gives_the_same_generator(
    conditional_sets: Path, tmp_path: Path, name: str
) -> None:
    spread, together = spread_and_together(CASES[name], tmp_path, conditional_sets)
    assert spread == together
