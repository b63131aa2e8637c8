"""FeGAN under differential privacy: rounds whose clients and weights follow from noisy counts."""

from pathlib import Path

import pytest

from tests.accounts import all_charges_in, charges_in
from tests.claims.registry import claim
from tests.processes import ended_well, read_events, run

pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")

WORKERS = ("1", "2", "3", "4")
FEGAN = [
    *("train", "--algorithm", "fegan", "--world-size", "5", "--workers-per-host", "1"),
    *("--participation", "0.75", "--round-iterations", "2", "--iterations", "6", "--threads", "1"),
    *("--batch-size", "8", "--sample-interval", "0", "--eval-interval", "0"),
    *("--architecture", "md-gan-mlp", "--width", "8", "--partition", "shards:2"),
    *("--dp-delta", "1e-4", "--dp-ledger", "ledger", "--out", "run"),
]


@pytest.mark.parametrize(
    "flags",
    [[], pytest.param(["--sampling", "random", "--secure-aggregation"], marks=pytest.mark.slow)],
    ids=["in the clear", "in secure sums"],
)
@claim("no-classes", "balanced and kl go by noisy counts")
def test_real_processes_draw_and_weigh_by_noisy_counts(tmp_path: Path, flags: list[str]) -> None:
    result = run(*FEGAN, "--dp-epsilon", "8", *flags, cwd=tmp_path, timeout=300)
    ended_well(result, tmp_path / "run", 6)
    charges = charges_in(tmp_path / "ledger")
    of_counts = [charge for charge in charges if charge.rate == 1.0]
    assert [charge.steps for charge in of_counts] == [1] * len(WORKERS)
    assert len({charge.noise for charge in of_counts}) == 1
    assert sum(charge.steps for charge in charges if charge.rate < 1) >= 6
    events = read_events(tmp_path / "run", "epsilon")
    spent = {worker: most for row in events for worker, most in row["epsilon"].items()}
    assert spent.keys() == set(WORKERS)
    assert 2 < min(spent.values()) <= max(spent.values()) <= 8
    rounds = read_events(tmp_path / "run", "round")
    assert [len(row["took_part"]) for row in rounds] == [3] * 3
    weights = {weight for row in rounds for weight in row["weights"]}
    # Those of the server follow from noisy counts; in secure sums it knows none, and says 1/3.
    assert (weights == {1 / 3}) == bool(flags), weights
    (begun,) = read_events(tmp_path / "run", "holdings")
    assert [held["classes"] for held in begun["workers"].values()] == [[]] * len(WORKERS)
    assert sum(held["samples"] for held in begun["workers"].values()) > 1400


@pytest.mark.slow
@claim("told-once", "The identical question is free")
def test_a_run_that_goes_on_tells_the_same_counts_again(tmp_path: Path) -> None:
    flags = ["--dp-noise", "2", "--checkpoint-interval", "2", "--iterations", "4"]
    ended_well(run(*FEGAN, *flags, cwd=tmp_path, timeout=300), tmp_path / "run", 4)
    before = all_charges_in(tmp_path / "ledger")
    more = ("train", "--resume", "run", "--iterations", "8")
    ended_well(run(*more, cwd=tmp_path, timeout=300), tmp_path / "run", 8)
    after = all_charges_in(tmp_path / "ledger")
    of_counts = [charge for charge in after if charge.rate == 1.0]
    assert of_counts == [charge for charge in before if charge.rate == 1.0]
    assert [charge.steps for charge in of_counts] == [len(WORKERS)]
    assert sum(c.steps for c in after) > sum(c.steps for c in before)
