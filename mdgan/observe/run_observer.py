"""What the rank that owns the generator tells the world: progress, metrics, pictures, status."""

import time
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mdgan.observe.grid import draw_samples, grid_png
from mdgan.observe.progress import Progress, duration
from mdgan.observe.run_directory import RunDirectory

_GRID_SAMPLES = 64


class RunObserver:
    """Records one run.

    Args:
        run: its folder.
        generator: G, in training; saved and sampled from time to time.
        z_dim: the length of G's input.
        seed: of the samples.
        iterations: I.
        sample_interval: iterations between two grids; 0 for none but the last.
        log_interval: iterations between two metrics, besides the first and last iteration.
        status: what `run.json` holds besides how far the run is.
        launched: when the user started it, by the machine's monotonic clock.
    """

    def __init__(
        self,
        run: RunDirectory,
        generator: nn.Module,
        *,
        z_dim: int,
        seed: int,
        iterations: int,
        sample_interval: int,
        log_interval: int,
        status: Mapping[str, Any],
        launched: float,
    ) -> None:
        self._run = run
        self._generator = generator
        self._z_dim = z_dim
        self._seed = seed
        self._iterations = iterations
        self._sample_interval = sample_interval
        self._log_interval = log_interval
        self._status = status
        self._progress = Progress(iterations)
        self._launched = launched
        self._began = launched

    def note(self, text: str) -> None:
        """Prints one line without disturbing the progress line."""
        self._progress.note(text)

    def begin(self) -> None:
        """Training starts now."""
        self._began = time.monotonic()
        self._write_status("running", 0)
        self._save(0)

    def iteration(self, number: int, losses: Tensor, num_workers: int) -> None:
        """One iteration is done.

        Args:
            number: i, from 1.
            losses: float32 [N, 2], J_disc and J_gen of every worker that answered.
            num_workers: N, the live workers.
        """
        log = number in (1, self._iterations) or number % self._log_interval == 0
        show = self._progress.due() or number == self._iterations
        if log or show:
            discriminator_loss, generator_loss = losses.mean(dim=0).tolist()
        if show:
            self._progress.show(number, generator_loss, discriminator_loss)
        if log:
            self._run.append_metrics(
                {
                    "iteration": number,
                    "seconds": round(time.monotonic() - self._began, 3),
                    "generator_loss": _finite(generator_loss),
                    "discriminator_loss": _finite(discriminator_loss),
                    "workers": num_workers,
                }
            )
        if self._sample_interval and number % self._sample_interval == 0:
            self._save(number)
            self._write_status("running", number)

    def event(self, name: str, iteration: int, **details: Any) -> None:
        """Records something that happens now and then, such as a swap, in `metrics.jsonl`."""
        self._run.append_metrics({"event": name, "iteration": iteration, **details})

    def end(self, state: str, iteration: int) -> None:
        """Saves the generator and a last grid, and says where everything is.

        Args:
            state: `finished`, `stopped` (somebody asked) or `failed`.
            iteration: the last complete one.
        """
        self._progress.clear()
        seconds = time.monotonic() - self._began
        picture = self._save(iteration)
        self._write_status(state, iteration)
        rate = iteration / seconds if seconds > 0 else 0.0
        told = {"finished": "done", "stopped": "stopped when asked to", "failed": "failed"}[state]
        print(
            f"{told}: {iteration} of {self._iterations} iterations in {duration(seconds)} "
            f"({rate:.1f} it/s), {duration(time.monotonic() - self._launched)} with start-up\n"
            f"  pictures   {picture.parent}  (last: {picture.name})\n"
            f"  generator  {self._run.path / 'generator.safetensors'}\n"
            f"  go on      mdgan sample {self._run.path} -n 64 -o grid.png",
            flush=True,
        )

    def _save(self, iteration: int) -> Path:
        self._run.write_generator(self._generator.state_dict(), iteration)
        samples = draw_samples(self._generator, _GRID_SAMPLES, self._z_dim, self._seed)
        return self._run.write_samples(iteration, grid_png(samples))

    def _write_status(self, state: str, iteration: int) -> None:
        seconds = round(time.monotonic() - self._began, 3)
        self._run.write_status(
            {**self._status, "state": state, "iteration": iteration, "seconds": seconds}
        )


def _finite(value: float) -> float | None:
    """The value, or None where JSON has no word for it."""
    return value if isfinite(value) else None
