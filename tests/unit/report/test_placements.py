"""Where clients trained: the numbers, and figures of whole, odd and hostile records."""

from math import log
from pathlib import Path
from typing import Any

import pytest

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Place, Placed
from mdgan.report.catalogue import SLOTS
from mdgan.report.figures import slots as numbers
from mdgan.report.figures.charts import styled
from mdgan.report.figures.export import inline_svg
from mdgan.report.figures.picture import Picture, by_run
from mdgan.report.numbers.subject import Subject
from tests.unit.records.made_up import run_of
from tests.unit.report.placed_run import KINDS, placed_run

FAST, SLOW = KINDS


def slot(host: int = 1, number: int = 0, **more: Any) -> dict[str, Any]:
    return {
        **{"host": host, "slot": number, "kind": "cpu", "busy": 3.0, "work": 6},
        **{"clients": [4, 2], "batches": [2, 4], "begin": [0.0, 1.0], "seconds": [1.0, 2.0]},
        **{"predicted": [1.5, 1.0], **more},
    }


def placement(number: int, *slots: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        **{"event": "placement", "iteration": number + 1, "number": number, "strategy": "lb"},
        **{"makespan": 4.0, "slots": slots or [slot()], "num_slots": {"1": len(slots) or 1}},
        **{"fits": {"cpu": [0.5, 0.0, 0.25]}, **more},
    }


def pictures(recorded: RecordedRun, render: bool = True) -> dict[str, Picture]:
    """All figures of a run with slots by name, after each was turned into SVG."""
    subject, result = Subject(0, "run", recorded), {}
    with styled():
        for entry in SLOTS.entries:
            for view in entry.views:
                if of := view.of(subject):
                    picture = (view.draw or by_run)([(subject, of)])
                    name = " ".join(filter(None, (entry.name, view.name)))
                    for panel in picture.panels if render else ():
                        assert inline_svg(panel.figure, "it", "it").startswith("<svg")
                    result[name] = picture
    return result


# ----- numbers


def test_the_typical_round_is_a_late_one_of_medium_length() -> None:
    lengths = (1, 9, 9, 5, 3, 7, 8)
    rows = [placement(n, makespan=seconds) for n, seconds in enumerate(lengths)]
    brief = slot(clients=[], batches=[], begin=[], seconds=[], predicted=[])
    typical = numbers.typical_round(run_of(*rows, placement(8, brief, makespan=2)))
    assert typical is not None
    assert typical.makespan == 5
    assert numbers.typical_round(run_of(placement(0, brief))) is None


def test_idle_is_what_the_longest_slot_leaves() -> None:
    slots = slot(busy=3.0), slot(number=1, busy=1.0), slot(2, busy=5.0)
    shares = numbers.idle_shares(run_of(placement(4, *slots), placement(5, slots[1])))
    assert shares == {
        Place("cpu", 1, 0): {5: 0.25},
        Place("cpu", 1, 1): {5: 0.75, 6: 0.75},
        Place("cpu", 2, 0): {5: 0.0},
    }
    told = pictures(run_of(placement(4, *slots), placement(5, slots[1])), render=False)
    assert told["idle"].seen == "idle in the mean: 54 % in 2 rounds of lb."


def test_predictions_stand_beside_the_last_curve_and_what_it_leaves() -> None:
    later = placement(1, fits={"cpu": [0.5, 1.0, 0.0], "gpu": [1, 1, 1]})
    (result,) = numbers.predicted_by_kind(run_of(placement(0), later)).values()
    assert result.curve == (0.5, 1.0, 0.0)
    assert result.residuals == pytest.approx([-log(2), -log(4)] * 2)
    assert result.pairs == [(1.5, 1.0), (1.0, 2.0)] * 2
    without = run_of(placement(0, fits={}))
    assert numbers.predicted_by_kind(without)["cpu"].curve == ()
    rows = pictures(without)["predictions"].table.rows
    assert rows == [("run", "cpu", "2", "50 %", "0 %", "1.33", "–", "–", "–", "–")]


