"""`mdgan watch` tells which workers are alive, late, lost or done."""

from pathlib import Path

from tests.unit.observe.run_files import RunFiles
from tests.unit.observe.watching import shown, workers


def states(run: RunFiles) -> list[str]:
    return [cells[1] for cells in workers(shown(run.path)).values()]


def test_a_silent_run_is_told_so(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run")
    run.losses(1, 0.1, 0.5, 0.5)
    nothing = " · nothing new for "
    for seconds, told in ((20, ""), (40, f"{nothing}30 s"), (200, f"{nothing}3 min")):
        run.quiet_for(seconds)
        assert shown(run.path)[1] == f"mdgan on digits · 2 workers: 2 alive{told}"
    run.status("failed", 1, 0.1)
    run.quiet_for(200)
    assert shown(run.path)[1] == "mdgan on digits · 2 workers: 2 done"


def test_who_is_silent_while_others_went_on_is_late(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run", num_workers=3)
    run.spans("server", 12, 1.2, ("generate", 0, 0.0, 0.001))
    for role, worker, last in (("host-1", 1, 12), ("host-2", 2, 11), ("host-3", 3, 11)):
        run.work(role, [worker], range(1, last + 1), 2.0 if worker == 3 else 0.1)
    run.quiet_for(2)
    assert states(run) == ["alive"] * 3
    run.quiet_for(8)  # more than 5 s, but not 5 steps of the slow one
    assert states(run) == ["alive", "late", "alive"]
    run.quiet_for(15)
    assert states(run) == ["alive", "late", "late"]
    run.status("stopped", 12, 1.2)
    assert states(run) == ["done"] * 3


def test_who_is_further_behind_than_a_window_is_late_at_once(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run", num_workers=2)
    run.spans("server", 40, 4.0, ("generate", 0, 0.0, 0.001))
    run.work("host-1", [1], range(1, 31), 0.01)
    run.work("host-2", [2], range(1, 30), 0.01)
    assert states(run) == ["alive", "late"]


def test_who_is_there_and_who_is_not(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run", num_workers=4)
    run.holdings({1: 10, 2: 20, 3: 30, 4: 40})
    run.event("late", 100, seconds=10.0, workers=[1, 2])
    run.event("back", 101, seconds=10.1, workers=[1], missed=1, late_seconds=0.1)
    run.event("lost", 110, seconds=11.0, workers=[3], reason="silent for 4 s")
    run.event("left", 120, seconds=12.0, workers=[4])
    held = {"6": {"samples": 7, "classes": [3, 4]}}
    run.event("joined", 130, seconds=13.0, workers=[6], holdings=held)
    run.event("late", 140, seconds=14.0, workers=[6])
    lines = shown(run.path)
    assert lines[1] == "mdgan on digits · 5 workers: 2 alive, 1 late, 1 lost, 1 left"
    assert {rank: (cells[1], cells[-1]) for rank, cells in workers(lines).items()} == {
        **{"1": ("alive", "10"), "2": ("late", "20"), "3": ("lost", "30"), "4": ("left", "40")},
        "6": ("alive", "7"),  # late, but not for long
    }
    assert lines[-3:] == [
        "lost 3 at iteration 110: silent for 4 s",
        "left 4 at iteration 120",
        "joined 6 at iteration 130",
    ]
    run.event("joined", 150, seconds=15.0, workers=[3], holdings={})
    run.event("refused", 151, seconds=15.1, worker=1, reason="NaN", strikes=3)
    run.event("shut out", 151, seconds=15.1, workers=[1], reason="3 unusable answers")
    lines = shown(run.path)
    assert lines[1] == "mdgan on digits · 5 workers: 1 alive, 2 late, 1 left, 1 out"
    assert states(run) == ["out", "late", "alive", "left", "late"]
    assert lines[-1] == "shut out 1 at iteration 151: 3 unusable answers"
    run.status("finished", 1000, 100.0)
    assert states(run) == ["out", "done", "done", "left", "done"]


def test_a_resumed_run_begins_with_the_workers_that_are_there(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run", num_workers=3)
    run.holdings({1: 10, 2: 20, 3: 30})
    run.event("late", 400, seconds=40.0, workers=[1])
    run.event("lost", 400, seconds=41.0, workers=[2], reason="closed")
    held = {"1": {"classes": [10]}, "2": {"classes": [5, 6]}, "5": {"classes": [1]}}
    run.event("resumed", 400, seconds=60.0, workers=held)
    lines = shown(run.path)
    assert {rank: (cells[1], cells[-1]) for rank, cells in workers(lines).items()} == {
        **{"1": ("alive", "10"), "2": ("alive", "11"), "3": ("lost", "30"), "5": ("alive", "1")}
    }
    assert lines[-1] == "resumed at iteration 400"
