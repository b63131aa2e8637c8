"""The facts about each algorithm on which `mdgan plan` relies."""

from math import prod
from typing import Any

import pytest

from mdgan.data import dataset_file
from mdgan.errors import BadInput
from mdgan.families.contract import ClassCounts, Placing, PlannedHost, Planning
from mdgan.families.data_parallel.build import BUILDER as PARAGAN_BUILDER
from mdgan.families.data_parallel.settings import PARAGAN, DataParallelSettings
from mdgan.families.federated.planning import planning as plan_rounds
from mdgan.families.federated.settings import FederatedSettings
from mdgan.families.mdgan.build import BUILDER as MDGAN_BUILDER
from mdgan.families.mdgan.planning import SwapRhythm, in_words, mean_moved
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.build import build_model, num_parameters
from mdgan.launch.models import models_of
from mdgan.plan.layout import consecutive
from mdgan.records.rows import InSlot, Placed
from mdgan.spelling import spelled

# MD-GAN.


CIFAR10 = dataset_file.load("cifar10", None).models


def planned(shard_size: int | None = None, /, **changes: object) -> Planning[MDGANSettings]:
    settings = MDGANSettings(world_size=11, batch_size=10, **changes)
    return MDGAN_BUILDER.planning(settings, CIFAR10, None if shard_size is None else [[shard_size]])


def test_table_iii() -> None:
    """Table IV's own figures: CIFAR-10 with b = 10 and 10 workers; 0.23 MB is its 2bd."""
    notes = {row: num_bytes for row, (_, num_bytes) in planned().notes.items()}
    assert notes["host receives"] == pytest.approx(0.2458e6, rel=1e-3)
    assert notes["server sends"] == 10 * notes["host receives"] == 2 * notes["server receives"]
    assert notes["host sends"] == 4 * 10 * prod((3, 32, 32))
    assert notes["a discriminator"] == 4 * num_parameters(build_model(CIFAR10.discriminator, 0))


def test_a_few_workers_stand_for_all() -> None:
    """κ stays as it is with all workers, and there are enough of them to judge every batch."""
    few = planned(participation=0.8, step_samples=48)
    assert few.settings.kappa == few.enough_workers == 8  # all judge their own batch
    paper = planned(participation=0.8)
    assert paper.settings.kappa == paper.enough_workers == 3
    assert planned(aggregation="krum:3").enough_workers == 9
    assert planned(stale=1).overlaps
    assert planned(stale=1).settings.stale == 0


@pytest.mark.parametrize(
    ("shard_size", "changes", "every"),
    [
        (None, {}, None),
        (480, {}, 48),
        (480, {"swap_state": "weights"}, 48),
        (480, {"swap_epochs": 2.0}, 96),
        (None, {"swap_interval": 7}, 7),
        (None, {"swap_interval": 0}, 0),
    ],
)
def test_swaps(shard_size: int | None, changes: dict[str, Any], every: int | None) -> None:
    exchange = planned(shard_size, **changes).exchange
    assert exchange is not None
    assert exchange.every == every
    weights = num_parameters(build_model(CIFAR10.discriminator, 0))
    numbers = 1 if "swap_state" in changes else 3  # with Adam's moments
    assert exchange.num_bytes == pytest.approx(4 * numbers * weights, rel=0.01)
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


# FL-GAN and FeGAN, and placed clients.


DIGITS = dataset_file.load("digits", None).models


def test_a_round_needs_the_size_of_a_shard() -> None:
    with pytest.raises(BadInput, match="--shard-size or --round-iterations"):
        plan_rounds(FederatedSettings(round_epochs=2.0), DIGITS, None)


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
    planned = plan_rounds(settings, DIGITS, None if shard_size is None else [[shard_size]])
    assert (planned.iterations, planned.played_iterations) == (length, played)
    assert planned.settings.rounds.round_iterations == played


def test_table_iii_counts_the_workers_of_a_round() -> None:
    settings = FederatedSettings(world_size=11, participation=0.4, round_iterations=1)
    notes = plan_rounds(settings, DIGITS, None).notes
    assert notes["server sends"][1] == 4 * notes["host sends"][1] > 0


