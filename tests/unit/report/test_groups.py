from dataclasses import replace
from typing import Any

import pytest

from mdgan.records.recorded_run import RecordedRun
from mdgan.report.figures.scores import COSTS, curve
from mdgan.report.numbers.durations import BandedLine
from mdgan.report.numbers.subject import groups, labels, said_bands, subjects
from tests.unit.records.made_up import run_of

iterations_until, seconds_until = COSTS["by iteration"].of, COSTS["by time"].of

MDGAN = {"algorithm": "mdgan", "world_size": 5}
EXTRACTOR = {"name": "net", "sha256": "a"}


def run(name: str, scores: dict[int, float] | None = None, **config: Any) -> RecordedRun:
    events = [
        {
            "event": "scores",
            "iteration": iteration,
            "seconds": iteration * (1.0 + config.get("seed", 0)),
            "n": 10,
            "extractor": EXTRACTOR,
            "scores": {"fid": fid, "fid_std": 0.5},
        }
        for iteration, fid in (scores or {}).items()
    ]
    return run_of(*events, name=name, config={**MDGAN, **config})


def test_runs_that_mdgan_compare_made_are_called_as_it_calls_them() -> None:
    runs = [
        run(f"{name}-seed{seed}", seed=seed, batch_size=size)
        for name, size in (("small", 8), ("large-seed", 64))
        for seed in (0, 12)
    ]
    expected = ["small, seed 0", "small, seed 12", "large-seed, seed 0", "large-seed, seed 12"]
    assert labels(runs) == expected
    found = groups(subjects(runs))
    assert [group.label for group in found] == ["small", "large-seed"]
    assert [len(group.members) for group in found] == [2, 2]
    assert labels([runs[0], runs[2]]) == ["small", "large-seed"]


def test_a_name_that_does_not_tell_the_seed_is_not_believed() -> None:
    assert labels([run("a-seed1", seed=1), run("b-seed1", seed=2)])[0] != "a"
    assert labels([run("a-seed1", seed=1), run("b", seed=1)])[0] != "a"


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        ([run("a-seed0", seed=0), run("b-seed0", seed=0)], {"a": 1, "b": 1}),
        (
            [run("a-seed0", seed=0, kappa=1), run("a-seed1", seed=1, kappa=2)],
            {"a, seed 0": 1, "a, seed 1": 1},
        ),
        (
            [run("x", seed=1), run("y", seed=2, master_port=5), run("z", world_size=3, seed=1)],
            {"4 workers": 2, "2 workers": 1},
        ),
        (  # a setting without a value is as one that an older version lacks
            [run("a-seed0", seed=0), run("a-seed1", seed=1, generator_optimizer=None)],
            {"a": 2},
        ),
    ],
    ids=["two names", "one name", "whatever they are called", "an older version"],
)
def test_which_runs_are_one_configuration(runs: list[RecordedRun], found: dict[str, int]) -> None:
    configurations = groups(subjects(runs))
    assert {group.label: len(group.members) for group in configurations} == found


def test_runs_in_rounds_are_called_by_their_algorithm() -> None:
    in_rounds = replace(run("x", algorithm="new"), status={"unit": "round"})
    assert labels([in_rounds, run("y")]) == ["new, 4 workers", "4 workers"]


def test_many_runs_share_the_colour_of_their_configuration() -> None:
    few = [run(f"{name}-seed{seed}", seed=seed, note=name) for seed in range(4) for name in "ab"]
    assert [subject.position for subject in subjects(few)] == list(range(8))
    many = [run(f"{name}-seed{seed}", seed=seed, note=name) for seed in range(5) for name in "ab"]
    assert [subject.position for subject in subjects(many)] == [0, 1] * 5


def test_a_curve_is_the_mean_and_the_band_reaches_from_the_least_to_the_greatest() -> None:
    runs = [
        run("a-seed0", {10: 8.0, 20: 4.0}, seed=0),
        run("a-seed1", {10: 6.0, 20: 5.0, 30: 3.0}, seed=1),
        run("a-seed2", {10: 1.0, 20: 3.0, 30: 1.0}, seed=2),
    ]
    (group,) = groups(subjects(runs))
    line = curve(group, "fid", iterations_until)
    assert line == BandedLine([10.0, 20.0], [1.0, 3.0], [5.0, 4.0], [8.0, 5.0])
    assert curve(group, "fid", seconds_until).x == [20.0, 40.0]
    assert curve(group, "kid", iterations_until) == BandedLine([], [], [], [])
    assert "up to 3 seeds" in said_bands([group])


def test_the_band_of_one_run_is_its_deviation() -> None:
    (group,) = groups(subjects([run("a", {10: 8.0})]))
    assert curve(group, "fid", iterations_until) == BandedLine([10.0], [7.5], [8.0], [8.5])
    assert said_bands([group]) == ""


def test_runs_without_a_common_iteration_are_drawn_all_the_same() -> None:
    runs = [run("a-seed0", {10: 8.0}, seed=0), run("a-seed1", {20: 4.0}, seed=1)]
    (group,) = groups(subjects(runs))
    assert curve(group, "fid", iterations_until).middle == pytest.approx([8.0, 4.0])
