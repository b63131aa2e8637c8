import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.run_state import Mark
from mdgan.report.numbers.attendance import (
    Presence,
    eventful,
    holdings,
    most_eventful,
    presences,
    resumptions,
    said_in_all,
    said_story,
    thinned,
)
from tests.unit.observe.fake_run import FakeRun
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
    assert holdings(run) == {1: [1, 1], 2: [7, 8]}


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
    for found in presences(run_of(*events), last):
        counts = Counter(did[found.worker].values())
        assert found.counts["answered"] == counts["answered"]
        for most in (1, 7, 60, 120, 500):
            shares = found.shares(last, most)
            assert len(shares) <= most + len(found.stays)
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