def test_a_climb_is_told_by_stretches_with_the_same_number_of_slots() -> None:
    def used(number: int, *busy: float) -> dict[str, Any]:
        return placement(number, *(slot(number=n, busy=each) for n, each in enumerate(busy)))

    recorded = run_of(used(0, 3), used(1, 6), used(2, 3, 6), used(3, 3))
    (tried,) = numbers.climbs(recorded).values()
    assert [tuple(each) for each in tried] == [
        (1, [1, 2], [2.0, 1.0]),
        (2, [3], [2.0]),
        (1, [4], [2.0]),
    ]
    assert numbers.climbs(run_of(used(0, 3), used(1, 3))) == {}


# ----- figures


def test_a_run_with_slots_has_all_figures(tmp_path: Path) -> None:
    recorded = RecordedRun.read(placed_run(tmp_path / "run", {1: FAST, 2: SLOW}))
    assert recorded.damage == ()
    drawn = pictures(recorded)
    assert [*drawn] == ["placement", "predictions", "idle", "concurrency"]
    batches = drawn["placement"]
    lanes = [label.get_text() for label in batches.panels[0].figure.axes[0].get_yticklabels()]
    assert lanes == ["host 1, slot 0", "host 1, slot 1", "host 2, slot 0", "host 2, slot 1"]
    assert {row[2] for row in batches.table.rows} == {FAST, SLOW}
    assert sum(int(row[3]) for row in batches.table.rows) == 30
    assert "placed by lb: 30 clients in 4 slots" in batches.seen
    assert "in 14 rounds of lb" in drawn["idle"].seen
    assert "host 1 went from 1 to 2 (" in drawn["concurrency"].seen


def test_runs_without_slots_or_predictions_do_not_mention_them() -> None:
    assert pictures(run_of()) == {}
    brief = slot(clients=[], batches=[], begin=[], seconds=[], predicted=[])
    assert [*pictures(run_of(placement(0, brief)))] == ["idle"]
    plain = placement(0, slot(predicted=[]), strategy="bb", fits={})
    assert [*pictures(run_of(plain))] == ["placement", "idle"]


def test_the_legend_speaks_of_one_batch() -> None:
    figure = pictures(run_of(placement(0, slot(batches=[1, 1]))))["placement"].panels[0].figure
    assert figure.axes[0].get_legend_handles_labels()[1] == ["1 batch"]


@pytest.mark.slow
def test_more_slots_kinds_and_clients_than_fit_are_thinned_out() -> None:
    many, ones = list(range(65)), [1.0] * 65
    told: dict[str, Any] = {
        "clients": many,
        "batches": [n + 1 for n in many],
        "begin": [float(n) for n in many],
    }
    told |= {"seconds": ones, "predicted": ones}
    slots = [slot(1 + n, kind=f"kind {n}", **told) for n in range(70)]
    curves = {f"kind {n}": [1.0, 0.0, 0.0] for n in range(70)}
    drawn = pictures(run_of(placement(0, *slots, makespan=65, fits=curves)), render=False)
    assert "4,550 clients in 70 slots" in drawn["placement"].seen
    assert "only 64 fit, 6 more slots are left out" in drawn["placement"].seen
    assert len(drawn["predictions"].table.rows) == 70


HOSTILE: list[dict[str, Any]] = [
    placement(0, makespan=0),
    placement(2**52, slot(busy=9e11), makespan=5e-324),
    placement(3, slot(seconds=[5e-324, 9e11], begin=[9e11, 0], predicted=[9e11, 5e-324])),
    placement(3, slot(work=2**52), slot(2, busy=5e-324), num_slots={"1": 2**52, "2": 3}),
    placement(4, slot(kind="<b>$x^2$\n" * 99, batches=[0, 2**52]), strategy="<i>" * 99),
    placement(5, slot(), slot(), slot(begin=[None, None]), num_slots={"9": 1}),
    placement(6, fits={"cpu": [9e11, 9e11, 9e11], "": [0, 0, 0]}),
    placement(7, slot(host=10**9 - 1, number=2**52, kind="")),
]


def test_records_that_are_hostile_break_no_figure() -> None:
    assert len(run_of(*HOSTILE).of(Placed)) == len(HOSTILE)
    drawn = pictures(run_of(*HOSTILE))
    assert "concurrency" in drawn


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(HOSTILE)))
def test_one_hostile_record_alone_breaks_no_figure(place: int) -> None:
    assert "idle" in pictures(run_of(HOSTILE[place]))
