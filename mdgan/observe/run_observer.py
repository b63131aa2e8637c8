"""Shows and records a run, in the process with the generator: progress, metrics, pictures."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import asdict
from torch import Tensor

from mdgan.errors import NotSaved, printable
from mdgan.gan.losses import finite_means
from mdgan.observe.events import TrainingBegun, tell_program, tell_program_of_row
from mdgan.observe.progress import Progress, duration
from mdgan.observe.record_writer import RecordWriter
from mdgan.observe.snapshots import Sampled, Snapshots
from mdgan.observe.tracer import Tracer
from mdgan.observe.trackers import Trackers
from mdgan.privacy.accountant import tolerance
from mdgan.records.audit_log import AuditLog
from mdgan.records.diagnosis import LOSSES_NEEDED, Finding, diagnose
from mdgan.records.rows import Fetching, Losses, Profile, RecordedRow, typed
from mdgan.records.run_directory import RunDirectory
from mdgan.records.run_state import RunState
from mdgan.records.score_names import in_short
from mdgan.records.values import number as finite
from mdgan.records.values import passed, said_left_out
from mdgan.spelling import MARKS, command, count, flag

_log = logging.getLogger(__name__)

_MOST_OF_A_NOTE = 4000
_MOST_OF_AN_OUTCOME = 500
_LOW_COVERAGE = 0.5
_AUDITED = {"left": "leave", "lost": "lost", "shut out": "shut out", "refused": "answer"}
"""Events that also go into the audit log, and their names there."""


class Rhythm(NamedTuple):
    """The number of iterations, and intervals of sample grids (0: only the last) and metrics."""

    iterations: int
    sample_interval: int
    log_interval: int


class Launched(NamedTuple):
    """How a run was started, and facts for its last lines."""

    status: Mapping[str, Any]  # the fields of `run.json` that do not change
    at: float  # when the user started the run, by the machine's monotonic clock
    settings: Mapping[str, Any] = MappingProxyType({})
    seconds: float = 0.0  # of training before the checkpoint that the run resumes from
    trains_by: str = "train"  # the command that trains on
    # The ε that the run may spend in all; None if further iterations spend nothing.
    budget: float | None = None
    for_coverage: str = ""  # a remedy if samples vary too little, and its cost


class RunObserver:
    """Records one run: logs progress, writes rows, status and pictures, and feeds trackers."""

    def __init__(
        self,
        run: RunDirectory,
        sampled: Sampled,
        rhythm: Rhythm,
        launched: Launched,
        *,
        write: RecordWriter | None = None,
        tracer: Tracer | None = None,
        trackers: Trackers | None = None,
    ) -> None:
        self.tracer = tracer or Tracer()
        self._run = run
        self._rhythm = rhythm
        self._launched = launched
        self._write = write or RecordWriter(run.path)
        self._began = launched.at
        self._first = self._last = 0
        self._state = RunState(most_rows=LOSSES_NEEDED)
        self._finding: Finding | None = None
        self._progress = Progress(rhythm.iterations)
        self._trackers = trackers or Trackers((), run.path, {})
        self._snapshots = Snapshots(run, sampled, self._write, self.tracer, self._trackers)
        self._audit_log = AuditLog(run.path)
        # From a rank to its host's fingerprint of the certificate and address.
        self.known: Callable[[int], tuple[str, str]] = lambda _rank: ("", "")

    def note(self, text: str) -> None:
        """Logs one line, cleaned, as the text may contain words of a host."""
        _log.info("%s", printable(" ".join(text.splitlines()), _MOST_OF_A_NOTE, besides=MARKS))

    def begin(self, holdings: Mapping[str, Any], iteration: int) -> None:
        """Notes that training starts; `NotSaved` if a new run cannot write into its folder."""
        self._began = time.monotonic() - self._launched.seconds
        self._progress.begin(iteration)
        self._first = self._last = iteration
        self._write.begin()
        # On a full disk a new run fails at once. A resumed one trains on, not to lose its progress.
        self._write.is_strict = not iteration
        name = "resumed" if iteration else "holdings"
        self.event(name, iteration, time=round(time.time(), 3), workers=holdings)
        self.write_status("running", iteration)
        self._snapshots.save(iteration)
        self._write.is_strict = False
        tell_program(TrainingBegun(str(self._run.path), iteration, self._rhythm.iterations))

    def seconds(self) -> float:
        """Seconds of training so far, those before a resumption included."""
        return round(time.monotonic() - self._began, 3)

    def iteration(
        self,
        number: int,
        losses: Tensor,
        workers: Sequence[int] = (),
        measures: Mapping[str, Mapping[int, Any]] = MappingProxyType({}),
    ) -> None:
        """Records and shows a completed iteration, from 1 on, as often as `Rhythm` says.

        Args:
            losses: float32 [N, 2], J_disc and J_gen of each worker that answered; or [0, 2].
            measures: name in the row → worker → JSON value: what else the algorithm records.
        """
        before, self._last = self._last, number
        is_last = number == self._rhythm.iterations
        if is_last or self._progress.due():
            means = finite_means(losses).tolist()
            self._progress.show(number, means[::-1] if len(losses) else ())
        if is_last or before == 0 or passed(self._rhythm.log_interval, before, number):
            discriminator_loss, generator_loss = finite_means(losses).tolist()
            record: dict[str, Any] = {
                "iteration": number,
                "seconds": self.seconds(),
                "generator_loss": finite(generator_loss),
                "discriminator_loss": finite(discriminator_loss),
                "workers": len(losses),
            }
            if workers:
                pairs = ([finite(loss) for loss in pair] for pair in losses.tolist())
                record["by_worker"] = dict(zip(workers, pairs, strict=True))
            record |= {key: dict(of_workers) for key, of_workers in measures.items() if of_workers}
            row = self._state.take(record)
            self._append(record)
            self._look(row)
        if passed(self._rhythm.sample_interval, before, number):
            self._snapshots.save(number)
            self.write_status("running", number)

    def event(self, name: str, iteration: int, **details: Any) -> None:
        """Records an event, such as a swap, in `metrics.jsonl`, and some in the audit log, too."""
        about = {"event": name, "iteration": iteration, "seconds": self.seconds(), **details}
        self._append(about)
        if name in _AUDITED:
            ranks = details.get("workers") or [details["worker"]]
            self.audit(_AUDITED[name], str(details.get("reason", "")), iteration, ranks=ranks)

    def visited(self, outcome: str, iteration: int, caller: tuple[str, str, str]) -> None:
        """Adds to the audit log how the server answered a caller without ranks."""
        purpose, *origin = caller
        self._add_to_audit_log(purpose, outcome, iteration, (), *origin)

    def audit(self, action: str, outcome: str, iteration: int, ranks: Sequence[int]) -> None:
        """Adds to the audit log what happened to a host's ranks."""
        self._add_to_audit_log(action, outcome, iteration, ranks, *self.known(ranks[0]))

    def _add_to_audit_log(self, action: str, outcome: str, *about: Any) -> None:
        words = printable(" ".join(outcome.splitlines()), _MOST_OF_AN_OUTCOME)
        self._write(lambda: self._audit_log.add(action, words, *about))

    def scores(self, iteration: int, record: Mapping[str, Any]) -> None:
        """Records the scores of a generator, as the scorer returns them."""
        of_scorer = ("row", "memory_bytes")
        scores = {name: value for name, value in record.items() if name not in of_scorer}
        is_first = not self._state.scores
        row = self._state.take({"event": "scores", **scores})
        self._append({"event": "scores", **scores})
        self._look(row)
        memory = record.get("memory_bytes", 0)
        self.spans("scorer", iteration, [record["row"]], memory_bytes=memory)
        if is_first:
            for warning in [*record["warnings"], *said_left_out(record["left_out"])]:
                self.note(f"scores: {warning}")

    def spans(
        self,
        role: str,
        iteration: int,
        rows: Sequence[Mapping[str, Any]],
        sent_bytes: Mapping[str, int] | None = None,
        received_bytes: Mapping[str, int] | None = None,
        memory_bytes: int = 0,
    ) -> int:
        """Records a role's spans, and its traffic since its start; returns the bytes written."""
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
        """Records what `Fetcher.tell` and `Profiler.tell` return; ValueError if it is nonsense."""
        kinds: dict[str, type[Fetching | Profile]] = {"fetching": Fetching, "profile": Profile}
        for name, kind in kinds.items():
            if (content := told.get(name)) is not None:
                about = {"role": role, "iteration": iteration, "seconds": None}
                row = typed({**content, **about}, kind)
                checked = {name: value for name, value in asdict(row).items() if value is not None}
                self.event(name, **checked)

    def spent(
        self, iteration: int, epsilon: Mapping[int, float], replaced: Mapping[int, float]
    ) -> None:
        """Records the ε that samples of workers, or all clients, have spent; see `Epsilon`."""
        both = {"epsilon": epsilon, "replaced": replaced}
        rounded = {k: {n: round(e, 4) for n, e in of.items()} for k, of in both.items() if of}
        self._state.epsilon |= epsilon
        self._state.replaced |= replaced
        self.event("epsilon", iteration, **rounded)
        self._remark()

    def end(self, state: str, iteration: int, saved: int | None) -> None:
        """Saves the generator and a last grid, and logs where everything is.

        Args:
            saved: the iteration of the newest checkpoint; None without one.

        Raises:
            NotSaved: training has finished, and the generator could not be saved in its folder.
        """
        seconds = time.monotonic() - self._began - self._launched.seconds
        try:
            has_generator = self._snapshots.save(iteration)
        finally:  # saving runs the user's generator, which may be the cause of a failure
            self.write_status(state, iteration)
        rate = (iteration - self._first) / seconds if seconds > 0 else 0.0
        how = {"finished": "done", "stopped": "stopped when asked to", "failed": "failed"}[state]
        lines = [
            f"{how}: {iteration:,} of {count(self._rhythm.iterations, 'iteration')} in "
            f"{duration(seconds)} ({rate:.1f} it/s), "
            f"{duration(time.monotonic() - self._launched.at)} with start-up"
        ]
        if has_generator:
            spent = self._state.spent_in_words() if self._state.epsilon else ()
            pictures = f"{self._run.path / 'samples'}  (last: {iteration:07d}.png)"
            facts = {
                "pictures": pictures if self._snapshots.are_seen else "",
                "samples": "" if self._snapshots.are_seen else command("sample", self._run.path),
                "generator": self._snapshots.file,
                "scores": self._scores_in_words(),
                "coverage": self._coverage_in_words(),
                "privacy": "ε {} {}".format(*spent) if spent else "",
                "looks as": "" if self._finding is None else f"if {self._finding}",
                "report": command("report", self._run.path),
                "go on": self._way_on(state, iteration, saved),
            }
            for name, fact in facts.items():
                lines += [f"  {name:<{8 if name == 'looks as' else 10}} {fact}"] * bool(fact)
        _log.info("%s", "\n".join(lines), extra={"shown": "result"})
        self._trackers.close()
        if has_generator:
            return
        if state == "finished":
            raise NotSaved(self._snapshots.rescue(iteration))
        _log.error("%s", self._snapshots.rescue(iteration))

    def _way_on(self, state: str, iteration: int, saved: int | None) -> str:
        """The command by which the user trains on, or the reason why that is not possible."""
        if saved is None:
            return f"not possible without a checkpoint (see {flag('checkpoint_interval')})"
        budget = self._launched.budget
        spent = max(self._state.epsilon.values(), default=0.0)
        if budget is not None and spent > budget - tolerance(budget):
            all_of_it = flag("dp_epsilon", f"{budget:g}")
            return f"not possible: all of {all_of_it} is spent; a larger one goes on"
        more = {"iterations": 2 * self._rhythm.iterations} if state == "finished" else {}
        resume = command("resume", self._run.path, trains_by=self._launched.trains_by, **more)
        late = f"  (from iteration {saved})" if saved < iteration else ""
        return f"{resume}{late}"

    def _scores_in_words(self) -> str:
        row = self._state.scores[-1] if self._state.scores else None
        if row is None:
            interval = self._launched.settings.get("eval_interval") or 0
            if interval <= self._last:
                return ""
            how = f"{flag('eval_interval', interval)}; {command('evaluate', self._run.path)}"
            return f"none in so few iterations ({how})"
        if (fid := row.scores.get("fid")) is None:
            scores = in_short(row.scores)
            return f"{scores} at iteration {row.iteration}" if scores else ""
        real, covered = row.real.get("fid"), row.scores.get("classes_covered")
        beside = f" (real data {real:.1f})" if isinstance(real, float) else ""
        if covered is None:
            how = f" by {row.extractor.name}" if row.extractor else ""
        else:
            how = f", {count(int(covered), 'class', 'classes')} covered"
        return f"FID {fid:.1f}{beside}{how} at iteration {row.iteration}"

    def _coverage_in_words(self) -> str:
        """A remedy, if few real samples have a generated sample near them."""
        coverage = self._state.scores[-1].scores.get("coverage") if self._state.scores else None
        if coverage is None or coverage >= _LOW_COVERAGE or not self._launched.for_coverage:
            return ""
        return f"{coverage:.2f} is low; may help: more iterations; {self._launched.for_coverage}"

    def _append(self, record: Mapping[str, Any]) -> None:
        self._write(lambda: self._run.append_metrics(record))

    def _look(self, row: RecordedRow) -> None:
        """Passes a new row to trackers and programs; notes once what seems to go wrong."""
        self._trackers.take(row)
        before = self._finding
        losses = self._state.of(Losses)
        self._finding = finding = diagnose(losses, self._state.scores, self._launched.settings)
        if finding is not None and (before is None or finding.name != before.name):
            self.note(f"iteration {row.iteration}: it looks as if {finding}")
        self._remark()
        tell_program_of_row(row)

    def _remark(self) -> None:
        """Sets the remark of the progress lines: scores, ε, the diagnosis."""
        scores, epsilon = self._state.scores, self._state.epsilon
        remarks = [in_short(scores[-1].scores)] if scores else []
        remarks += [f"ε {max(epsilon.values()):.2f}"] if epsilon else []
        remarks += [self._finding.name] if self._finding else []
        self._progress.remark = " | ".join(filter(None, remarks))

    def write_status(self, state: str, iteration: int) -> None:
        """Writes the run's state and iteration into `run.json`."""
        status = {**self._launched.status, "state": state, "iteration": iteration}
        self._write(lambda: self._run.write_status({**status, "seconds": self.seconds()}))
