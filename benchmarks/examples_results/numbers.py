"""Runs the trainings and commands of the rows, and records their numbers with the commit."""

import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite, nan
from pathlib import Path
from typing import Any

from benchmarks.examples_results.papers import Group
from mdgan.records.recorded_run import RecordedRun
from mdgan.report.numbers.attendance import kl_of_seen
from mdgan.report.numbers.scores import scores_of

_FIRST_ROUNDS = 10
_QUOTIENTS = {
    "samples_processed": "samples",
    "client_bytes": "client_bytes",
    "server_bytes": "server_bytes",
}
_CODE = ("mdgan", "datasets", "examples/*/*.json")  # what numbers depend on


def numbers_of_group(group: Group, seeds: Sequence[int], runs: Path) -> dict[str, Any]:
    """Trains the runs of a group that are missing, and returns its record for `results.json`.

    Raises:
        SystemExit: a training failed, or was stopped; the same command resumes it.
    """
    out = runs / f"{group.name}-{group.digest}"
    command = [sys.executable, "-m", "mdgan", "compare", *map(str, group.files), *group.flags]
    command += ["--seeds", ",".join(map(str, seeds)), "--out", str(out)]
    labels = [f"{path.stem}-seed{seed}" for path in group.files for seed in seeds]
    record = {"digest": group.digest, "seeds": list(seeds), **_stamp(out, labels)}
    ended = subprocess.run([*command, "--resume"] if out.exists() else command, check=False)
    if ended.returncode:
        raise SystemExit(ended.returncode)
    table = json.loads((out / "comparison.json").read_text(encoding="utf-8"))["configurations"]
    of_runs = {
        name: [
            {**numbers_of_run(out / run["folder"]), **{k: v for k, v in run.items() if _is(v)}}
            for run in entry["runs"].values()
        ]
        for name, entry in table.items()
    }
    folders = {n: [out / run["folder"] for run in e["runs"].values()] for n, e in table.items()}
    yardsticks = {run["yardstick"] for entry in table.values() for run in entry["runs"].values()}
    _add_quotients_and_level(of_runs, folders, compare=len(yardsticks) == 1)
    return {**record, "numbers": {name: _means(numbers) for name, numbers in of_runs.items()}}


def output_of_command(text: str) -> dict[str, Any]:
    """Runs a command, and returns a record of the lines that it prints."""
    program, *arguments = shlex.split(text)
    command = {"mdgan": ["-m", "mdgan"], "python": []}[program]
    ended = subprocess.run(
        [sys.executable, *command, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    return {"commit": _commit(), "date": _today(), "output": ended.stdout.splitlines()}


def numbers_of_run(folder: Path) -> dict[str, float]:
    """Numbers of a run that `comparison.json` lacks; the head of `papers.toml` explains them."""
    run = RecordedRun.read(folder)
    scores = scores_of(run, "fid")
    numbers = {f"fid@{score.iteration}": score.value for score in scores}
    divergences = kl_of_seen(run) if run.config.get("sampling") else []
    if divergences:
        numbers["kl_after_10_rounds"] = divergences[min(_FIRST_ROUNDS, len(divergences)) - 1]
        numbers["kl_at_end"] = divergences[-1]
    return numbers


def _add_quotients_and_level(
    of_runs: dict[str, list[dict[str, float]]],
    folders: Mapping[str, Sequence[Path]],
    *,
    compare: bool,
) -> None:
    """Adds quotients, and the iteration at which each run first has a FID that all runs reach.

    Args:
        compare: whether the scores of all runs can be compared; else no FID is common to all.
    """
    curves = {
        folder: scores_of(RecordedRun.read(folder), "fid")
        for folders_of_name in folders.values()
        for folder in folders_of_name
    }
    best = [min(score.value for score in curve) for curve in curves.values() if curve]
    for name, runs in of_runs.items():
        for run, folder in zip(runs, folders[name], strict=True):
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            seconds, iterations = run["seconds"], config["iterations"]
            run["seconds_of_iteration"] = seconds / iterations
            for of, new in _QUOTIENTS.items():
                if of in run:
                    run[f"{new}_per_second"] = run[of] / seconds
                    run[f"{new}_of_iteration"] = run[of] / iterations
            reached = [s.iteration for s in curves[folder] if s.value <= max(best)]
            if reached and compare:
                run["iterations_to_level"] = float(reached[0])


def _is(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _means(runs: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Mean and standard deviation over the seeds, of finite numbers that all runs have."""
    names = [name for name in runs[0] if all(isfinite(run.get(name, nan)) for run in runs)]
    means = {}
    for name in names:
        values = [run[name] for run in runs]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        means[name] = [float(f"{x:.5g}") for x in (statistics.fmean(values), spread)]
    return means


def _commit() -> str:
    """The commit of the code, with a + if files of it were changed since."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", *_CODE)
    return _git("rev-parse", "--short=8", "HEAD") + ("+" if changed else "")


def _stamp(out: Path, labels: Sequence[str]) -> dict[str, str]:
    """Date, and commits of runs in a folder: of the first run and, if others remain, of now."""
    path, now = out.with_name(f"{out.name}.commit"), _commit()
    path.parent.mkdir(parents=True, exist_ok=True)
    first = path.read_text(encoding="utf-8") if out.exists() and path.exists() else now
    states = [out / label / "run.json" for label in labels]
    is_done = all(
        state.exists() and json.loads(state.read_bytes()).get("state") == "finished"
        for state in states
    )
    commits = first if is_done or first.endswith(now) else f"{first} to {now}"
    path.write_text(commits, encoding="utf-8")
    return {"commit": commits, "date": _today()}


def _today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def _git(*arguments: str) -> str:
    ended = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    return ended.stdout.strip()
