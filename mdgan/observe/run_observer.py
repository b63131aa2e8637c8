"""Records what the process with the generator does: progress, metrics, pictures, status."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from math import isfinite
from statistics import fmean
from types import MappingProxyType
from typing import Any

from msgspec.structs import asdict
from torch import Tensor, nn

from mdgan.errors import printable
from mdgan.observe.grid import usual_grid
from mdgan.observe.profiler import Profiler
from mdgan.observe.progress import Progress, duration
from mdgan.observe.tracer import OnPhase, Tracer
from mdgan.observe.trackers import Trackers
from mdgan.records.diagnosis import LOSSES_NEEDED, Finding, diagnose
from mdgan.records.rows import Fetching, Losses, Profile, Scores, typed
from mdgan.records.run_directory import AVERAGE_FILE, GENERATOR_FILE, RunDirectory
from mdgan.records.values import count, passed, said_left_out

_log = logging.getLogger(__name__)

_MOST_OF_A_NOTE = 4000


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
        settings: of the run.
        trackers: also take scalars and grids.
        seconds: of training before the checkpoint that the run goes on from.
        on_phase: see `Tracer`.
        may_write: called before each write; raises if another process has taken over the run.
        resume: the command that goes on with the run.
        average: G with the mean of its weights; then this one is sampled, and saved beside G.
        profiler: of the process with the generator; None for none.

    Attributes:
        tracer: of the process with the generator.
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
        settings: Mapping[str, Any] | None = None,
        trackers: Trackers | None = None,
        seconds: float = 0.0,
        on_phase: OnPhase | None = None,
        may_write: Callable[[], None] = lambda: None,
        resume: str = "",
        average: nn.Module | None = None,
        profiler: Profiler | None = None,
    ) -> None:
        self.tracer = Tracer(on_phase=on_phase, profiler=profiler)
        self._may_write = may_write
        self._resume = resume
        self._seconds_before = seconds
        self._disk_trouble = False
        self._first = 0
        self._last = 0
        self._trackers = trackers or Trackers((), run.path, {})
        self._settings = settings or {}
        self._losses: deque[Losses] = deque(maxlen=LOSSES_NEEDED)
        self._scored: list[Scores] = []
        self._finding: Finding | None = None
        self._scores: Mapping[str, Any] = {}
        self._run = run
        self._generator = generator
        self._average = average
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
        """Logs one line, in which there may be words of a host."""
        _log.info("%s", printable(" ".join(text.splitlines()), _MOST_OF_A_NOTE))

    def begin(self, holdings: Mapping[str, Any], iteration: int) -> None:
        """Training starts now.

        Args:
            holdings: what each worker holds, for the report.
            iteration: the last one that is already done; 0 in a new run.
        """
        self._began = time.monotonic() - self._seconds_before
        self._progress.begin(iteration)
        self._first = self._last = iteration
        name = "resumed" if iteration else "holdings"
        self.event(name, iteration, time=round(time.time(), 3), workers=holdings)
        # On a full disk a new run fails at once; one that goes on would lose what it has learned.
        with self._going_on() if iteration else nullcontext():
            self._write_status("running", iteration)
            self._save(iteration)

    def seconds(self) -> float:
        """Seconds since training began."""
        return round(time.monotonic() - self._began, 3)

    def iteration(
        self,
        number: int,
        losses: Tensor,
        workers: Sequence[int] = (),
        staleness: Mapping[int, Sequence[int]] = MappingProxyType({}),
    ) -> None:
        """One iteration is done.

        Args:
            number: i, from 1.
            losses: float32 [N, 2], J_disc and J_gen of each of the N workers that answered.
            workers: their numbers, in the same order.
            staleness: by worker, the steps of the generator between its batches and each answer.
        """
        before, self._last = self._last, number
        is_last = number == self._iterations
        log = before == 0 or is_last or passed(self._log_interval, before, number)
        show = self._progress.due() or is_last
        if log or show:
            discriminator_loss, generator_loss = losses.mean(dim=0).tolist()
        if show:
            self._progress.show(number, (generator_loss, discriminator_loss))
        if log:
            record: dict[str, Any] = {
                "iteration": number,
                "seconds": self.seconds(),
                "generator_loss": _finite(generator_loss),
                "discriminator_loss": _finite(discriminator_loss),
                "workers": len(losses),
            }
            if workers:
                each = ([_finite(loss) for loss in both] for both in losses.tolist())
                record["by_worker"] = dict(zip(workers, each, strict=True))
            if staleness:
                record["staleness"] = {n: [fmean(s), max(s)] for n, s in staleness.items()}
            with self._going_on():
                self._run.append_metrics(record)
            scalars = {"loss/generator": generator_loss, "loss/discriminator": discriminator_loss}
            self._trackers.scalars(number, {**scalars, "workers": len(losses)})
            self._losses.append(typed(record, Losses))
            self._diagnose(number)
        if passed(self._sample_interval, before, number):
            with self._going_on():
                self._save(number)
                self._write_status("running", number)

    def event(self, name: str, iteration: int, **details: Any) -> None:
        """Records something that happens now and then, such as a swap, in `metrics.jsonl`.

        Args:
            name: what happened.
            iteration: in which, or after which, it happened.
            details: JSON values.
        """
        with self._going_on():
            seconds = self.seconds()
            self._run.append_metrics(
                {"event": name, "iteration": iteration, "seconds": seconds, **details}
            )

    def scores(self, iteration: int, record: Mapping[str, Any]) -> None:
        """Records the scores of a generator.

        Args:
            iteration: that the generator is from.
            record: from the scorer.
        """
        told = {n: value for n, value in record.items() if n not in ("row", "memory_bytes")}
        with self._going_on():
            self._run.append_metrics({"event": "scores", **told})
        memory = record.get("memory_bytes", 0)
        self.spans("scorer", iteration, [record["row"]], memory_bytes=memory)
        self._trackers.scalars(
            iteration, {f"scores/{name}": value for name, value in record["scores"].items()}
        )
        if not self._scores:
            for warning in [*record["warnings"], *said_left_out(record["left_out"])]:
                self.note(f"scores: {warning}")
        self._scores = record
        self._scored.append(typed(told, Scores))
        self._diagnose(iteration)

    def spans(
        self,
        role: str,
        iteration: int,
        rows: Sequence[Mapping[str, Any]],
        sent_bytes: Mapping[str, int] | None = None,
        received_bytes: Mapping[str, int] | None = None,
        memory_bytes: int = 0,
    ) -> None:
        """Records what a role did when, and what it has moved so far.

        Args:
            role: names the file.
            iteration: the last one that the role had reached.
            rows: from `Tracer.take`.
            sent_bytes: sent since the start, by kind of message; None if nothing is sent.
            received_bytes: received since the start, by kind of message; None if nothing is.
            memory_bytes: what its process holds; 0 if that is not known.
        """
        lines = [{**row, "start": round(row["start"] - self._began, 6)} for row in rows]
        counts: dict[str, Any] = {}
        if sent_bytes is not None and received_bytes is not None:
            counts = {"sent_bytes": dict(sent_bytes), "received_bytes": dict(received_bytes)}
        if memory_bytes:
            counts["memory_bytes"] = memory_bytes
        if counts:
            lines.append({"iteration": iteration, "seconds": self.seconds(), **counts})
        if lines:
            with self._going_on():
                self._run.append_trace(role, lines)

    def of_process(self, role: str, iteration: int, told: Mapping[str, Any]) -> None:
        """Records what a process says of itself now and then.

        Args:
            role: of the process.
            iteration: the last one that it had reached.
            told: `fetching`, from `Fetcher.tell`, and `profile`, from `Profiler.tell`; either may
                be missing or None.

        Raises:
            ValueError: that makes no sense.
        """
        kinds: dict[str, type[Fetching | Profile]] = {"fetching": Fetching, "profile": Profile}
        for name, kind in kinds.items():
            if (own := told.get(name)) is not None:
                row = typed({**own, "role": role, "iteration": iteration, "seconds": None}, kind)
                checked = {name: value for name, value in asdict(row).items() if value is not None}
                self.event(name, **checked)

    def gave_up(self, iteration: int) -> None:
        """Training failed before its first iteration.

        Args:
            iteration: the last one that was already done; 0 in a new run.
        """
        with self._going_on():
            self._write_status("failed", iteration)

    def end(self, state: str, iteration: int, saved: int | None) -> None:
        """Saves the generator and a last grid, and says where everything is.

        Args:
            state: `finished`, `stopped` (a user or a signal asked) or `failed`.
            iteration: the last complete one.
            saved: the iteration of the newest checkpoint; None if there is none.
        """
        seconds = time.monotonic() - self._began - self._seconds_before
        with self._going_on():
            self._save(iteration)
        with self._going_on():
            self._write_status(state, iteration)
        rate = (iteration - self._first) / seconds if seconds > 0 else 0.0
        looks = "" if self._finding is None else f"  looks as if {self._finding}\n"
        told = {"finished": "done", "stopped": "stopped when asked to", "failed": "failed"}[state]
        generator = GENERATOR_FILE if self._average is None else AVERAGE_FILE
        _log.info(
            f"{told}: {iteration} of {self._iterations} iterations in {duration(seconds)} "
            f"({rate:.1f} it/s), {duration(time.monotonic() - self._launched)} with start-up\n"
            f"  pictures   {self._run.path / 'samples'}  (last: {iteration:07d}.png)\n"
            f"  generator  {self._run.path / generator}\n"
            f"{_in_words(self._scores)}"
            f"{looks}"
            f"  report     mdgan report {self._run.path}\n"
            f"  go on      {self._way_on(state, iteration, saved)}",
            extra={"shown": "result"},
        )
        self._trackers.close()

    def _way_on(self, state: str, iteration: int, saved: int | None) -> str:
        """How the user trains on, or why that cannot be."""
        if saved is None:
            return "not possible without a checkpoint (see --checkpoint-interval)"
        if state == "finished":
            return f"{self._resume} --iterations {2 * self._iterations}"
        return self._resume + (f"  (from iteration {saved})" if saved < iteration else "")

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Training goes on though a record cannot be written; the first such failure is logged."""
        try:
            self._may_write()
        except OSError as error:  # the folder is gone, and so will be what is written there now
            self._tell_trouble(error)
        try:
            yield
        except OSError as error:
            self._tell_trouble(error)

    def _tell_trouble(self, error: OSError) -> None:
        if not self._disk_trouble:
            name = error.filename or self._run.path
            self.note(f"warning: cannot write {name}: {error.strerror}; training goes on")
        self._disk_trouble = True

    def _save(self, iteration: int) -> None:
        with self.tracer.span("checkpoint"):
            self._may_write()
            average = None if self._average is None else self._average.state_dict()
            self._run.write_generator(self._generator.state_dict(), iteration, average)
            shown = self._generator if self._average is None else self._average
            png, _ = usual_grid(shown, self._z_dim, self._seed)
            self._trackers.grid(iteration, png)
            self._run.write_samples(iteration, png)

    def _diagnose(self, iteration: int) -> None:
        """Shows the last FID and what seems to go wrong; a new trouble gets a line of its own."""
        before, found = self._finding, diagnose([*self._losses], self._scored, self._settings)
        self._finding = found
        if found is not None and (before is None or found.name != before.name):
            self.note(f"iteration {iteration}: it looks as if {found}")
        fid = self._scores.get("scores", {}).get("fid")
        remarks = [] if fid is None else [f"FID {fid:.1f}"]
        self._progress.remark = " | ".join(remarks + ([found.name] if found else []))

    def _write_status(self, state: str, iteration: int) -> None:
        self._may_write()
        self._run.write_status(
            {**self._status, "state": state, "iteration": iteration, "seconds": self.seconds()}
        )


def _in_words(record: Mapping[str, Any]) -> str:
    """The summary's line about the last scores, or nothing if there are none."""
    scores = record.get("scores", {})
    if "fid" not in scores:
        return ""
    floor = record.get("floor", {}).get("fid")
    beside = "" if floor is None else f" (real against real {floor:.1f})"
    covered = scores.get("classes_covered")
    classes = "" if covered is None else f", {count(covered, 'class', 'classes')} covered"
    at = f"at iteration {record['iteration']}"
    return f"  scores     FID {scores['fid']:.1f}{beside}{classes} {at}\n"


def _finite(value: float) -> float | None:
    """The value, or None where JSON has no word for it."""
    return value if isfinite(value) else None
