"""What `mdgan plan` is told of FL-GAN and FeGAN, and of placed clients."""

from typing import Any

import pytest

from mdgan.data import dataset_file
from mdgan.errors import BadInput
from mdgan.families.contract import ClassCounts, Placing, PlannedHost
from mdgan.families.federated.planning import planning
from mdgan.families.federated.settings import FederatedSettings
from mdgan.records.placements import InSlot, Placed

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


# ----- placed clients

PLACED = {"clients": 100, "participation": 0.2, "round_iterations": 10, "slots": 2}


def placing(class_counts: ClassCounts | None = None, **changes: Any) -> Placing:
    found = planning(FederatedSettings.read({**PLACED, **changes}), DIGITS, class_counts).placing
    assert found is not None
    return found


def recorded(batch: float, constant: float) -> list[Placed]:
    """Rounds in which each of two slots trains a client of 4, 8 and 16 batches in turn."""
    seconds = [constant + batch * x for x in (4, 8, 16)]
    begin = [0.0, seconds[0], seconds[0] + seconds[1]]
    slots = [
        InSlot(host=1, slot=n, busy=sum(seconds), clients=[3 * n + 1, 3 * n + 2, 3 * n + 3],
               batches=[4, 8, 16], begin=[*begin], seconds=[*seconds])
        for n in range(2)
    ]  # fmt: skip
    return [
        Placed(iteration=n + 1, number=n, strategy="rr", makespan=1.0, slots=slots)
        for n in range(5)
    ]


def test_equal_clients_on_uneven_machines() -> None:
    """20 clients of 10 batches: a slot of speed 1 trains about twice as many as one of ½."""
    hosts = [PlannedHost(2, 1.0), PlannedHost(2, 0.5), PlannedHost(1, 1.0)]
    shares = placing(placement="lb").shares(recorded(0.01, 0.0), hosts)
    assert [share.clients for share in shares] == [11, 4, 5]
    assert [share.seconds for share in shares] == pytest.approx([0.6, 0.4, 0.5])
    even = placing(placement="rr").shares(recorded(0.01, 0.0), hosts)
    assert [share.clients for share in even] == [8, 8, 4]
    assert max(share.seconds for share in even) == pytest.approx(0.8)


def test_clients_train_as_long_as_their_samples_ask() -> None:
    counts = [[1], [3]] * 50
    own = placing(counts, training_load="samples", participation=1.0, placement="bb")
    shares = own.shares(recorded(0.01, 0.1), [PlannedHost(1, 1.0)])
    assert "5 to 15 iterations" in own.about
    assert shares[0].seconds == pytest.approx(50 * (0.1 + 0.05) + 50 * (0.1 + 0.15), rel=0.01)
    assert shares[0].busy == pytest.approx(shares[0].seconds)


def test_a_host_gets_one_copy_of_the_models_however_many_clients_it_trains() -> None:
    few, many = (
        placing(participation=share).shares(recorded(0.01, 0.0), [PlannedHost(1, 1.0)])[0]
        for share in (0.1, 1.0)
    )
    assert 0 < many.out - few.out < 90 * 64
    assert 90 < many.back - few.back < 90 * 256


def test_what_a_client_takes() -> None:
    assert placing().seconds(recorded(0.01, 0.1)) == pytest.approx({4: 0.14, 8: 0.18, 16: 0.26})


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"placement": "pull"}, "plan rr, bb or lb"), ({"training_load": "samples"}, "--shard-size")],
)
def test_what_cannot_be_foretold(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        placing(**changes)
