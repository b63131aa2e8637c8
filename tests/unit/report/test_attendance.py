"""Which workers took part in which rounds and iterations, and which classes they had shown."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import entropy

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import RoundRow
from mdgan.records.run_state import Mark
from mdgan.report.numbers.attendance import (
    Presence,
    eventful,
    kl_of_seen,
    most_eventful,
    presences,
    resumptions,
    rounds_until_seen,
    said_in_all,
    said_story,
    samples_trained,
    seen_of,
    thinned,
)
from tests.unit.observe.fake_run import FakeRun
from tests.unit.observe.federated import federated_run
from tests.unit.records.made_up import run_of

Event = dict[str, Any]


def happened(kind: str, iteration: int, *workers: int, **more: Any) -> Event:
    return {"event": kind, "iteration": iteration, "workers": list(workers), **more}


def began(*workers: int, kind: str = "holdings", iteration: int = 0) -> Event:
    held = {str(worker): {"samples": 3, "classes": [1, worker]} for worker in workers}
    return {"event": kind, "iteration": iteration, "workers": held}


def test_a_run_without_trouble_is_uneventful(tmp_path: Path) -> None:
    run = RecordedRun.read(FakeRun(workers=3, iterations=40).write(tmp_path / "run"))
    workers = presences(run, 40)
    assert [(worker.worker, worker.stays) for worker in workers] == [
        (n, [(0, 40)]) for n in (1, 2, 3)
    ]
    assert [worker.counts["answered"] for worker in workers] == [40, 40, 40]
    assert not eventful(run, workers)
    assert said_in_all(run, workers) == ""


def test_a_worker_that_was_lost_and_came_back_stays_twice() -> None:
    run = run_of(
        began(1, 2),
        happened("lost", 10, 2, reason="silent for 4 s"),
        happened("joined", 30, 2, holdings={"2": {"classes": [7, 8]}}),
        happened("left", 45, 1),
    )
    first, second = presences(run, 50)
    assert (first.stays, second.stays) == ([(0, 45)], [(0, 10), (30, 50)])
    assert second.marks == [Mark("lost", 10, "silent for 4 s"), Mark("joined", 30, "")]
    assert second.counts == {"lost": 1, "answered": 30}
    assert said_story(second, 50) == "lost in 10 (silent for 4 s); joined in 30"
    assert said_in_all(run, [first, second]) == "1 loss, 1 left, 1 joined"
    assert run.holdings() == {1: [1, 1], 2: [7, 8]}


def test_what_goes_on_without_an_answer_is_missed_until_it_comes() -> None:
    run = run_of(
        began(1, 2, 3),
        happened("late", 5, 1, 2, 3),
        happened("back", 6, 1),
        happened("lost", 9, 2, reason="silent"),
    )
    first, second, third = presences(run, 20)
    assert first.missed == [(4, 6)]
    assert (second.missed, second.stays) == ([(4, 9)], [(0, 9)])
    assert third.missed == [(4, 20)]
    assert [worker.counts["answered"] for worker in (first, second, third)] == [18, 4, 4]
    assert said_story(third, 20) == "no answer from 5 to 20"


def test_refused_answers_count_as_none() -> None:
    refused = [
        {"event": "refused", "iteration": i, "worker": 1, "reason": "NaN", "strikes": i}
        for i in (1, 2, 3)
    ]
    run = run_of(began(1, 2), *refused, happened("shut out", 3, 1, reason="3 unusable answers"))
    worker, _ = presences(run, 9)
    assert worker.counts == {"refused": 3, "answered": 0}
    assert worker.refused == [(0, 1), (1, 2), (2, 3)]
    assert said_in_all(run, [worker]) == "1 shut out, 3 refused answers"


def test_a_resumed_run_asks_all_workers_that_are_there() -> None:
    run = run_of(
        began(1, 2, 3), happened("late", 8, 1), began(1, 2, 4, kind="resumed", iteration=10)
    )
    workers = {worker.worker: worker for worker in presences(run, 20)}
    assert workers[1].missed == [(7, 10)]
    assert [workers[n].stays for n in (1, 2, 3, 4)] == [[(0, 20)], [(0, 20)], [(0, 10)], [(10, 20)]]
    assert resumptions(run) == [10]
    assert eventful(run, [])
    assert said_in_all(run, []) == "resumed once"


def test_the_servers_own_counts_hold_unless_another_served_before() -> None:
    told = {"event": "attendance", "iteration": 20, "workers": {"1": {"answered": 19, "late": 1}}}
    assert presences(run_of(began(1), told), 20)[0].counts == {"answered": 19, "late": 1}
    resumed = run_of(began(1), began(1, kind="resumed", iteration=10), told)
    assert presences(resumed, 20)[0].counts == {"answered": 20}
    went_on = run_of(began(1), told, happened("late", 21, 1), happened("back", 21, 1))
    assert presences(went_on, 30)[0].counts == {"late": 1, "answered": 29}


@pytest.mark.parametrize("seed", range(8))
def test_counts_and_shares_are_those_of_every_single_iteration(seed: int) -> None:
    draw, last, workers = random.Random(seed), 120, (1, 2, 3, 4)
    here, late, events = set(workers), set[int](), [began(*workers)]
    did: dict[int, dict[int, str]] = {worker: {} for worker in workers}
    for i in range(1, last + 1):
        for worker in workers:
            if worker not in here:
                if draw.random() < 0.1:
                    events.append(happened("joined", i, worker, holdings={}))
                    here.add(worker)
                continue
            did[worker][i] = "late" if worker in late else "answered"
            if worker in late and draw.random() < 0.4:
                events.append(happened("back", i, worker, missed=1, late_seconds=0.1))
                late.discard(worker)
            elif worker not in late and draw.random() < 0.2:
                kind = draw.choice(["late", "refused"])
                did[worker][i] = kind
                named: Event = {"worker": worker} if kind == "refused" else {"workers": [worker]}
                events.append({"event": kind, "iteration": i, **named})
                late |= {worker} if kind == "late" else set()
            elif draw.random() < 0.05:
                events.append(happened(draw.choice(["lost", "left"]), i, worker))
                here.discard(worker)
                late.discard(worker)
    for each in presences(run_of(*events), last):
        counts = Counter(did[each.worker].values())
        assert each.counts["answered"] == counts["answered"]
        for most in (1, 7, 60, 120, 500):
            shares = each.shares(last, most)
            assert len(shares) <= most + len(each.stays)
            for kind, part in (("late", 2), ("refused", 3)):
                missed = sum((share.end - share.begin) * share[part] for share in shares)
                assert missed == pytest.approx(counts[kind], abs=1e-6)


@pytest.mark.parametrize(("last", "most"), [(1, 300), (145245, 235), (2**53 - 1, 7)])
def test_a_run_of_any_length_has_few_stretches(last: int, most: int) -> None:
    late = happened("late", max(1, last // 3), 1)
    (worker,) = presences(run_of(began(1), late), last)
    assert len(worker.shares(last, most)) <= most
    assert worker.shares(last, most)[-1].end == pytest.approx(last)


def test_marks_that_cannot_be_told_apart_are_drawn_once() -> None:
    marks = [Mark(kind, i, "") for i in range(1000) for kind in ("lost", "joined")]
    assert len(thinned(marks, 1000, 50)) == 100
    assert thinned(marks[:2], 1000, 50) == marks[:2]


def test_of_many_workers_those_with_trouble_are_drawn() -> None:
    workers = [Presence(n) for n in range(1, 101)]
    for n in (97, 12, 40):
        workers[n - 1].marks.append(Mark("lost", 3, ""))
    chosen = [worker.worker for worker in most_eventful(workers, 10)]
    assert {12, 40, 97} < set(chosen)
    assert len(chosen) == 10
    assert chosen == sorted(chosen)
    assert most_eventful(workers, 200) == workers


def test_a_long_story_is_cut() -> None:
    marks = [Mark("lost" if k % 2 else "joined", k, "") for k in range(20)]
    assert said_story(Presence(1, marks=marks), 20).endswith("; lost in 5; 14 more")


HELD = {1: [10, 0, 5], 2: [0, 20, 0], 3: [4, 4, 4]}


def event(number: int, took_part: list[int], **more: Any) -> dict[str, Any]:
    return {
        "event": "round",
        "iteration": 5 * (number + 1),
        "seconds": 1.0,
        "number": number,
        "asked": took_part,
        "took_part": took_part,
        "weights": [1 / len(took_part)] * len(took_part) if took_part else [],
        "iterations": {str(rank): 5 for rank in took_part},
        "batch_sizes": {str(rank): 10 * rank for rank in took_part},
        "aborted": False,
        **more,
    }


def run(*events: dict[str, Any], held: dict[int, list[int]] | None = None) -> RecordedRun:
    told = {str(n): {"classes": counts} for n, counts in (held or HELD).items()}
    first = {"event": "holdings", "iteration": 0, "workers": told}
    return run_of(first, *events)


def test_kl_of_what_was_seen_in_equal_shares_is_zero() -> None:
    recorded = run(event(0, [1]), event(1, [1, 2]), held={1: [3, 7], 2: [0, 1]})
    assert kl_of_seen(run(event(0, [1, 2, 3])))[-1] == 0.0
    assert kl_of_seen(recorded) == pytest.approx(
        [entropy([3, 8], [3, 7]), entropy([3, 8], [6, 15])]
    )


def test_aborted_rounds_and_workers_without_an_answer_show_nothing() -> None:
    recorded = run(event(0, [1], asked=[1, 2]), event(1, [2, 3], aborted=True), event(2, [3]))
    assert seen_of(recorded)[0] == [[10, 0, 5], [10, 0, 5], [14, 4, 9]]
    rounds = recorded.of(RoundRow)
    assert [one.asked for one in rounds] == [(1, 2), (2, 3), (3,)]
    assert [one.counted for one in rounds] == [(1,), (), (3,)]
    assert samples_trained(rounds) == 5 * 10 + 5 * 30


def test_a_class_without_samples_is_not_waited_for() -> None:
    recorded = run(*(event(n, [1]) for n in range(3)), held={1: [300, 0, 170], 2: [0, 0, 1]})
    assert seen_of(recorded)[1] == [300, 171]
    assert rounds_until_seen(recorded) == 3
    assert rounds_until_seen(recorded, 171) == 2
    assert rounds_until_seen(recorded, 511) is None


@pytest.mark.parametrize("balanced", [True, False])
def test_a_recorded_run_is_counted_as_numpy_counts_it(tmp_path: Path, balanced: bool) -> None:
    path = federated_run(tmp_path / "run", rounds=25, balanced=balanced, aborted=frozenset({3}))
    events = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    told = events[0]["workers"]
    held = np.zeros((21, 10), int)
    for name, what in told.items():
        held[int(name)] = what["classes"]
    taken = [e for e in events if e.get("event") == "round"]
    each = np.array([held[e["took_part"]].sum(0) * (not e["aborted"]) for e in taken])
    seen = each.cumsum(0)
    recorded = RecordedRun.read(path)
    assert seen_of(recorded)[0] == seen.tolist()
    with np.errstate(divide="ignore"):
        expected = [entropy(held.sum(0), counts) for counts in seen]
    assert kl_of_seen(recorded) == pytest.approx(expected, rel=1e-9)
    often = (seen >= 500).all(1)
    assert often.any()
    assert rounds_until_seen(recorded) == 1 + int(often.argmax())
    assert {round(sum(one.weights.values()), 12) for one in recorded.of(RoundRow)} == {1.0}


def test_details_that_are_missing_count_as_nothing() -> None:
    strange = event(0, [1, 2])
    for name in ("iterations", "batch_sizes", "asked"):
        del strange[name]
    (one,) = run(strange).of(RoundRow)
    assert one.asked == ()
    assert samples_trained([one]) == 0
    assert rounds_until_seen(run_of(strange)) is None
