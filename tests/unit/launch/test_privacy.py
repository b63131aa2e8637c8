"""What a machine says before its workers train under differential privacy."""

import pytest

from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.launch.privacy import check_budgets
from tests.unit.privacy.halves import make_shard

pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")


@pytest.mark.parametrize(("delta", "rank"), [(0.01, ""), (0.04, "rank 2"), (0.1, "rank 2 (and 1")])
def test_a_delta_that_allows_to_give_samples_away_is_told_once(delta: float, rank: str) -> None:
    given = {"dp_noise": 2.0, "dp_delta": delta, "world_size": 3}
    shards = {1: make_shard(20), 2: make_shard(30)}
    warnings = check_budgets(MDGANSettings.read(given), shards, {}, serves=False)
    said = [line for line in warnings if "--dp-delta" in line]
    assert len(said) == bool(rank)
    assert all(rank in line and "one of its 30 samples" in line for line in said)
