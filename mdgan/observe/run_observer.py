"""Records what the process with the generator does: progress, metrics, pictures, status."""

import logging
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec.structs import asdict
from torch import Tensor, nn

from mdgan.errors import NotSaved, cannot_write, printable
from mdgan.gan.losses import finite_means
from mdgan.observe.grid import usual_grid
from mdgan.observe.profiler import Profiler
from mdgan.observe.progress import Progress, duration
from mdgan.observe.record_writer import RecordWriter
from mdgan.observe.tracer import OnPhase, Tracer
from mdgan.observe.trackers import Trackers
from mdgan.records.diagnosis import LOSSES_NEEDED, Finding, diagnose
from mdgan.records.rows import Fetching, Losses, Profile, Scores, spent_in_words, typed
from mdgan.records.run_directory import AVERAGE_FILE, GENERATOR_FILE, RunDirectory
from mdgan.records.values import count, passed, said_left_out
from mdgan.records.values import number as finite

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
        at_begin: see `RecordWriter`.
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
        at_begin: Callable[[], None] | None = None,
        resume: str = "",
        average: nn.Module | None = None,
        profiler: Profiler | None = None,
    ) -> None:
        self.tracer = Tracer(on_phase=on_phase, profiler=profiler)
        self._write = RecordWriter(run.path, may_write, at_begin)
        self._resume = resume
        self._seconds_before = seconds
        self._first = 0
        self._last = 0
        self._trackers = trackers or Trackers((), run.path, {})
        self._settings = settings or {}
        self._losses: deque[Losses] = deque(maxlen=LOSSES_NEEDED)
        self._scored: list[Scores] = []
        self._finding: Finding | None = None
        self._scores: Mapping[str, Any] = {}
        self._spent: dict[int, float] = {}
        self._replaced: dict[int, float] = {}
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

        Raises:
            NotSaved: a new run cannot write into its folder.
        """
        self._began = time.monotonic() - self._seconds_before
        self._progress.begin(iteration)
        self._first = self._last = iteration
        self._write.begin()
        # On a full disk a new run fails at once; one that goes on would lose what it has learned.
        self._write.is_strict = not iteration
        name = "resumed" if iteration else "holdings"
        self.event(name, iteration, time=round(time.time(), 3), workers=holdings)
        self._write(lambda: self._write_status("running", iteration))
        self._save(iteration)
        self._write.is_strict = False

    def seconds(self) -> float:
        """Seconds since training began."""
        return round(time.monotonic() - self._began, 3)

    def iteration(
        self,
        number: int,
        losses: Tensor,
        workers: Sequence[int] = (),
        measures: Mapping[str, Mapping[int, Any]] = MappingProxyType({}),
    ) -> None:
        """One iteration is done.

        Args:
            number: i, from 1.
            losses: float32 [N, 2], J_disc and J_gen of each of the N workers that answered. What
                is not finite is left out of the means. Empty if they are not told.
            workers: their numbers, in the same order.
            measures: what else is recorded: name in the row → worker → JSON value.
        """
        before, self._last = self._last, number
        is_last = number == self._iterations
        log = before == 0 or is_last or passed(self._log_interval, before, number)
        show = self._progress.due() or is_last
        if log or show:
            discriminator_loss, generator_loss = finite_means(losses).tolist()
        if show:
            self._progress.show(number, (generator_loss, discriminator_loss) if len(losses) else ())
        if log:
            record: dict[str, Any] = {
                "iteration": number,
                "seconds": self.seconds(),
                "generator_loss": finite(generator_loss),
                "discriminator_loss": finite(discriminator_loss),
                "workers": len(losses),
            }
            if workers:
                each = ([finite(loss) for loss in both] for both in losses.tolist())
                record["by_worker"] = dict(zip(workers, each, strict=True))
            record |= {name: dict(each) for name, each in measures.items() if each}
            self._write(lambda: self._run.append_metrics(record))
            means = {"loss/generator": generator_loss, "loss/discriminator": discriminator_loss}
            scalars = means if len(losses) else {}
            self._trackers.scalars(number, {**scalars, "workers": len(losses)})
            self._losses.append(typed(record, Losses))
            self._diagnose(number)
        if passed(self._sample_interval, before, number):
            self._save(number)
            self._write(lambda: self._write_status("running", number))

    def event(self, name: str, iteration: int, **details: Any) -> None:
        """Records something that happens now and then, such as a swap, in `metrics.jsonl`.

        Args:
            name: what happened.
            iteration: in which, or after which, it happened.
            details: JSON values.
        """
        about = {"event": name, "iteration": iteration, "seconds": self.seconds(), **details}
        self._write(lambda: self._run.append_metrics(about))

    def scores(self, iteration: int, record: Mapping[str, Any]) -> None:
        """Records the scores of a generator.

        Args:
            iteration: that the generator is from.
            record: from the scorer.
        """
        told = {n: value for n, value in record.items() if n not in ("row", "memory_bytes")}
        self._write(lambda: self._run.append_metrics({"event": "scores", **told}))
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
    ) -> int:
        """Records what a role did when, and what it has moved so far.

        Args:
            role: names the file.
            iteration: the last one that the role had reached.
            rows: from `Tracer.take`.
            sent_bytes: sent since the start, by kind of message; None if nothing is sent.
            received_bytes: received since the start, by kind of message; None if nothing is.
            memory_bytes: what its process holds; 0 if that is not known.

        Returns:
            How many bytes were written.
        """
        lines = [{**row, "start": round(row["start"] - self._began, 6)} for row in rows]
        counts: dict[str, Any] = {}
        if sent_bytes is not None and received_bytes is not None:
            counts = {"sent_bytes": dict(sent_bytes), "received_bytes": dict(received_bytes)}
        if memory_bytes:
            counts["memory_bytes"] = memory_bytes
        if counts:
            lines.append({"iteration": iteration, "seconds": self.seconds(), **counts})
        written: list[int] = []
        if lines:
            self._write(lambda: written.append(self._run.append_trace(role, lines)))
        return sum(written)

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

    def spent(
        self, iteration: int, epsilon: Mapping[int, float], replaced: Mapping[int, float]
    ) -> None:
        """Records what the samples of workers, or all clients, have spent; see `Epsilon`."""
        self._spent |= epsilon
        self._replaced |= replaced
        both = {"epsilon": epsilon, "replaced": replaced}
        of_each = {k: {n: round(e, 4) for n, e in own.items()} for k, own in both.items() if own}
        self.event("epsilon", iteration, **of_each)
        self._remark()

    def gave_up(self, iteration: int) -> None:
        """Training failed before its first iteration.

        Args:
            iteration: the last one that was already done; 0 in a new run.
        """
        self._write(lambda: self._write_status("failed", iteration))

    def end(self, state: str, iteration: int, saved: int | None) -> None:
        """Saves the generator and a last grid, and says where everything is.

        Args:
            state: `finished`, `stopped` (a user or a signal asked) or `failed`.
            iteration: the last complete one.
            saved: the iteration of the newest checkpoint; None if there is none.

        Raises:
            NotSaved: training has finished, and its generator is not in the run's folder.
        """
        seconds = time.monotonic() - self._began - self._seconds_before
        has_generator = self._save(iteration)
        self._write(lambda: self._write_status(state, iteration))
        rate = (iteration - self._first) / seconds if seconds > 0 else 0.0
        looks = "" if self._finding is None else f"  looks as if {self._finding}\n"
        told = {"finished": "done", "stopped": "stopped when asked to", "failed": "failed"}[state]
        generator = GENERATOR_FILE if self._average is None else AVERAGE_FILE
        lines = [
            f"{told}: {iteration} of {self._iterations} iterations in {duration(seconds)} "
            f"({rate:.1f} it/s), {duration(time.monotonic() - self._launched)} with start-up\n"
        ]
        if has_generator:
            lines += [
                f"  pictures   {self._run.path / 'samples'}  (last: {iteration:07d}.png)\n",
                f"  generator  {self._run.path / generator}\n",
                _in_words(self._scores),
                spent_in_words(self._spent, self._replaced),
                looks,
                f"  report     mdgan report {self._run.path}\n",
                f"  go on      {self._way_on(state, iteration, saved)}\n",
            ]
        _log.info("%s", "".join(lines).removesuffix("\n"), extra={"shown": "result"})
        self._trackers.close()
        if has_generator:
            return
        if state == "finished":
            raise NotSaved(self._rescue(iteration))
        _log.error("%s", self._rescue(iteration))

    def _way_on(self, state: str, iteration: int, saved: int | None) -> str:
        """How the user trains on, or why that cannot be."""
        if saved is None:
            return "not possible without a checkpoint (see --checkpoint-interval)"
        more = f" --iterations {2 * self._iterations}" if state == "finished" else ""
        return self._resume + more + (f"  (from iteration {saved})" if saved < iteration else "")

    def _save(self, iteration: int) -> bool:
        """Saves the generator and a grid of samples; whether the generator is saved."""
        with self.tracer.span("checkpoint"):
            saved = self._write(lambda: self._save_generator(self._run, iteration))
            shown = self._generator if self._average is None else self._average
            png, _ = usual_grid(shown, self._z_dim, self._seed)
            self._trackers.grid(iteration, png)
            if self._write(lambda: self._run.write_samples(iteration, png)) and saved:
                self._write.recovered()
        return saved

    def _save_generator(self, run: RunDirectory, iteration: int) -> None:
        average = None if self._average is None else self._average.state_dict()
        run.write_generator(self._generator.state_dict(), iteration, average)

    def _rescue(self, iteration: int) -> str:
        """Saves the generator where the system keeps temporary files, and says where that is."""
        why = self._write.trouble
        try:
            folder = Path(tempfile.mkdtemp(prefix="mdgan-"))
            self._save_generator(RunDirectory(folder), iteration)
        except OSError as error:
            return f"{why}. The generator is lost: {cannot_write(tempfile.gettempdir(), error)}"
        return f"{why}. The generator of iteration {iteration} is in {folder}"

    def _diagnose(self, iteration: int) -> None:
        """Shows the last FID and what seems to go wrong; a new trouble gets a line of its own."""
        before, found = self._finding, diagnose([*self._losses], self._scored, self._settings)
        self._finding = found
        if found is not None and (before is None or found.name != before.name):
            self.note(f"iteration {iteration}: it looks as if {found}")
        self._remark()

    def _remark(self) -> None:
        """What every line of progress shows besides how far it is."""
        found, fid = self._finding, self._scores.get("scores", {}).get("fid")
        remarks = [] if fid is None else [f"FID {fid:.1f}"]
        remarks += [f"ε {max(self._spent.values()):.2f}"] if self._spent else []
        self._progress.remark = " | ".join(remarks + ([found.name] if found else []))

    def _write_status(self, state: str, iteration: int) -> None:
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
