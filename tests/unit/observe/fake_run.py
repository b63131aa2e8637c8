"""Run folders as the program writes them, without training; the clock ticks as a test says."""

import io
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mdgan.families.mdgan.swaps import draw_swap
from mdgan.observe.tracer import WINDOW, traced_every

IMAGE_BYTES = 256
HOST_STEPS = (("fake half", 0.0011), ("local step", 0.0007), ("feedback", 0.0014))
ALONE = (
    *(("generate", 0.0011), ("real half", 0.0008), ("fake half", 0.001)),
    *(("local step", 0.0007), ("aggregate", 0.0013), ("step", 0.002)),
)
"""What a role does, and for how many seconds."""


@dataclass
class FakeRun:
    """What happened; without workers, in the standalone baseline.

    Attributes:
        lost: worker → the iteration in which it is lost.
        slow: iterations in which sending takes a hundred times as long.
        inexact: swaps, counted from 0, that do not arrive bit for bit.
        faults: other events, each written before the first iteration after its own.
    """

    workers: int = 4
    iterations: int = 60
    done: int | None = None
    state: str = "finished"
    swap_interval: int = 14
    score_interval: int = 20
    sample_interval: int = 20
    log_interval: int = 5
    workers_per_host: int = 1
    batch_size: int = 10
    classes: int = 10
    lost: dict[int, int] = field(default_factory=dict)
    slow: frozenset[int] = frozenset()
    inexact: frozenset[int] = frozenset()
    seed: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)

    def write(self, path: Path) -> Path:
        """Writes its folder and returns it."""
        _Writer(self, path).write()
        return path


