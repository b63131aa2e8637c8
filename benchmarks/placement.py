"""Measures what placing clients on slots gains and costs: Pollen's claims at our scale.

    python -m benchmarks.placement idle         # slots of unequal speed, by three placements
    python -m benchmarks.placement slots        # 1 to 6 slots beside what --slots auto chose
    python -m benchmarks.placement traffic      # bytes and the server's work, push beside pull
    python -m benchmarks.placement many         # 10,000 clients: rounds an hour, and memory

Each command trains digits with `--algorithm fl-gan --clients`, b = 10, and prints a table. Its
settings take turns, `--repeats` times. Run it on an otherwise idle machine; `idle` needs two cores.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import click
import numpy as np
import psutil
from scipy.optimize import nnls

from benchmarks.training import ends_with_this, memory, server_cpu_seconds
from mdgan.families.federated.placement import Point, curve_at, fit_curve
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.roles import SERVER
from mdgan.records.rows import Placed, RoundRow

UNFITTED = 2
"""Number of first rounds, in which `lb` places clients as `rr` does; they warm up, too."""
COUNTED_CLIENTS = 2000
"""At least this many clients train in all rounds of `traffic`: bytes are counted once a second."""
COMMON = "--algorithm fl-gan --dataset digits --batch-size 10 --threads 1 --seed 0"
QUIET = "--eval-interval 0 --sample-interval 0 --checkpoint-interval 0"


def train(
    flags: str, rounds: int, iterations: int, look: Callable[[int, Path], None] | None = None
) -> RecordedRun:
    """Runs `mdgan train` once.

    Args:
        flags: of `mdgan train`, beside those that all runs have.
        rounds: number of rounds.
        iterations: of a client in a round.
        look: called four times a second with the launcher's process and the run's folder.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = f"{COMMON} {QUIET} --round-iterations {iterations} {flags}"
        words += f" --iterations {rounds * iterations} --log-interval {iterations}"
        command = [sys.executable, "-m", "mdgan", "train", *words.split(), "--out", str(out)]
        # Its own cache, so that --slots auto shares no findings with other runs.
        process = subprocess.Popen(
            command,
            env={**os.environ, "XDG_CACHE_HOME": folder},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        with ends_with_this(process):
            while process.poll() is None:
                time.sleep(0.25)
                if look is not None:
                    with contextlib.suppress(psutil.Error, ValueError):  # it may have just ended
                        look(process.pid, out)
        assert process.stderr is not None
        if process.returncode:
            raise click.ClickException(f"{' '.join(command)} failed: {process.stderr.read()}")
        return RecordedRun.read(out)


def round_seconds(run: RecordedRun, skip: int) -> list[float]:
    """Seconds of each round, from the end of the one before to its own end."""
    ends = [row.seconds for row in run.of(RoundRow) if row.seconds is not None]
    return list(np.diff(ends)[skip - 1 :].tolist())


def rounds_done(out: Path) -> int:
    """The number of rounds that a run has recorded so far."""
    file = out / "metrics.jsonl"
    return file.read_text().count('"event": "round"') if file.exists() else 0


@click.group()
def main() -> None:
    """Measures what placing clients on slots gains and costs."""


@main.command()
@click.option("--rounds", default=30, show_default=True)
@click.option("--repeats", default=1, show_default=True)
@click.option("--clients", default=24, show_default=True)
@click.option(
    "--iterations", default=30, show_default=True, help="Iterations of a client in the mean."
)
@click.option("--cores", default="0,1,1", show_default=True, help="Core of each slot.")
def idle(rounds: int, repeats: int, clients: int, iterations: int, cores: str) -> None:
    """Compares makespan and idle time of bb and lb with rr, with unequal slots.

    With --cores 0,1,1 one slot has a core and two share one, so speeds are 1 : 1/2 : 1/2. Rounds
    of all strategies have the same clients. The table has sums over the rounds after the first two,
    ratios of these sums, and the median over rounds of each round's ratio.
    """
    slots = f"--clients {clients} --cores {cores} --slots {len(cores.split(','))}"
    uneven, equal = "--partition fegan:10,100 --training-load samples", "--partition iid"
    for work in (uneven, equal):
        rows_of: dict[str, list[Placed]] = {"rr": [], "bb": [], "lb": []}
        for _ in range(repeats):
            for strategy, placed in rows_of.items():
                run = train(f"{slots} {work} --placement {strategy}", rounds, iterations)
                placed += [row for row in run.of(Placed) if row.number >= UNFITTED]
        print(f"{clients} clients, {work}, {rounds} rounds")
        print(f"{'':4} {'makespan':>10} {'/ rr':>6} {'median':>7} {'idle':>10} {'/ rr':>6}")
        for strategy, placed in rows_of.items():
            spans, base = [row.makespan for row in placed], [row.makespan for row in rows_of["rr"]]
            lost, lost_base = sum(map(idle_seconds, placed)), sum(map(idle_seconds, rows_of["rr"]))
            middle = statistics.median(a / b for a, b in zip(spans, base, strict=True))
            print(
                f"{strategy:4} {sum(spans):8.2f} s {sum(spans) / sum(base):6.2f} {middle:7.2f} "
                f"{lost:8.2f} s {lost / lost_base:6.2f}"
            )
        if work is uneven:
            print_errors(rows_of)
    print("by arithmetic, equal clients at speeds 1 : 1/2 : 1/2: lb / rr = 0.75, idle of lb 0")


def idle_seconds(row: Placed) -> float:
    """Seconds for which slots of one round were idle, added up."""
    return sum(max(0.0, row.makespan - slot.busy) for slot in row.slots)


def print_errors(rows_of: dict[str, list[Placed]]) -> None:
    """Prints errors of predicted seconds: of two curves on rounds held out, and of lb itself.

    The curves for round t are fitted to the rounds of rr until t - 2. The error of a round is that
    of all its clients together, Σ |predicted - measured| / Σ measured.
    """
    seconds_by_kind: list[dict[str, list[tuple[int, float]]]] = []
    for row in (row for row in rows_of["rr"] if row.detailed):
        seconds_by_kind.append(defaultdict(list))
        for slot in row.slots:
            seconds_by_kind[-1][slot.kind] += [
                (int(each.batches), each.seconds) for each in slot.trained
            ]
    curves: dict[str, Callable[[list[Point]], Callable[[int], float]]] = {
        "linear": linear,
        "log-linear": log_linear,
    }
    for name, fit in curves.items():
        errors = [
            list(_errors(seconds_by_kind[: number - 1], held_out, fit))
            for number, held_out in enumerate(seconds_by_kind)
            if number >= UNFITTED
        ]
        print(f"{name:11} fit of held-out rounds is off by {_share(errors):.1%} in the median")
    of_lb = [
        [
            (abs(each.predicted - each.seconds), each.seconds)
            for slot in row.slots
            for each in slot.trained
            if each.predicted is not None
        ]
        for row in rows_of["lb"]
        if row.detailed
    ]
    print(f"lb's own predictions, corrected, are off by {_share(of_lb):.1%} in the median\n")


def linear(points: list[Point]) -> Callable[[int], float]:
    """Fits the line a·x + d by the least squares of `--placement lb`, without the logarithm."""
    x, count, seconds = (np.array(part, dtype=np.float64) for part in zip(*points, strict=True))
    weight = np.sqrt(count)
    (a, d), _ = nnls(np.stack([x, np.ones_like(x)], axis=1) * weight[:, None], seconds * weight)
    return lambda x: float(a * x + d)


def log_linear(points: list[Point]) -> Callable[[int], float]:
    """Fits the curve of `--placement lb`."""
    curve = fit_curve(points)
    return lambda x: curve_at(curve, x)


def _errors(
    past: Sequence[dict[str, list[tuple[int, float]]]],
    held_out: dict[str, list[tuple[int, float]]],
    fit: Callable[[list[Point]], Callable[[int], float]],
) -> Iterator[tuple[float, float]]:
    """For each client of the round held out: the error of its prediction, and its seconds."""
    for kind, clients in held_out.items():
        by_batches: dict[int, list[float]] = defaultdict(list)
        for x, seconds in (each for row in past for each in row.get(kind, [])):
            by_batches[x].append(seconds)
        points = [(x, len(all_of), statistics.fmean(all_of)) for x, all_of in by_batches.items()]
        if points:
            predict = fit(points)
            yield from ((abs(predict(x) - seconds), seconds) for x, seconds in clients)


def _share(rounds: Iterable[Sequence[tuple[float, float]]]) -> float:
    shares = [sum(off for off, _ in each) / sum(s for _, s in each) for each in rounds if each]
    return statistics.median(shares)


@main.command()
@click.option("--rounds", default=20, show_default=True, help="Rounds with each number of slots.")
@click.option("--repeats", default=2, show_default=True)
@click.option("--clients", default=24, show_default=True)
@click.option("--iterations", default=30, show_default=True)
@click.option("--most", default=6, show_default=True, help="Largest number of slots to try.")
def slots(rounds: int, repeats: int, clients: int, iterations: int, most: int) -> None:
    """Prints seconds a round with 1 to 6 slots, and the choice of --slots auto."""
    seconds: dict[int, list[float]] = {number: [] for number in range(1, most + 1)}
    chosen: list[int] = []
    for _ in range(repeats):
        for number, round_times in seconds.items():
            run = train(f"--clients {clients} --slots {number}", rounds, iterations)
            round_times += round_seconds(run, UNFITTED)
        # --slots auto takes four rounds a number, one more for the first, and one number too many.
        auto = train(f"--clients {clients} --slots auto", 4 * (most + 2) + 1, iterations)
        chosen.append(sum(auto.of(Placed)[-1].num_slots.values()))
    medians = {number: statistics.median(round_times) for number, round_times in seconds.items()}
    best = min(medians.values())
    print(f"{clients} clients, {iterations} iterations; seconds a round")
    for number, median in medians.items():
        note = f"  --slots auto chose it {chosen.count(number)} time(s)" * (number in chosen)
        print(f"{number} slot(s) {median:7.3f} s {median / best:5.2f} of the best{note}")
    others = [number for number in chosen if number not in medians]
    if others:
        print(f"--slots auto ended at {others}, beyond --most: others disturbed it, or raise that")


@main.command()
@click.option("--rounds", default=12, show_default=True, help="More where few clients train.")
@click.option("--repeats", default=1, show_default=True)
@click.option("--clients", default=1000, show_default=True)
@click.option(
    "--cohorts", default="10,100,1000", show_default=True, help="Numbers of clients in a round."
)
@click.option("--iterations", default=3, show_default=True)
def traffic(rounds: int, repeats: int, clients: int, cohorts: str, iterations: int) -> None:
    """Compares the server's bytes and computing in a round of push and of pull.

    Both have two slots: push has one host with two, pull has two hosts with one. `rest` is the time
    of a round beyond the slots: its seconds minus those that the busiest slot trained.
    """
    print(f"{clients} clients, {iterations} iterations of each; a round")
    print(f"{'':5} {'clients':>8} {'sent':>12} {'received':>12} {'server':>10} {'rest':>10}")
    for cohort in map(int, cohorts.split(",")):
        for way, flags in (("push", "--placement lb"), ("pull", "--placement pull")):
            common = f"--clients {clients} --participation {cohort / clients} --slots 2"
            moved, server, rest = [], [], []
            for _ in range(repeats):
                computed: list[tuple[int, float]] = []

                def look(
                    launcher: int, out: Path, computed: list[tuple[int, float]] = computed
                ) -> None:
                    done = rounds_done(out)
                    if done >= UNFITTED and (not computed or done > computed[-1][0]):
                        computed.append((done, server_cpu_seconds(launcher)))

                enough = max(rounds, COUNTED_CLIENTS // cohort)
                run = train(f"{common} --partition fegan:10,100 {flags}", enough, iterations, look)
                moved.append(_moved(run))
                if len(computed) > 1:
                    (first, before), (last, after) = computed[0], computed[-1]
                    server.append((after - before) / (last - first))
                longest = [max(slot.busy for slot in row.slots) for row in run.of(Placed)]
                took = round_seconds(run, UNFITTED)
                rest += [a - b for a, b in zip(took, longest[UNFITTED:], strict=True)]
            sent, received = np.median(np.array(moved), axis=0)
            cpu = 1e3 * statistics.median(server) if server else float("nan")
            print(
                f"{way:5} {cohort:8} {sent / 1e3:9.1f} kB {received / 1e3:9.1f} kB "
                f"{cpu:7.1f} ms {1e3 * statistics.median(rest):7.1f} ms",
                flush=True,
            )


def _moved(run: RecordedRun) -> tuple[float, float]:
    """Bytes that the server sent and received in a round, between their first and last count."""
    first, *_, last = run.traces[SERVER].traffic
    ends = [row.iteration for row in run.of(RoundRow)]
    rounds = ends.index(last.iteration) - ends.index(first.iteration)
    return (
        (sum(last.sent.values()) - sum(first.sent.values())) / rounds,
        (sum(last.received.values()) - sum(first.received.values())) / rounds,
    )


@main.command()
@click.option("--rounds", default=4, show_default=True)
@click.option("--repeats", default=1, show_default=True)
@click.option("--clients", default=10_000, show_default=True)
@click.option(
    "--shares",
    default="0.1,1",
    show_default=True,
    help="Shares of the clients that train in a round.",
)
@click.option("--iterations", default=30, show_default=True)
@click.option("--slots", "num_slots", default="2", show_default=True)
def many(
    rounds: int, repeats: int, clients: int, shares: str, iterations: int, num_slots: str
) -> None:
    """Prints rounds an hour and memory with many clients, without the first round."""
    print(f"{clients} clients, fegan:10,100, {iterations} iterations, --slots {num_slots}")
    for share in shares.split(","):
        round_times: list[float] = []
        memories: list[tuple[int, int]] = []  # once a round, since measuring halts the processes

        def look(launcher: int, out: Path, memories: list[tuple[int, int]] = memories) -> None:
            done = rounds_done(out)
            if done and (not memories or done > memories[-1][0]):
                memories.append((done, memory(launcher)[0]))

        common = f"--clients {clients} --participation {share} --slots {num_slots}"
        for _ in range(repeats):
            run = train(f"{common} --partition fegan:10,100", rounds, iterations, look)
            round_times += round_seconds(run, 1)
            memories.append((0, memories[-1][1]))  # the next repeat begins anew
        median = statistics.median(round_times)
        print(
            f"{round(float(share) * clients):6} a round: {median:8.2f} s, {3600 / median:7.1f} "
            f"rounds an hour, {clients_a_second(share, clients, median):6.1f} clients/s, "
            f"{max(pss for _, pss in memories) / 2**20:5.0f} MB at most",
            flush=True,
        )


def clients_a_second(share: str, clients: int, seconds: float) -> float:
    """The number of clients that are trained in a second."""
    return float(share) * clients / seconds


if __name__ == "__main__":
    main()
