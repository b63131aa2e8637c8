"""What `mdgan plan` is told of FL-GAN and FeGAN."""

import pytest

from mdgan.data import dataset_file
from mdgan.errors import BadInput
from mdgan.families.federated.planning import planning
from mdgan.families.federated.settings import FederatedSettings

DIGITS = dataset_file.load("digits", None).models


def test_a_round_needs_the_size_of_a_shard() -> None:
    with pytest.raises(BadInput, match="--shard-size or --round-iterations"):
        planning(FederatedSettings(round_epochs=2.0), DIGITS, None)


@pytest.mark.parametrize(
    ("changes", "shard_size", "length", "played"),
    [
        ({"batch_size": 10}, 480, 48, 4),
        ({"round_iterations": 3}, None, 3, 3),
        ({"round_iterations": 30, "iterations": 20}, None, 20, 4),
    ],
)
def test_short_rounds_stand_for_long_ones(
    changes: dict[str, int], shard_size: int | None, length: int, played: int
) -> None:
    settings = FederatedSettings(world_size=11, **changes)
    planned = planning(settings, DIGITS, None if shard_size is None else [[shard_size]])
    assert (planned.iterations, planned.played_iterations) == (length, played)
    assert planned.settings.rounds.round_iterations == played


def test_table_iii_counts_the_workers_of_a_round() -> None:
    settings = FederatedSettings(world_size=11, participation=0.4, round_iterations=1)
    notes = planning(settings, DIGITS, None).notes
    assert notes["server sends"][1] == 4 * notes["host sends"][1] > 0


def test_a_short_run_has_as_many_workers_as_its_rule_needs() -> None:
    given = {"world_size": 41, "round_iterations": 1, "aggregation": "krum:2"}
    assert planning(FederatedSettings.read(given), DIGITS, None).enough_workers == 7