def test_a_short_run_has_as_many_workers_as_its_rule_needs() -> None:
    values = {"world_size": 41, "round_iterations": 1, "aggregation": "krum:2"}
    assert plan_rounds(FederatedSettings.read(values), DIGITS, None).enough_workers == 7


# ----- placed clients

PLACED = {"clients": 100, "participation": 0.2, "round_iterations": 10, "slots": 2}


def placing(class_counts: ClassCounts | None = None, **changes: Any) -> Placing:
    settings = plan_rounds(
        FederatedSettings.read({**PLACED, **changes}), DIGITS, class_counts
    ).placing
    assert settings is not None
    return settings


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


# ParaGAN.


DATASET = dataset_file.load("digits", None)
ASYNC = {"updates": "async", "iterations": 100}


@pytest.mark.parametrize(
    ("changes", "questions", "updates"),
    [
        ({}, 2, "sync"),
        ({"local_steps": 3}, 4, "sync"),
        (ASYNC, 1, "async"),
        ({**ASYNC, "sync_after": 80}, 1, "async"),
        ({**ASYNC, "sync_after": 20}, 2, "sync"),
        ({**ASYNC, "image_buffer": 0}, 2, "sync"),
    ],
)
def test_it_plays_the_updates_that_most_iterations_have(
    changes: dict[str, Any], questions: int, updates: str
) -> None:
    settings = DataParallelSettings(**changes)
    planned = PARAGAN_BUILDER.planning(settings, models_of(settings, DATASET), None)
    assert (planned.questions, planned.settings.asynchrony.updates) == (questions, updates)
    assert ("local-step" in PARAGAN.phases(planned.settings)[0]) == (updates == "sync")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "κ = 3 batches of 10, 10 workers, pairs swap every 50 iterations"),
        (
            {"swap": "means"},
            "pairs go on with the mean of their discriminators every 50 iterations",
        ),
        ({"kappa": 1}, "κ = 1 batch of 10, which workers both judge and train on"),
        ({"participation": 0.4}, "4 of them with a discriminator (--participation)"),
        ({"step_samples": 48}, "each learns from 48 own samples and all batches (--step-samples)"),
        ({"step_samples": 48, "wire": "images=bf16"}, "from 48 own samples (--step-samples)"),
        ({"updates": "arrival"}, "--updates arrival"),
        ({"stale": 1}, "--stale 1"),
        ({"aggregation": "median"}, "feedback by median (--aggregation)"),
        ({"iterations": 20}, "no swap in so few iterations (they come every 50 iterations)"),
        ({"world_size": 2}, "1 worker, no swaps"),
    ],
)
def test_one_line_says_what_trains(changes: dict[str, Any], message: str) -> None:
    values = {"world_size": 11, "batch_size": 10, "iterations": 1000, **changes}
    settings = MDGANSettings.read(values)
    kappa = settings.batches.kappa_for()
    line = spelled(in_words(settings, SwapRhythm(50, 50, 50), kappa))
    assert line.startswith("MD-GAN (Hardy et al. 2019): κ = ")
    assert message in line


@pytest.mark.parametrize(
    ("rhythm", "said"),
    [
        ((1, 1, 50), "in every iteration, not every 50, as workers hold different classes ("),
        ((50, 60, 60), "every 50 iterations, as when the run began, not every 60 (--swap-"),
        ((50, 40, 40), "every 50 iterations, as when the run began, not every 40 (--swap-"),
        ((50, 1, 60), "every 50 iterations, as when the run began, not every 1 (--swap-"),
        ((1, 60, 60), "in every iteration, as when the run began, not every 60 (--swap-"),
    ],
)
def test_the_line_says_why_swaps_come_as_often_as_they_do(
    rhythm: tuple[int, int, int], said: str
) -> None:
    settings = MDGANSettings.read({"world_size": 11})
    line = spelled(in_words(settings, SwapRhythm(*rhythm), 3))
    assert f"10 workers, pairs swap {said}" in line


def test_one_worker_is_told_of_no_rhythm() -> None:
    settings = MDGANSettings.read({"world_size": 2})
    assert in_words(settings, SwapRhythm(50, 60, 60), 2).endswith("1 worker, no swaps")
