"""Run folders that tests write file by file while a reader follows them."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class RunFiles:
    """The files of a run, written as the program does."""

    def __init__(
        self, path: Path, num_workers: int = 2, iterations: int = 1000, **config: Any
    ) -> None:
        self.path = path
        (path / "trace").mkdir(parents=True)
        config = {
            "algorithm": "mdgan" if num_workers else "standalone",
            "dataset": "digits",
            "world_size": max(2, num_workers + 1),
            "iterations": iterations,
            **config,
        }
        (path / "config.json").write_text(json.dumps(config))
        self.status("running", 0, 0.0)

    def status(self, state: str, iteration: int, seconds: float) -> None:
        """Rewrites `run.json`."""
        status = {"state": state, "iteration": iteration, "seconds": seconds}
        (self.path / "run.json").write_text(json.dumps(status))

    def losses(
        self, iteration: int, seconds: float, generator: float | None, discriminator: float | None
    ) -> None:
        """A logged iteration."""
        both = {"generator_loss": generator, "discriminator_loss": discriminator}
        self._append("metrics", {"iteration": iteration, "seconds": seconds, **both, "workers": 2})

    def event(self, name: str, iteration: int, **details: Any) -> None:
        """Something that happens now and then."""
        self._append("metrics", {"event": name, "iteration": iteration, **details})

    def holdings(self, samples: Mapping[int, int]) -> None:
        """What each worker holds."""
        held = {
            str(rank): {"samples": count, "classes": [count]} for rank, count in samples.items()
        }
        self.event("holdings", 0, workers=held)

    def fid(self, iteration: int, fid: float | None, of_real: float | None = None) -> None:
        """A score."""
        real = {} if of_real is None else {"fid": of_real}
        self.event("scores", iteration, seconds=1.0, scores={"fid": fid}, real=real)

    def swap(self, iteration: int, *moves: tuple[int, int]) -> None:
        """A swap, by giver and taker."""
        self.event("swap", iteration, moves=[list(move) for move in moves], sits_out=[], exact=True)

    def spans(
        self, role: str, iteration: int, start: float, *spans: tuple[str, int, float, float]
    ) -> None:
        """Name, worker, and seconds after the start and of duration."""
        rows = [
            [name, worker, round(1e6 * after), round(1e6 * seconds), 0]
            for name, worker, after, seconds in spans
        ]
        self._append(f"trace/{role}", {"iteration": iteration, "start": start, "spans": rows})

    def traffic(self, role: str, iteration: int, seconds: float, sent: int, received: int) -> None:
        """Totals since the start."""
        counts = {"sent_bytes": {"FEEDBACK": sent}, "received_bytes": {"BATCHES": received}}
        self._append(f"trace/{role}", {"iteration": iteration, "seconds": seconds, **counts})

    def work(self, role: str, workers: Sequence[int], iterations: range, step: float) -> None:
        """A host that needs `step` seconds for each of its workers in every iteration."""
        for iteration in iterations:
            spans = [("receive", 0, 0.0, 0.01)]
            for place, worker in enumerate(workers):
                begin = 0.01 + place * step
                spans.append(("fake half", worker, begin, step / 4))
                spans.append(("feedback", worker, begin + step / 4, 3 * step / 4))
            self.spans(role, iteration, iteration / 10, *spans)

    def quiet_for(self, seconds: float) -> None:
        """Lets everything look as if it was written long ago."""
        then = time.time() - seconds
        for path in self.path.rglob("*.json*"):
            os.utime(path, (then, then))

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        with (self.path / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
