"""Federated run folders as the program writes them, without training."""

import json
import random
from pathlib import Path
from typing import Any

from tests.unit.observe.fake_run import FakeRun

MODELS = 50_000
"""Bytes of G and D."""


def federated_run(
    path: Path,
    *,
    workers: int = 20,
    rounds: int = 30,
    participants: int = 4,
    balanced: bool = True,
    seed: int = 0,
    aborted: frozenset[int] = frozenset(),
    away: frozenset[int] = frozenset(),
    classes_each: int = 3,
    algorithm: str = "fegan",
    **config: Any,
) -> Path:
    """Writes a run of rounds of five local iterations each and returns its folder.

    Workers are chosen by FeGAN's sampling (section 3.3) if `balanced`, else at random. `aborted`
    rounds are aborted; in those of `away` the last worker that is asked does not answer.
    """
    draw = random.Random(7)
    held = {}
    for worker in range(1, workers + 1):
        classes = {(worker - 1) % 10, *draw.sample(range(10), classes_each - 1)}
        held[worker] = [draw.randint(5, 60) if c in classes else 0 for c in range(10)]
    events = list(_events(held, rounds, participants, balanced, seed, aborted, away))
    settings = {"algorithm": algorithm, "balanced": balanced, **config}
    fake = FakeRun(
        workers=workers,
        iterations=5 * rounds,
        score_interval=5 * max(1, rounds // 6),
        swap_interval=0,
        seed=seed,
        config=settings,
        faults=events,
    )
    fake.write(path)
    described = {str(n): {"samples": sum(counts), "classes": counts} for n, counts in held.items()}
    metrics = path / "metrics.jsonl"
    _, *others = metrics.read_text().splitlines()
    first = json.dumps({"event": "holdings", "iteration": 0, "seconds": 0.0, "workers": described})
    metrics.write_text("\n".join([first, *others]) + "\n")
    _write_traces(path / "trace", workers, events)
    return path


def _write_traces(folder: Path, workers: int, events: list[dict[str, Any]]) -> None:
    """Replaces iterations by rounds, at the times when these were.

    A worker that takes part waits from its last round on. Models have `MODELS` bytes. A server that
    aborts does not average.
    """
    server = [json.loads(line) for line in (folder / "server.jsonl").read_text().splitlines()]
    began = {row["iteration"]: row["start"] for row in server if "spans" in row}
    free_from = dict.fromkeys(range(1, workers + 1), 0.0)
    rows = {f"host-{n}": [_row(0, [("receive", 0, -0.2, 0.0)])] for n in free_from}
    rows["server"] = []
    sent = received = 0
    for event in events:
        i, took_part = event["iteration"], event["took_part"]
        start, end = began[i - 4], began[i] + 0.004
        for worker in event["asked"]:
            spans = [
                ("receive", 0, free_from[worker], start + 0.002),
                ("train", worker, start + 0.002, end - 0.003),
                ("send", 0, end - 0.003, end - 0.002),
            ]
            rows[f"host-{worker}"].append(_row(i, spans))
            free_from[worker] = end - 0.002
        spans = [("send", 0, start, start + 0.001), ("wait", 0, start + 0.001, end - 0.001)]
        if not event["aborted"]:
            spans += [("aggregate", 0, end - 0.001, end), ("step", 0, end, end)]
        sent, received = sent + MODELS * len(event["asked"]), received + MODELS * len(took_part)
        counts = {"sent_bytes": {"ROUND": sent}, "received_bytes": {"UPDATE": received}}
        rows["server"] += [_row(i, spans), {"iteration": i, "seconds": end, **counts}]
    for role in folder.glob("host-*.jsonl"):
        role.unlink()
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))


def _row(iteration: int, spans: list[Any]) -> dict[str, Any]:
    """A row of a trace, from (name, worker, start, end)."""
    first = spans[0][2]
    rows_of_trace = [
        [name, worker, round(1e6 * (start - first)), round(1e6 * (end - start)), 0]
        for name, worker, start, end in spans
    ]
    return {"iteration": iteration, "start": first, "spans": rows_of_trace}


def _events(
    held: dict[int, list[int]],
    rounds: int,
    participants: int,
    balanced: bool,
    seed: int,
    aborted: frozenset[int],
    away: frozenset[int],
) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    class_counts, events, times = [0] * 10, [], dict.fromkeys(held, 0)
    for number in range(rounds):
        ranks: list[int] = []
        while len(ranks) < participants:
            rarest = min(range(10), key=lambda c: (class_counts[c], c))
            free = [n for n in held if n not in ranks]
            fit = [n for n in free if held[n][rarest]] or free
            chosen = draw.choice(free)
            if balanced:
                chosen = min(fit, key=lambda n: (times[n], draw.random()))
            ranks.append(chosen)
            times[chosen] += 1
            class_counts = [a + b for a, b in zip(class_counts, held[chosen], strict=True)]
        took_part = sorted(ranks[:-1] if number in away else ranks)
        parts = [sum(held[n]) for n in took_part]
        events.append(
            {
                **{"event": "round", "iteration": 5 * (number + 1), "number": number},
                **{"asked": sorted(ranks), "took_part": took_part},
                "weights": [part / sum(parts) for part in parts],
                "iterations": {str(n): 5 for n in took_part},
                "batch_sizes": {str(n): min(50, sum(held[n])) for n in took_part},
                "aborted": number in aborted,
            }
        )
    return events
