"""Saves the generator and grids of its samples into the run's folder while it trains."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from torch import nn

from mdgan.errors import cannot_write
from mdgan.observe.record_writer import RecordWriter
from mdgan.observe.tracer import Tracer
from mdgan.observe.trackers import Trackers
from mdgan.records.run_directory import AVERAGE_FILE, GENERATOR_FILE, RunDirectory
from mdgan.samples.contract import SampleKind
from mdgan.samples.kinds import PICTURES, usual_picture


class Sampled(NamedTuple):
    """The generator to save. Samples come from `average`, the mean of G's weights, if given."""

    generator: nn.Module
    z_dim: int
    seed: int
    average: nn.Module | None = None
    kind: SampleKind = PICTURES


@dataclass(frozen=True)
class Snapshots:
    """Saves a generator and grids of its samples."""

    _run: RunDirectory
    _sampled: Sampled
    _write: RecordWriter
    _tracer: Tracer
    _trackers: Trackers

    @property
    def file(self) -> Path:
        """The file of the generator for users: the average, if there is one."""
        return self._run.path / (AVERAGE_FILE if self._sampled.average else GENERATOR_FILE)

    @property
    def are_seen(self) -> bool:
        """Whether samples of this kind are drawn as pictures."""
        return self._sampled.kind.is_seen

    def save(self, iteration: int) -> bool:
        """Saves the generator and a grid of samples; False if the generator could not be saved."""
        with self._tracer.span("checkpoint"):
            saved = self._write(lambda: self._save_generator(self._run, iteration))
            generator, z_dim, seed, average, kind = self._sampled
            png, _ = usual_picture(kind, average or generator, z_dim, seed=seed)
            if png is not None:
                self._trackers.grid(iteration, png)
            if self._write(lambda: png and self._run.write_samples(iteration, png)) and saved:
                self._write.recovered()
        return saved

    def rescue(self, iteration: int) -> str:
        """Saves the generator into a temporary folder instead; returns a line that names it."""
        why = self._write.trouble
        try:
            folder = Path(tempfile.mkdtemp(prefix="mdgan-"))
            self._save_generator(RunDirectory(folder), iteration)
        except OSError as error:
            return f"{why}. The generator is lost: {cannot_write(tempfile.gettempdir(), error)}"
        return f"{why}. The generator of iteration {iteration} is in {folder}"

    def _save_generator(self, run: RunDirectory, iteration: int) -> None:
        average = self._sampled.average
        state = None if average is None else average.state_dict()
        run.write_generator(self._sampled.generator.state_dict(), iteration, state)
