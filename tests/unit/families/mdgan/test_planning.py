"""What `mdgan plan` is told of MD-GAN."""

from math import prod

import pytest

from mdgan.data import dataset_file
from mdgan.families.contract import Planning
from mdgan.families.mdgan.build import mean_moved, planning
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.build import build_model, num_parameters
from mdgan.plan.layout import consecutive

CIFAR10 = dataset_file.load("cifar10", None).models


def planned(shard_size: int | None = None, /, **changes: object) -> Planning[MDGANSettings]:
    settings = MDGANSettings(world_size=11, batch_size=10, **changes)
    return planning(settings, CIFAR10, None if shard_size is None else [[shard_size]])


def test_table_iii() -> None:
    """Table IV's own figures: CIFAR-10 with b = 10 and 10 workers; 0.23 MB is its 2bd."""
    notes = {row: num_bytes for row, (_, num_bytes) in planned().notes.items()}
    assert notes["host receives"] == pytest.approx(0.2458e6, rel=1e-3)
    assert notes["server sends"] == 10 * notes["host receives"] == 2 * notes["server receives"]
    assert notes["host sends"] == 4 * 10 * prod((3, 32, 32))
    assert notes["a discriminator"] == 4 * num_parameters(build_model(CIFAR10.discriminator, 0))


def test_a_few_workers_stand_for_all() -> None:
    """κ stays as it is with all workers, and there are enough of them to judge every batch."""
    few = planned(participation=0.8)
    assert few.settings.kappa == 3
    assert few.enough_workers == 3
    assert planned(aggregation="krum:3").enough_workers == 9
    assert planned(stale=1).overlaps
    assert planned(stale=1).settings.stale == 0


@pytest.mark.parametrize(
    ("shard_size", "changes", "every"),
    [
        (None, {}, None),
        (480, {}, 48),
        (480, {"swap_epochs": 2.0}, 96),
        (None, {"swap_interval": 7}, 7),
        (None, {"swap_interval": 0}, 0),
    ],
)
def test_swaps(shard_size: int | None, changes: dict[str, float], every: int | None) -> None:
    exchange = planned(shard_size, **changes).exchange
    assert exchange is not None
    assert exchange.every == every
    weights = num_parameters(build_model(CIFAR10.discriminator, 0))
    assert exchange.num_bytes == pytest.approx(3 * 4 * weights, rel=0.01)  # with Adam's moments
    assert exchange.moved(consecutive([1] * 10)) == 10 * exchange.num_bytes


@pytest.mark.parametrize(
    ("form", "sizes", "moved"),
    [
        ("pairs", [1] * 4, 4.0),
        ("pairs", [1] * 5, 4.0),
        ("derangement", [1] * 5, 5.0),
        ("pairs", [4], 0.0),
        ("pairs", [2, 2], 8 / 3),
        ("pairs", [1], 0.0),
    ],
)
def test_discriminators_that_change_their_host(form: str, sizes: list[int], moved: float) -> None:
    assert mean_moved(form, consecutive(sizes)) == pytest.approx(moved)
