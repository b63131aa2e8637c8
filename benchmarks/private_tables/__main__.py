"""Judges private synthetic tables: of mdgan at four sites, and of MST and AIM with all rows.

    make private-tables                                            # once
    python -m benchmarks.private_tables [--tables rand,…] [--ways pairs,mst,…] [--epsilons 1]

Makes and judges the tables that have no result yet, then prints all results: scores of `judge`, and
seconds of one processor. Each result names the commit of mdgan and the flags that made its table; a
table is made again when either has changed.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd

from benchmarks.private_tables import binning, schemas, tell
from benchmarks.private_tables.judge import scores
from benchmarks.tables import data

BESIDE = tell.ROOT / "build" / "private_tables"
DELTA, SITES = "1e-5", 4
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
SHARED = ("--secure-aggregation", "--workers-per-host", "1")
MDGAN: dict[str, tuple[int, tuple[str, ...]]] = {
    "pairs": (SITES, (*SHARED, "--set", "features=pairs")),
    "pairs-one": (1, ("--set", "features=pairs")),
    "random": (SITES, (*SHARED, "--set", "features=random")),
    "moments": (SITES, SHARED),
}
"""Ways of mdgan: the number of sites that share the rows, and flags; `moments` has defaults."""
REAL = "held-out"
"""The way of real rows: synthetic rows come closer to training rows only by chance."""


@click.command()
@click.option("--tables", default=",".join(data.TABLES))
@click.option("--ways", default=f"{REAL},pairs,pairs-one,random,mst,aim")
@click.option("--epsilons", default="0.5,1,3")
@click.option("--seeds", default="0,1,2")
@click.option(
    "--most-seconds",
    default=3600,
    help="Seconds of one processor that a run of MST or AIM may take.",
)
@click.option("--out", default="runs/private-tables", type=Path)
def main(tables: str, ways: str, epsilons: str, seeds: str, most_seconds: int, out: Path) -> None:
    """Makes and judges the missing tables, and prints all results."""
    sys.path.append(str(BESIDE / "beside"))
    cases = product(ways.split(","), epsilons.split(","), seeds.split(","), tables.split(","))
    for way, epsilon, seed, table in cases:
        kind = {"table": table, "way": way, "epsilon": epsilon, "seed": seed}
        if way == REAL:
            kind |= {"epsilon": "", "seed": "0"}
        result: dict[str, Any] = {**kind, "by": _maker(way)}
        if not any(result.items() <= old.items() for old in tell.results()):
            result |= _judged(way, epsilon, seed, out / table, most_seconds)
            print(json.dumps(result), flush=True)
            others = [old for old in tell.results() if not kind.items() <= old.items()]
            tell.RESULTS.write_text(json.dumps([*others, result], indent=0) + "\n")
    print(tell.markdown(tell.results()))


def _maker(way: str) -> str:
    """The maker of rows: the last commit of mdgan and flags, or a package and its bins."""
    if way not in MDGAN:
        return f"smartnoise-synth 1.0.8, {binning.MOST_BINS} bins" if way != REAL else ""
    git = ["git", "-C", str(tell.ROOT)]
    commit = [*git, "log", "-1", "--format=%h", "--", "mdgan"]
    changes = subprocess.check_output([*git, "status", "--porcelain", "mdgan"], text=True)
    last = subprocess.check_output(commit, text=True).strip()
    return " ".join([last + "+" * bool(changes), *MDGAN[way][1]])


def _judged(way: str, epsilon: str, seed: str, folder: Path, most: int) -> dict[str, float]:
    """Makes rows in one way; returns scores and seconds, or the time limit if it was exceeded."""
    target = folder / "target.txt"
    if not target.exists():
        outcome = data.write(folder.name, folder, SITES)
        schemas.write(folder)
        target.write_text(outcome)
    outcome = target.read_text().strip()
    made = folder / f"{way}-{epsilon}-{seed}.csv"
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    if way == REAL:
        made = folder / "held-out.csv"
    elif way in MDGAN:
        _mdgan(folder, made, way, epsilon, seed, outcome)
    elif not _central(folder, made, f"{way} {epsilon} {DELTA} {seed} {most}"):
        return {"most_seconds": most}
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    judged = scores(folder / "train.csv", folder / "held-out.csv", made, outcome)
    if way == REAL:
        judged |= {"lr": 1.0, "gb": 1.0}  # classifiers would be tested on what they learnt
    seconds = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
    return {name: round(value, 4) for name, value in {**judged, "seconds": seconds}.items()}


def _mdgan(folder: Path, made: Path, way: str, epsilon: str, seed: str, outcome: str) -> None:
    num_sites, flags = MDGAN[way]
    rows = folder / ("train.csv" if num_sites == 1 else "site-{rank}-iid.csv")
    number = str(len(pd.read_csv(folder / "train.csv")))
    with tempfile.TemporaryDirectory() as place:
        run = f"{place}/run"
        train = [
            *("train", "--algorithm", "moments", "--dataset", "table", "--target", outcome),
            *("--schema", str(folder / "schema.json"), "--data-dir", str(rows), "--seed", seed),
            *("--world-size", str(num_sites + 1), "--dp-epsilon", epsilon, "--dp-delta", DELTA),
            *("--dp-ledger", f"{place}/ledger", "--eval-interval", "0", "--out", run, *flags),
        ]
        for command in (train, ["sample", run, "-n", number, "--seed", seed, "-o", str(made)]):
            program = [sys.executable, "-m", "mdgan", *command]
            done = subprocess.run(program, check=False, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr[-2000:])


def _central(folder: Path, made: Path, settings: str) -> bool:
    """Makes rows by a central mechanism; returns whether it ended in time."""
    rows, bins = pd.read_csv(folder / "train.csv"), binning.bins_of(folder / "schema.json")
    read, sizes, written = (made.with_suffix(f".{name}") for name in ("codes", "json", "made"))
    pd.DataFrame({name: bins[name].codes(rows[name]) for name in bins}).to_csv(read, index=False)
    sizes.write_text(json.dumps({name: bins[name].size for name in bins}))
    command = [BESIDE / "central" / "bin" / "python", Path(__file__).with_name("central.py")]
    alone = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": ONE_THREAD, "PYTHONPATH": ""}
    ended = subprocess.run(
        [*command, read, sizes, written, settings], check=False, env=os.environ | alone
    )
    if ended.returncode == -signal.SIGXCPU:
        return False
    ended.check_returncode()
    codes, rng = pd.read_csv(written), np.random.default_rng(int(settings.split()[3]))
    texts = {name: bins[name].texts(codes[name].to_numpy(), rng) for name in bins}
    pd.DataFrame(texts).to_csv(made, index=False)
    return True


if __name__ == "__main__":
    main()
