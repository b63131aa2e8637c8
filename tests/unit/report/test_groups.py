"""Names of runs, and which runs are one configuration."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mdgan.engine.stages.suspect_settings import SUSPICIONS
from mdgan.records.recorded_run import RecordedRun, Trace
from mdgan.report.figures.charts import run_style
from mdgan.report.figures.losses import numbers_of
from mdgan.report.figures.scores import COSTS, EPSILON, ITERATIONS, curve, curves, scores
from mdgan.report.numbers.durations import BandedLine
from mdgan.report.numbers.subject import differing_settings, groups, labels, said_bands, subjects
from tests.unit.observe.fake_run import FakeRun
from tests.unit.records.made_up import run_of
from tests.unit.report.parsed_page import subject_of

MDGAN = {"algorithm": "mdgan", "world_size": 5, "seed": 0}
EXTRACTOR = {"name": "net", "sha256": "a"}


def run(
    name: str,
    scores: dict[int, float] | None = None,
    role: str = "server",
    before: Sequence[dict[str, Any]] = (),
    **config: Any,
) -> RecordedRun:
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
    traces = {role: Trace(role)}
    return run_of(*before, *events, name=name, config={**MDGAN, **config}, traces=traces)


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ([{}], ["4 workers"]),
        ([{"world_size": 2}], ["1 worker"]),
        ([{"world_size": 5}, {"world_size": 11}], ["4 workers", "10 workers"]),
        ([{"algorithm": "alone", "role": "alone"}, {}], ["alone", "4 workers"]),
        (
            [{"swap_interval": 20}, {"swap_interval": 0}],
            ["4 workers, swap interval 20", "4 workers, no swap"],
        ),
        (
            [{"swap_interval": 0}, {"swap_interval": None, "swap_epochs": 1.5}],
            ["4 workers, no swap", "4 workers, swap epochs 1.5"],
        ),
        (
            [{"seed": 1}, {"seed": 2}, {"world_size": 3}],
            ["4 workers, seed 1", "4 workers, seed 2", "2 workers"],
        ),
        (
            [{"partition": "iid", "batch_size": 10}, {"partition": "sorted", "batch_size": 32}],
            ["4 workers, iid, b = 10", "4 workers, sorted, b = 32"],
        ),
        ([{"algorithm": "new"}, {}], ["4 workers, new", "4 workers, mdgan"]),
        ([{}, {}], ["4 workers (r0)", "4 workers (r1)"]),
        ([{"data_dir": "/a"}, {"data_dir": "/b"}], ["4 workers (r0)", "4 workers (r1)"]),
    ],
)
def test_a_run_is_called_by_what_tells_it_apart(
    configs: list[dict[str, Any]], expected: list[str]
) -> None:
    assert labels([run(f"r{n}", **config) for n, config in enumerate(configs)]) == expected


def test_labels_differ_whatever_the_runs_are() -> None:
    runs = [run("same", note="x" * 200 + str(n)) for n in range(3)]
    result = labels(runs)
    assert len(set(result)) == 3
    assert all(len(label) < 60 for label in result)


def test_labels_are_one_line() -> None:
    result = labels([run("a", partition="first\nsecond"), run("b", partition="iid")])
    assert result[0] == "4 workers, first second"


def test_settings_that_differ_are_found_in_order() -> None:
    configs = [{"a": 1, "b": [1], "c": None}, {"a": 1, "b": [2], "d": 0}, {"a": 1, "b": [1]}]
    assert differing_settings(configs) == ["b", "d"]
    assert differing_settings(configs[:1]) == []


def test_outliers_are_the_slow_iterations(tmp_path: Path) -> None:
    fake = FakeRun(workers=4, iterations=200, slow=frozenset({50, 151}))
    subject = subject_of(fake.write(tmp_path / "run"))
    assert subject.outliers == {50, 151}
    assert len(subject.ordinary) == 198
    assert subject.num_workers == 4


iterations_until, seconds_until = COSTS["by iteration"].of, COSTS["by time"].of


def test_runs_that_mdgan_compare_made_are_called_as_it_calls_them() -> None:
    runs = [
        run(f"{name}-seed{seed}", seed=seed, batch_size=size)
        for name, size in (("small", 8), ("large-seed", 64))
        for seed in (0, 12)
    ]
    expected = ["small, seed 0", "small, seed 12", "large-seed, seed 0", "large-seed, seed 12"]
    assert labels(runs) == expected
    result = groups(subjects(runs))
    assert [group.label for group in result] == ["small", "large-seed"]
    assert [len(group.members) for group in result] == [2, 2]
    assert labels([runs[0], runs[2]]) == ["small", "large-seed"]


def test_a_name_that_does_not_tell_the_seed_is_not_believed() -> None:
    assert labels([run("a-seed1", seed=1), run("b-seed1", seed=2)])[0] != "a"
    assert labels([run("a-seed1", seed=1), run("b", seed=1)])[0] != "a"


@pytest.mark.parametrize(
    ("runs", "result"),
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
def test_which_runs_are_one_configuration(runs: list[RecordedRun], result: dict[str, int]) -> None:
    configurations = groups(subjects(runs))
    assert {group.label: len(group.members) for group in configurations} == result


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


def test_scores_of_one_cost_leave_a_point_of_the_last() -> None:
    """A run that spends its ε before it learns has one point, not a column of them."""
    spent = [{"event": "epsilon", "iteration": 1, "epsilon": {"1": 0.5, "2": 0.75}}]
    (group,) = groups(subjects([run("a", {10: 9.0, 20: 4.0}, before=spent)]))
    line = curve(group, "fid", EPSILON.of)
    assert (line.x, line.middle) == ([0.75], [4.0])
    later = [{"event": "epsilon", "iteration": 15, "epsilon": {"1": 2.0}}]
    (group,) = groups(subjects([run("a", {10: 9.0, 20: 4.0}, before=[*spent, *later])]))
    assert curve(group, "fid", EPSILON.of).x == [0.75, 2.0]
    (group,) = groups(subjects([run("a", {10: 9.0})]))
    assert curve(group, "fid", EPSILON.of).x == []


def test_an_algorithm_has_one_hue_on_every_page() -> None:
    ours = [run(f"ours{n}", world_size=n + 2) for n in range(6)]
    federated = [run(f"theirs{n}", algorithm="fl-gan", world_size=n + 2) for n in range(2)]
    alone, together = subjects(federated), subjects([*ours, *federated])
    assert {one.colour[:2] for one in together[:6]} == {"c1"} == {subjects(ours)[3].colour[:2]}
    assert [one.colour for one in alone] == [one.colour for one in together[6:]]
    looks = {tuple(map(str, run_style(one).values())) for one in together}
    assert len(looks) == len({(one.colour, one.position % 4) for one in together}) == 8
    assert subjects([run("gone", algorithm="gone")])[0].colour == "c8"
    assert subjects([run("odd", algorithm=["odd"])])[0].colour == "c8"


@pytest.mark.parametrize(("lr", "is_above"), [(0.98, False), (0.5, True), (0.97, True)])
def test_the_name_of_a_reference_stands_where_no_curve_is(lr: float, is_above: bool) -> None:
    about = {"event": "scores", "n": 10, "extractor": EXTRACTOR, "real": {"tstr_lr": 0.975}}
    rows = [{**about, "iteration": i, "seconds": 1, "scores": {"tstr_lr": lr}} for i in (10, 20)]
    group = groups(subjects([run("a", before=rows)]))[0]
    picture = scores(ITERATIONS)([(group, curves("tstr_lr")(group))])
    (axes,) = picture.panels[0].figure.axes
    (name,) = axes.texts
    assert name.get_text() == "real rows 0.975"
    assert (name.get_verticalalignment() == "bottom") == is_above
    assert "Real rows, AUC of LR: 0.975." in picture.seen


def test_scores_of_free_riding_that_are_zero_are_seen() -> None:
    (numbers,) = (one for one in SUSPICIONS if one.key == "riding")
    rows = [{"iteration": i, "riding": {"1": 0.0, "2": 0.0}, "generator_loss": 1.0} for i in (1, 2)]
    found = numbers_of(numbers)(subjects([run("a", before=rows)])[0])
    assert found is not None
    assert found.figure is not None
    (axes,) = found.figure.axes
    assert axes.get_ylim()[0] < 0
    assert axes.get_ylabel() == "standard deviations"
