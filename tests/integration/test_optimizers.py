"""Runs with a different optimizer for each network."""

from pathlib import Path

from tests.integration.exactness import IN_MEMORY
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


def test_rates_do_not_depend_on_how_rounds_are_cut(tmp_path: Path) -> None:
    """A client that is alone trains on with what it had, so rounds change nothing."""
    one = ["train", "--algorithm", "fl-gan", *QUICK, *IN_MEMORY, "--world-size", "2"]
    flags = with_optimizers("lookahead:sgd", "adabelief")
    results = set()
    for length in ("4", "12"):
        how = ["--round-iterations", length, "--out", length]
        results.add(ended_well(run_here(*one, *flags, *how, cwd=tmp_path), tmp_path / length))
    assert len(results) == 1


def test_what_cannot_be_stacked_goes_one_by_one(tmp_path: Path) -> None:
    flags = [*QUICK, *IN_MEMORY, "--world-size", "3", *with_optimizers("sgd", "lamb")]
    plain = run_here("train", *flags, "--out", "plain", cwd=tmp_path)
    result = run_here("train", *flags, "--vectorize", "--out", "asked", cwd=tmp_path)
    message = "computes one by one: Lamb steps one model at a time"
    assert message in result.errors
    assert message not in plain.errors
    assert ended_well(result, tmp_path / "asked") == ended_well(plain, tmp_path / "plain")
