"""Judges synthetic tables: of mdgan at several sites, and of CTGAN with all rows.

    make tables                                                    # once
    python -m benchmarks.tables [--tables rand,fair,flights] [--ways iid,outcome,ctgan,moments]

A logistic regression and gradient boosting learn from synthetic rows. Prints for each table and
way, over seeds: their areas under the ROC curve on held-out real rows, also as shares of the areas
of classifiers that learnt from the real rows of all sites; SDMetrics' column shapes and pair trends
against these rows; and seconds from the command to the end of training. CTGAN may train for the
seconds that mdgan took with the rows divided at random. Run it on an otherwise idle machine.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import click

from benchmarks.tables import data

ROOT = Path(__file__).resolve().parents[2]
BESIDE = ROOT / "build" / "tables"
WAYS = {
    "iid": ("iid", ()),
    "outcome": ("outcome", ()),
    "one": ("", ()),
    "fl-gan": ("iid", ("--algorithm", "fl-gan")),
    "fl-gan-outcome": ("outcome", ("--algorithm", "fl-gan")),
}
PRIVATE = ("--algorithm", "moments", "--dp-epsilon", "1", "--dp-delta", "1e-5")
WAYS |= {
    "moments": ("iid", PRIVATE),
    "moments-shared": ("iid", (*PRIVATE, "--secure-aggregation", "--workers-per-host", "1")),
}
"""The division of rows, and flags; `one` has a single site with all rows. For ε = 1 every site of
`moments` adds its own noise; those of `moments-shared` add one site's noise together."""
SCORES = ("lr", "gb", "shapes", "trends", "seconds")


@click.command()
@click.option("--tables", default="rand,fair,flights")
@click.option("--ways", default=",".join((*WAYS, "ctgan")))
@click.option("--seeds", default="0,1,2")
@click.option("--sites", default=4, type=int)
@click.option("--out", default="runs/tables", type=Path)
@click.option("--flags", default="", help="More flags of `mdgan train`.")
def main(tables: str, ways: str, seeds: str, sites: int, out: Path, flags: str) -> None:
    """Trains, samples, judges, and prints a line for each table and way."""
    sys.path.append(str(BESIDE))
    from benchmarks.tables.judge import judge

    for table in tables.split(","):
        folder = out / table
        outcome = data.write(table, folder, sites)
        files = folder / "train.csv", folder / "held-out.csv", outcome
        real = judge(folder / "train.csv", *files)
        print(f"{table}: real rows: LR {real['lr']:.3f}, GB {real['gb']:.3f}", flush=True)
        _draft(folder)
        seconds = 60.0
        for way in ways.split(","):
            rows = []
            for seed in map(int, seeds.split(",")):
                made = folder / f"{way}-{seed}.csv"
                if way == "ctgan":
                    took = _ctgan(folder, made, seconds, seed)
                else:
                    took = _mdgan(folder, made, way, outcome, sites, seed, flags.split())
                rows.append({**judge(made, *files), "seconds": took})
            if way == "iid":
                seconds = statistics.fmean(row["seconds"] for row in rows)
            print(f"{table} {way}: {_in_words(rows, real)}", flush=True)
            with (out / "results.jsonl").open("a") as file:
                record = {"table": table, "way": way, "real": real, "runs": rows}
                file.write(json.dumps(record) + "\n")


def _in_words(rows: list[dict[str, float]], real: dict[str, float]) -> str:
    parts = []
    for name in SCORES:
        values = [row[name] for row in rows]
        mean, spread = statistics.fmean(values), statistics.pstdev(values)
        digits = 0 if name == "seconds" else 3
        share = f" ({mean / real[name]:.3f} of real)" if name in ("lr", "gb") else ""
        parts.append(f"{name} {mean:.{digits}f} ± {spread:.{digits}f}{share}")
    return ", ".join(parts)


def _draft(folder: Path) -> None:
    schema = folder / "study.json"
    schema.unlink(missing_ok=True)
    _run("schema", "draft", str(folder / "all.csv"), "-o", str(schema))


def _mdgan(
    folder: Path, made: Path, way: str, outcome: str, sites: int, seed: int, flags: list[str]
) -> float:
    division, flags_of_way = WAYS[way]
    where = str(folder / (f"site-{{rank}}-{division}.csv" if division else "train.csv"))
    size = sites + 1 if division else 2
    run = folder / f"{way}-{seed}"
    if "--dp-epsilon" in flags_of_way:
        flags_of_way = (*flags_of_way, "--dp-ledger", str(folder / f"{way}-{seed}-ledger"))
    begin = time.monotonic()
    _run(
        *("train", "--dataset", "table", "--schema", str(folder / "study.json")),
        *("--target", outcome, "--data-dir", where, "--world-size", str(size)),
        *("--seed", str(seed), "--eval-interval", "0", "--out", str(run), *flags_of_way, *flags),
    )
    took = time.monotonic() - begin
    number = sum(1 for _ in (folder / "train.csv").open()) - 1
    _run("sample", str(run), "-n", str(number), "--seed", str(seed), "-o", str(made))
    return took


def _run(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mdgan", *command], check=False, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"mdgan {' '.join(command)}: {done.stderr[-2000:]}")


def _ctgan(folder: Path, made: Path, seconds: float, seed: int) -> float:
    command = [sys.executable, "-m", "benchmarks.tables.with_ctgan", str(folder / "train.csv")]
    begin = time.monotonic()
    subprocess.run(
        [*command, str(made), str(seconds), str(seed)],
        check=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{BESIDE}"},
    )
    return time.monotonic() - begin


if __name__ == "__main__":
    main()
