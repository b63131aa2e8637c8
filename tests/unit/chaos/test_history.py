"""The records of all servers of a run, also of those that were replaced."""

from pathlib import Path

from mdgan.chaos.play import History
from mdgan.records.run_directory import ENDED, RunDirectory

BEGAN = 1_700_000_000.0


def begin(run: RunDirectory, iteration: int, seconds: float, moment: float) -> None:
    name = "resumed" if iteration else "holdings"
    run.append_metrics(
        {"event": name, "iteration": iteration, "seconds": seconds, "time": moment, "workers": {}}
    )


def lose(run: RunDirectory, iteration: int, seconds: float, worker: int) -> None:
    run.append_metrics(
        {"event": "lost", "iteration": iteration, "seconds": seconds, "workers": [worker]}
    )


def test_a_run_that_is_not_there_yet(tmp_path: Path) -> None:
    history = History(tmp_path / "run")
    history.read()
    assert (history.iteration, history.events, history.state()) == (0, [], "")
    assert history.state() not in ENDED


def test_events_have_the_time_of_day(tmp_path: Path) -> None:
    run, history = RunDirectory.claim(tmp_path / "run"), History(tmp_path / "run")
    begin(run, 0, 0.0, BEGAN)
    history.read()
    run.append_metrics({"iteration": 7, "seconds": 1.0, "workers": 3})
    lose(run, 8, 1.5, 3)
    history.read()
    assert history.iteration == 8
    assert [(e.row.kind, e.time, e.row.iteration) for e in history.events] == [
        ("holdings", BEGAN, 0),
        ("lost", BEGAN + 1.5, 8),
    ]
    assert [event.row.workers for event in history.after(BEGAN + 1.5, "lost", "left")] == [(3,)]
    assert list(history.after(BEGAN + 1.6, "lost")) == []
    assert list(history.after(BEGAN, "joined")) == []


def test_what_a_later_server_forgets_is_remembered_and_nothing_counts_twice(tmp_path: Path) -> None:
    run, history = RunDirectory.claim(tmp_path / "run"), History(tmp_path / "run")
    begin(run, 0, 0.0, BEGAN)
    lose(run, 5, 1.0, 1)
    lose(run, 15, 2.0, 2)
    history.read()
    run.cut_after(10)
    begin(run, 10, 1.5, BEGAN + 60)
    lose(run, 12, 2.0, 3)
    history.read()
    history.read()
    assert [(e.row.kind, e.time - BEGAN, list(e.row.workers)) for e in history.events] == [
        ("holdings", 0.0, []),
        ("lost", 1.0, [1]),
        ("lost", 2.0, [2]),
        ("resumed", 60.0, []),
        ("lost", 60.5, [3]),
    ]
    assert history.iteration == 12


def test_a_run_has_ended_when_it_says_so(tmp_path: Path) -> None:
    run, history = RunDirectory.claim(tmp_path / "run"), History(tmp_path / "run")
    for state, ended in (("starting", False), ("running", False), ("finished", True)):
        run.write_status({"state": state})
        assert history.state() == state
        assert (history.state() in ENDED) == ended