class _Writer:
    def __init__(self, run: FakeRun, path: Path) -> None:
        self.run = run
        self.path = path
        self.done = run.iterations if run.done is None else run.done
        self.random = random.Random(run.seed)
        self.now = 0.0
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.sent: dict[str, Counter[str]] = {}
        self.received: dict[str, Counter[str]] = {}
        self.metrics: list[dict[str, Any]] = []
        self.swaps = 0
        every = traced_every(run.iterations, max(1, run.workers))
        self.recorded = {i for i in range(self.done + 1) if (i - 1) // WINDOW % every == 0 or i < 1}

    def write(self) -> None:
        for name in ("samples", "trace"):
            (self.path / name).mkdir(parents=True)
        if self.run.workers:
            self._hold()
        for i in range(1, self.done + 1):
            if self.run.workers:
                self._distributed_iteration(i)
            else:
                self._standalone_iteration(i)
            self._happen(i)
            self._record(i)
        self._files()

    def _took(self, seconds: float) -> float:
        return seconds * self.random.uniform(0.9, 1.15)

    def _alive(self, iteration: int) -> list[int]:
        every = range(1, self.run.workers + 1)
        return [n for n in every if self.run.lost.get(n, self.done + 1) > iteration]

    def _host(self, worker: int) -> str:
        w = self.run.workers_per_host
        return f"host-{(worker - 1) // w * w + 1}"

    def _row(self, role: str, iteration: int, spans: list[tuple[str, int, float, float]]) -> None:
        spans = [span for span in spans if span[3] > 0]
        if role.startswith("host") and iteration not in self.recorded:
            return
        start = min(span[2] for span in spans)
        rows = [
            [name, worker, round(1e6 * (begin - start)), round(1e6 * seconds), 0]
            for name, worker, begin, seconds in sorted(spans, key=lambda span: span[2])
        ]
        row = {"iteration": iteration, "start": round(start, 6), "spans": rows}
        self.rows.setdefault(role, []).append(row)

    def _move(self, giver: str, taker: str, kind: str, size: int) -> None:
        self.sent.setdefault(giver, Counter())[kind] += size
        self.received.setdefault(taker, Counter())[kind] += size

    def _distributed_iteration(self, i: int) -> None:
        alive = self._alive(i)
        for worker in (worker for worker, end in self.run.lost.items() if end == i):
            reason = "connection closed by peer"
            event = {"event": "lost", "iteration": i, "workers": [worker], "reason": reason}
            self.metrics.append(event)
        w = self.run.workers_per_host
        hosts = [[n for n in alive if (n - 1) // w == h] for h in range(-(-self.run.workers // w))]
        generate = self._took(0.0012)
        spans = [("generate", 0, self.now, generate)]
        clock = self.now + generate
        answers = []
        batch = self.run.batch_size * IMAGE_BYTES
        for host in filter(None, hosts):
            role = self._host(host[0])
            send = self._took(0.0004) * (100 if i in self.run.slow else 1)
            spans.append(("send", 0, clock, send))
            clock += send
            self._move("server", role, "BATCHES", min(2, 1 + len(host)) * batch + 200)
            self._move(role, "server", "FEEDBACK", len(host) * (batch + 8) + 120)
            answers.append(self._host_iteration(role, host, i, clock))
        wait = max(answers) - clock
        spans.append(("wait", 0, clock, wait))
        clock += wait
        for name, seconds in (("aggregate", 0.0008), ("step", 0.0021)):
            spans.append((name, 0, clock, took := self._took(seconds)))
            clock += took
        swap = self.run.swap_interval and i % self.run.swap_interval == 0 and i < self.done
        if swap and len(alive) > 1:
            spans.append(("swap", 0, clock, 0.0003))
            clock += 0.0003
            self._swap(i, alive)
        if self.run.score_interval and i % self.run.score_interval == 0:
            spans.append(("evaluate", 0, clock, 0.2))
            clock += 0.2
        self._row("server", i, spans)
        self.now = clock + 0.0001

    def _host_iteration(self, role: str, host: list[int], i: int, arrived: float) -> float:
        begun = self.now + 0.0002
        spans = [("receive", 0, begun, arrived - begun)]
        clock = arrived
        for worker in host:
            for name, seconds in HOST_STEPS:
                spans.append((name, worker, clock, took := self._took(seconds)))
                clock += took
        spans.append(("send", 0, clock, took := self._took(0.0003)))
        clock += took
        answered = clock
        for worker in host:
            spans.append(("real half", worker, clock, took := self._took(0.0008)))
            clock += took
        self._row(role, i, spans)
        return answered

    def _standalone_iteration(self, i: int) -> None:
        spans = []
        for name, seconds in ALONE:
            spans.append((name, 0, self.now, took := self._took(seconds)))
            self.now += took
        self._row("standalone", i, spans)

    def _swap(self, i: int, alive: list[int]) -> None:
        moves = draw_swap("pairs", self.run.seed, self.swaps, alive)
        given_digests = {n: sha256(f"{i} {n}".encode()).hexdigest() for n in moves}
        taken_digests = {taker: given_digests[giver] for giver, taker in moves.items()}
        exact = self.swaps not in self.run.inexact
        if not exact:
            taken_digests[next(iter(taken_digests))] = sha256(b"torn").hexdigest()
        for giver, taker in moves.items():
            if self._host(giver) != self._host(taker):
                self._move(self._host(giver), self._host(taker), "DISCRIMINATORS", 250_000)
        self.metrics.append(
            {
                **{"event": "swap", "iteration": i, "moves": sorted(moves.items())},
                "sits_out": sorted(set(alive) - moves.keys()),
                "given": {str(n): digest for n, digest in given_digests.items()},
                "taken": {str(n): digest for n, digest in taken_digests.items()},
                "exact": exact,
            }
        )
        self.swaps += 1

    def _hold(self) -> None:
        held = {}
        for worker in range(1, self.run.workers + 1):
            counts = [self.random.randint(20, 50) for _ in range(self.run.classes)]
            held[str(worker)] = {"samples": sum(counts), "classes": counts}
        self.metrics.append({"event": "holdings", "iteration": 0, "workers": held})

    def _happen(self, i: int) -> None:
        for fault in self.run.faults:
            if fault["iteration"] == i:
                self.metrics.append({"seconds": round(self.now, 3), **fault})

    def _record(self, i: int) -> None:
        run, progress = self.run, i / max(1, self.run.iterations)
        if i in (1, run.iterations) or i % run.log_interval == 0:
            noise = self.random.gauss(0, 0.05)
            self.metrics.append(
                {
                    "iteration": i,
                    "seconds": round(self.now, 3),
                    "generator_loss": 0.75 + 0.9 * progress + noise,
                    "discriminator_loss": 1.35 - 0.3 * progress - noise,
                    "workers": max(1, len(self._alive(i))),
                }
            )
            for role in set(self.sent) | set(self.received):
                row = {"iteration": i, "seconds": self.now}
                sent, received = self.sent.get(role, Counter()), self.received.get(role, Counter())
                rows = self.rows.setdefault(role, [])
                rows.append({**row, "sent_bytes": dict(sent), "received_bytes": dict(received)})
        if run.score_interval and i % run.score_interval == 0:
            self.metrics.append(self._scores(i, progress))
            self._row("scorer", i, [("evaluate", 0, self.now, 0.08)])
        if run.sample_interval and i % run.sample_interval == 0:
            self._samples(i, progress)

    def _scores(self, i: int, progress: float) -> dict[str, Any]:
        good = (1 - 0.97 * progress**0.4) * (1 + 0.1 * self.random.random())
        covered = min(self.run.classes, 2 + round(10 * progress))
        real = [180 + 3 * (k % 3) for k in range(self.run.classes)]
        made = [max(1, round(v * self.random.uniform(1 - good, 1 + good))) for v in real]
        scores = {
            **{"fid": 4 + 180 * good, "kid": 0.1 * good - 0.001, "kid_std": 0.008 * (good + 0.1)},
            **{"inception_score": 9.4 - 7 * good, "precision": 0.9 - 0.7 * good},
            **{"recall": 0.75 - 0.7 * good, "density": 0.95 - 0.8 * good},
            **{"coverage": 0.93 - 0.85 * good, "classes_covered": covered},
            "class_kl": 1.8 * good**1.5,
        }
        extractor = {
            **{"name": "digits classifier", "sha256": sha256(b"extractor").hexdigest()},
            **{"features": 128, "classes": self.run.classes, "accuracy": 0.981},
        }
        return {
            **{"event": "scores", "iteration": i, "seconds": round(self.now, 3)},
            **{"scoring_seconds": 0.2, "n": 1797, "n_real": 898, "n_held_out": 899},
            **{"n_pairs": 500, "scores": scores, "left_out": {}, "warnings": []},
            "extractor": extractor,
            "real": {"fid": 2.51, "inception_score": 9.61, "classes": self.run.classes},
            **{"class_histogram": made, "real_class_histogram": real},
        }

    def _samples(self, i: int, progress: float) -> None:
        y, x = np.mgrid[0:200, 0:200]
        ring = np.hypot(x % 25 - 12, y % 25 - 12)
        shape = np.exp(-((ring - 4 - (x // 25 + y // 25) % 5) ** 2) / 4)
        noise = np.random.default_rng(self.run.seed).random((200, 200))
        pixels = (255 * (progress * shape + (1 - progress) * noise)).astype(np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).resize((400, 400), Image.Resampling.NEAREST).save(buffer, "PNG")
        (self.path / "samples" / f"{i:07d}.png").write_bytes(buffer.getvalue())

    def _files(self) -> None:
        run = self.run
        swaps = run.workers and run.config.get("algorithm", "mdgan") == "mdgan"
        config = {
            **{"algorithm": "mdgan" if run.workers else "standalone", "dataset": "digits"},
            **{"world_size": run.workers + 1 if run.workers else 5, "iterations": run.iterations},
            **{"batch_size": run.batch_size, "kappa": "auto", "local_steps": 1},
            **({"swap_interval": run.swap_interval, "swap_epochs": None} if swaps else {}),
            **{"partition": "iid", "seed": run.seed},
            **{"workers_per_host": run.workers_per_host, "log_interval": run.log_interval},
            **run.config,
        }
        status = {
            **{"version": "0.1.0", "dataset_file": "/data/sets/digits.py", "process": 1},
            **{"dataset_sha256": sha256(b"digits").hexdigest(), "state": run.state},
            **{"iteration": self.done, "seconds": round(self.now, 3)},
        }
        (self.path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        (self.path / "run.json").write_text(json.dumps(status, indent=2) + "\n")
        _write_lines(self.path / "metrics.jsonl", self.metrics)
        for role, rows in self.rows.items():
            _write_lines(self.path / "trace" / f"{role}.jsonl", rows)


def _write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
