"""`mdgan watch`: one picture of a run, and which workers are alive, late, lost or done."""

import json
from pathlib import Path

import pytest

from tests.unit.observe.fake_run import FakeRun
from tests.unit.observe.run_files import RunFiles
from tests.unit.observe.watching import command, shown, workers


def test_a_run_in_one_picture(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run", num_workers=4, iterations=400)
    run.holdings({1: 180, 2: 179, 3: 1800, 4: 0})
    for iteration in range(10, 201, 10):
        run.losses(iteration, iteration / 10, 1 - iteration / 400, 1.0 + iteration % 20 / 10)
    run.fid(50, 128.5, 2.51)
    run.fid(150, 16.25)
    run.swap(100, (1, 2), (2, 1), (3, 4), (4, 3))
    run.swap(150, (1, 3), (3, 2), (2, 1))
    run.event("lost", 160, workers=[4], reason="Connection closed by peer")
    run.spans("server", 200, 19.9, ("generate", 0, 0.0, 0.1))
    run.work("host-1", [1, 2], range(191, 201), 0.0125)
    run.work("host-3", [3], range(191, 200), 1.5)
    run.work("host-4", [4], range(151, 161), 0.1)
    for role, received in (("host-1", 64_000), ("host-3", 1_280_000), ("host-4", 10)):
        for second in range(10):
            last = 160 if role == "host-4" else 200
            seconds = last / 10 - 10 + second
            totals = 500 * second, received * second
            run.traffic(role, last - 10 + second, seconds, *totals)
    lines = shown(run.path)
    assert lines[0].split()[-1] == "running"
    assert lines[1] == "mdgan on digits · 4 workers: 3 alive, 1 lost"
    assert lines[2].split()[1:] == ["200/400", "10.0", "it/s", "20", "s", "left"]
    assert lines[2].count("━") == lines[2].count("─")
    assert lines[4].endswith("0.500  0.500 … 0.975")
    assert lines[5].endswith("1.000  1.000 … 2.000")
    assert lines[6].endswith("16.25  best 16.25, real data 2.510")
    curve = lines[4].split()[2]
    assert list(curve) == sorted(curve, reverse=True)
    assert set(curve) == set("▁▂▃▄▅▆▇█")
    assert workers(lines) == {
        "1": ["host-1", "alive", "199", "12.5 ms", "64 kB", "500 B", "150 ← 2", "180"],
        "2": ["host-1", "alive", "199", "12.5 ms", "″", "″", "150 ← 3", "179"],
        "3": ["host-3", "alive", "199", "1.5 s", "1.28 MB", "500 B", "150 ← 1", "1,800"],
        "4": ["host-4", "lost", "159", "100 ms", "–", "–", "100 ↔ 3", "0"],
    }
    assert lines[-1] == "lost 4 at iteration 160: Connection closed by peer"


def test_what_the_samples_that_spent_most_have_spent(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run", num_workers=2, iterations=400)
    run.losses(10, 1.0, 0.5, 1.5)
    assert not any("ε" in line for line in shown(run.path))
    run.event("epsilon", 10, epsilon={"1": 0.5, "2": 0.75})
    run.event("epsilon", 20, epsilon={"1": 1.25})
    assert any("ε 1.25 at most" in line for line in shown(run.path))
    run.event("lost", 25, workers=[2], reason="killed")
    assert any("ε 1.25 as told" in line for line in shown(run.path))


def test_no_file_of_a_run_moves_the_terminal(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run", dataset="\x1b[2Jdigits\x9b")
    run.holdings({1: 180, 2: 179})
    run.event("lost", 160, workers=[2], reason="\x1b]0;gone\x07")
    lines = shown(run.path)
    assert not {"\x1b", "\x9b", "\x07"}.intersection("".join(lines))
    assert "gone" in lines[-1]


def federated(path: Path) -> RunFiles:
    """A run of four workers, two of them in each of its rounds of 100 iterations."""
    return RunFiles(path, 4, 1000, algorithm="fegan", sampling="balanced")


def ended_round(run: RunFiles, number: int, took_part: list[int], **more: object) -> None:
    weights = [1 / len(took_part)] * len(took_part)
    details = {"number": number - 1, "took_part": took_part, "weights": weights, **more}
    run.event("round", 100 * number, seconds=20.0 * number, **details)


def test_who_takes_part_in_no_round_is_not_late(tmp_path: Path) -> None:
    run = federated(tmp_path / "run")
    for number in range(1, 5):
        ended_round(run, number, [1, 2] if number % 2 else [1, 3])
        run.losses(100 * number, 20.0 * number, 1.0, 1.0)
        for worker in (1, 2 if number % 2 else 3):
            told = ("train", worker, 0.0, 0.5 * worker)
            run.spans(f"host-{worker}", 100 * number, 20.0 * number - 15, told)
    run.spans("host-4", 0, 0.0, ("receive", 0, 0.0, 1.0))
    run.spans("server", 500, 80.0, ("send", 0, 0.0, 0.1))
    run.quiet_for(20)
    lines = shown(run.path)
    assert lines[1] == "fegan on digits · 4 workers: 4 alive"
    assert " ".join(lines[2].split()[1:]) == "4 rounds 400/1,000 5.0 it/s 2 min 00 s left"
    (head,) = (line for line in lines if line.startswith("rank"))
    assert "rounds" in head
    assert "swap" not in head
    assert workers(lines) == {
        "1": ["host-1", "alive", "400", "500 ms", "–", "–", "4", "–"],
        "2": ["host-2", "alive", "300", "1 s", "–", "–", "2", "–"],
        "3": ["host-3", "alive", "400", "1.5 s", "–", "–", "2", "–"],
        "4": ["host-4", "alive", "–", "–", "–", "–", "0", "–"],
    }


def test_clients_without_a_home_are_counted_and_hosts_are_shown(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run", 2, 1000, algorithm="fl-gan", sampling="random", clients=5000)
    holds = {str(client): {"samples": 9, "classes": [9]} for client in range(1, 5001)}
    run.event("holdings", 0, seconds=0.0, workers=holds)
    ended_round(run, 1, [2, 77, 4999])
    run.losses(100, 20.0, 1.0, 1.0)
    run.spans("host-1", 100, 10.0, ("train", 0, 0.0, 0.5))
    run.spans("server", 100, 20.0, ("send", 0, 0.0, 0.1))
    run.event("lost", 100, seconds=20.0, workers=[2], reason="it said goodbye")
    lines = shown(run.path)
    assert lines[1] == "fl-gan on digits · 5,000 clients · 2 hosts: 1 alive, 1 lost"
    assert {rank: row[1] for rank, row in workers(lines).items()} == {"1": "alive", "2": "lost"}
    assert workers(lines)["2"][-2:] == ["–", "–"]


def test_a_round_that_has_begun_or_was_aborted_is_no_progress(tmp_path: Path) -> None:
    run = federated(tmp_path / "run")
    run.spans("server", 100, 1.0, ("send", 0, 0.0, 0.1))
    run.spans("host-1", 0, 0.0, ("receive", 0, 0.0, 1.0))
    run.quiet_for(20)
    lines = shown(run.path)
    assert lines[1].endswith("4 alive")
    assert lines[2].endswith("0 rounds   0/1,000")
    ended_round(run, 1, [1], aborted=True)
    assert shown(run.path)[2].endswith("1 round   0/1,000")


def test_scores_that_do_not_belong_to_the_curve_are_left_out(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run", num_workers=1, iterations=400)
    run.losses(10, 1.0, 1.0, 1.0)
    run.fid(50, 128.5, 2.51)
    run.event("scores", 60, by="evaluate", scores={"fid": 9999.0}, real={"fid": 7.0})
    run.event("scores", 70, scores={"precision": 0.5}, real={})
    (line,) = (line for line in shown(run.path) if line.startswith("FID"))
    assert line.endswith("128.5  best 128.5, real data 2.510")


def test_the_folder_of_a_long_name_is_told_by_its_end(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / ("long" * 30) / "the-last-part")
    (line, *_) = shown(run.path)
    assert line.startswith("…")
    assert line.endswith("the-last-part  running")
    assert len(line) == 80


def test_a_run_that_has_just_begun_has_no_curves_and_unknown_workers(tmp_path: Path) -> None:
    lines = shown(RunFiles(tmp_path / "run").path)
    assert lines[1] == "mdgan on digits · 2 workers: 2 alive"
    assert lines[2].endswith("0/1,000")
    assert workers(lines) == {rank: ["–", "alive", *["–"] * 6] for rank in ("1", "2")}
    assert not [line for line in lines if "loss" in line or "FID" in line]


def test_the_pace_is_of_late(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run", iterations=10_000)
    for second in range(1, 191):
        iteration = second if second <= 100 else 100 + 10 * (second - 100)
        run.losses(iteration, float(second), 0.5, 0.5)
    assert "10.0 it/s" in shown(run.path)[2]


def test_the_standalone_baseline_has_no_workers(tmp_path: Path) -> None:
    lines = shown(FakeRun(workers=0, iterations=40).write(tmp_path / "run"))
    assert lines[1] == "standalone on digits"
    assert len(lines) == 7
    assert not [line for line in lines if "rank" in line]


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_a_run_that_has_ended_is_shown_once_without_being_asked(tmp_path: Path, state: str) -> None:
    run = FakeRun(workers=3, iterations=60, done=45, state=state).write(tmp_path / "run")
    status = json.loads((run / "run.json").read_text())
    done = command(run)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].endswith(state)
    assert lines[1].rstrip() == "mdgan on digits · 3 workers: 3 done"
    assert f"45/60   {45 / status['seconds']:.1f} it/s   in " in lines[2]
    assert done.stdout.count("mdgan on digits") == 1


def test_bytes_of_a_run_that_has_ended_are_over_all_of_it(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run", num_workers=1)
    run.traffic("host-1", 500, 50.0, 100_000, 1_000_000)
    run.traffic("host-1", 1000, 100.0, 100_000, 1_000_000)
    run.status("finished", 1000, 100.0)
    assert workers(shown(run.path))["1"][3:6] == ["–", "10 kB", "1 kB"]


def test_a_swap_that_did_not_come_is_not_shown(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run", num_workers=4)
    run.swap(50, (1, 2), (2, 1), (3, 4), (4, 3))
    moves = [[1, 3], [3, 1], [2, 4], [4, 2]]
    taken = {"2": "d", "4": "b"}
    run.event("swap", 100, moves=moves, given={}, taken=taken, lost=[1], exact=False)
    shown_swaps = {rank: cells[-2] for rank, cells in workers(shown(run.path)).items()}
    assert shown_swaps == {"1": "50 ↔ 2", "2": "100 ↔ 4", "3": "50 ↔ 4", "4": "100 ↔ 2"}


def test_of_many_workers_those_with_trouble_come_first(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run", num_workers=100)
    run.spans("server", 50, 5.0, ("generate", 0, 0.0, 0.001))
    for rank in range(1, 101):
        last = 20 if rank == 71 else 50
        run.work(f"host-{rank}", [rank], range(last - 5, last + 1), rank / 1000)
    run.event("lost", 50, workers=[33], reason="closed")
    lines = shown(run.path)
    assert lines[1] == "mdgan on digits · 100 workers: 98 alive, 1 late, 1 lost"
    rows = workers(lines)
    assert list(rows) == ["71", "33", *(str(rank) for rank in range(100, 72, -1))]
    assert lines[lines.index("      … and 70 more") + 1] == ""
    assert rows["100"][:4] == ["host-100", "alive", "50", "100 ms"]


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run")
    for damage in (b"{", b"[]", b'{"event": "swap"}', b'{"iteration": 1e999}', b'{"iteration": 3}'):
        for name in ("metrics.jsonl", "trace/host-1.jsonl", "trace/scorer.jsonl"):
            with (run.path / name).open("ab") as file:
                file.write(damage + b"\n")
    run.event("scores", 3, scores={"fid": 10.0}, real=None)
    run.losses(7, 1.0, 0.25, None)
    lines = shown(run.path)
    assert lines[2].endswith("7/1,000")
    assert lines[4].rstrip().endswith("0.250  0.250 … 0.250")
    assert not any(line.startswith("D loss") for line in lines)  # none was ever told


def test_a_loss_that_is_finite_no_more_is_said_to_be(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run")
    run.losses(6, 1.0, 0.25, 0.5)
    run.losses(7, 1.0, 0.25, None)
    assert "not finite" in shown(run.path)[5]


@pytest.mark.parametrize("columns", [10, 20, 40, 60, 79, 80, 100, 200])
def test_it_fits_into_any_width(tmp_path: Path, columns: int) -> None:
    run = FakeRun(workers=12, iterations=60, done=30, state="running", lost={3: 20}).write(
        tmp_path / "run"
    )
    lines = shown(run, columns)
    assert max(map(len, lines)) <= min(columns, 100)
    head = next(line for line in lines if line.startswith("rank"))
    assert "…" not in head
    assert head.endswith("holds") == (columns >= 79)


def test_scores_for_free_riding_have_a_column(tmp_path: Path) -> None:
    run = FakeRun(workers=3, iterations=60, done=30, state="running").write(tmp_path / "run")
    assert "free rider" not in " ".join(shown(run, 100))
    row = {"iteration": 30, "seconds": 3.0, "generator_loss": 1.0, "discriminator_loss": 1.0}
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({**row, "riding": {"1": 0.25, "3": 8.5}}) + "\n")
    rows = workers(shown(run, 100))
    assert [rows[rank][-1] for rank in ("1", "2", "3")] == ["0.2", "–", "8.5"]
    assert "free rider" not in " ".join(shown(run, 80)), "there is no room for it"


def test_what_goes_wrong_is_told(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run")
    for iteration in range(10, 60, 10):
        run.losses(iteration, iteration / 10, 11.0, 0.001)
    for columns in (40, 80):
        told = " ".join(shown(run.path, columns))
        assert "It looks as if the discriminator has won: it is always right" in told
        assert told.endswith(
            "people then lower the lr of --discriminator-optimizer, --local-steps, or an "
            "unusually high lr of --generator-optimizer."
        )


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
