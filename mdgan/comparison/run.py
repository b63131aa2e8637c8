"""`mdgan compare`: checks and trains configurations, writes the report and the numbers."""

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from mdgan.comparison import plan
from mdgan.comparison.plan import AGAIN, DONE, GOES_ON, Training
from mdgan.comparison.table import as_latex, as_table, measure
from mdgan.data.handed import content_to_pass_on, write_ahead
from mdgan.errors import BadInput, writing
from mdgan.launch.faults import FAULTS, SERVER, read_planned
from mdgan.launch.minder import ENDS_WITH_INPUT, end_with_input
from mdgan.observe.progress import duration
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.score_names import in_short
from mdgan.report.build import PAGE_NAME, check_plots_extra, write_report
from mdgan.report.numbers.scores import score_events
from mdgan.settings.config_file import ConfigFile
from mdgan.spelling import flag
from mdgan.storage.whole_file import write_output
from mdgan.version import __version__

_log = logging.getLogger(__name__)
_say = partial(_log.info, extra={"shown": "result"})

TABLE_NAME, LATEX_NAME = "comparison.json", "comparison.tex"
_CONFIGS = "configs"
_STOPPED = 130


def run_comparison(
    files: Mapping[Path, ConfigFile],
    flags: Mapping[str, Any],
    seeds: Sequence[int],
    out: Path,
    *,
    jobs: int | None,
    resume: bool,
    paper_scale: bool = False,
    dry_run: bool = False,
) -> int:
    """Trains every configuration with every seed, and compares them.

    Args:
        files: the settings of each configuration, by the file that is called like it.
        flags: settings that hold for all.
        dry_run: says what would train; trains and writes nothing.

    Returns:
        The exit status: 0 done, 1 some training failed, 130 a user or a signal stopped it.

    Raises:
        BadInput: a training cannot work; none was started and nothing was written.
    """
    check_plots_extra()
    configurations = plan.check_configurations(files, flags, seeds[0])
    trainings = plan.list_trainings(configurations, seeds, out, resume=resume)
    for warning in dict.fromkeys(line for each in configurations for line in each.warnings):
        _log.warning("warning: %s", warning)
    at_once = plan.jobs_at_once(configurations) if jobs is None else jobs
    if dry_run:
        _say("%s", "\n".join(plan.in_words(trainings, out, at_once)))
        return 0
    with writing(flag("out", out)):
        (out / _CONFIGS).mkdir(parents=True, exist_ok=True)
    for each in configurations:
        _write_json(out / _CONFIGS / f"{each.name}.json", each.settings)
    queue = TrainingQueue(trainings, out / _CONFIGS, at_once)
    if not queue.run():
        _say(f"stopped; the same command with {flag('out', out)} {flag('resume', True)} goes on")
        return _STOPPED
    ordered = [t for each in configurations for t in trainings if t.configuration is each]
    runs = [t.folder for t in ordered if (t.folder / "run.json").is_file()]
    entries = measure(trainings)
    table = {"version": __version__, "paper_scale": paper_scale, "seeds": list(seeds)}
    table["configurations"] = entries
    _write_json(out / TABLE_NAME, table)
    write_output(path := out / LATEX_NAME, as_latex(entries).encode(), flag("out", path))
    _say("\n%s\n", as_table(entries))
    if runs:
        written = write_report(runs, out / PAGE_NAME)
        for line in written.damage:
            _log.warning("%s", line)
        _say("%s: %d figures", written.path, written.num_figures)
    _say("%s: the numbers; %s: the table for a paper", out / TABLE_NAME, out / LATEX_NAME)
    if queue.failed:
        _log.error("failed: %s", "; ".join(training.label for training in queue.failed))
    return 1 if queue.failed else 0


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_output(path, (json.dumps(content, indent=2) + "\n").encode(), flag("out", path))


_LOOK_SECONDS = 0.05
_STOPPING_SECONDS = 15.0
_LINES_SHOWN = 8


class TrainingQueue:
    """Starts trainings in order, and follows each until it ends; `failed` did not finish."""

    def __init__(self, trainings: Sequence[Training], configs: Path, jobs: int) -> None:
        self.failed: list[Training] = []
        self._places = {training.label: n for n, training in enumerate(trainings, start=1)}
        self._waiting = deque(trainings)
        self._faults = {
            training.label: [*read_planned({FAULTS: training.configuration.faults}).faults]
            for training in trainings
        }
        self._running: list[_Process] = []
        self._configs = configs
        self._jobs = jobs
        self._stopped = False

    def run(self) -> bool:
        """Runs all trainings, failed ones too; False if a user or a signal asked to stop."""
        with self._stop_signals():
            try:
                content_to_pass_on()  # the input's beginning; from now on its end is awaited
                end_with_input()
                while (self._waiting or self._running) and not self._stopped:
                    self._start_what_fits()
                    self._see_who_ended()
                    time.sleep(_LOOK_SECONDS)  # between two looks at the processes
            finally:
                self._end_all()
        return not self._stopped

    def _start_what_fits(self) -> None:
        while self._waiting and len(self._running) < self._jobs:
            training = self._waiting.popleft()
            self._tell(training, training.standing)
            if training.standing == DONE:
                continue
            if training.standing == AGAIN:
                try:  # the run has no checkpoint to go on from, so it starts again
                    shutil.rmtree(training.folder)
                except OSError as error:
                    why = f"cannot remove it ({error.strerror})"
                    raise BadInput(training.folder, why) from error
            self._start(training, resume=training.standing == GOES_ON)

    def _start(self, training: Training, *, resume: bool) -> None:
        """Starts a command that prints into the training's log, with the faults still ahead."""
        done = plan.iterations_saved(training.folder) if resume else 0
        self._faults[training.label] = [
            fault for fault in self._faults[training.label] if fault.iteration > done
        ]
        config = self._configs / f"{training.configuration.name}.json"
        command = [sys.executable, "-m", "mdgan", "train", "--config", str(config)]
        for name, value in training.own_settings.items():
            command += [flag(name), str(value)]
        command += ["--resume" if resume else "--out", str(training.folder)]
        environment = {**os.environ}
        if training.configuration.faults:
            environment[FAULTS] = ";".join(map(str, self._faults[training.label]))
        environment.pop(ENDS_WITH_INPUT, None)  # only this process ends with its input
        objects = content_to_pass_on()
        with writing(str(training.log)), training.log.open("ab") as output:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if objects else subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )
        if objects:
            write_ahead(popen, objects, closes=True)
        self._running.append(_Process(training, popen, time.monotonic()))

    def _see_who_ended(self) -> None:
        for process in list(self._running):
            training, status = process.training, process.popen.poll()
            if status is None:
                continue
            self._running.remove(process)
            process.end(0.0)
            took = duration(time.monotonic() - process.began)
            if status == 0:
                self._tell(training, f"finished in {took}{_last_score(training)}")
            elif not self._goes_on_after_fault(training):
                self.failed.append(training)
                how = f"signal {-status}" if status < 0 else f"exit status {status}"
                self._tell(training, f"failed with {how} after {took}; the end of {training.log}:")
                lines = training.log.read_bytes().decode(errors="replace").splitlines()
                for line in [line for line in lines if line.strip()][-_LINES_SHOWN:]:
                    _say("    %s", line)

    def _goes_on_after_fault(self, training: Training) -> bool:
        """Resumes a run whose server met its next planned fault; returns whether it did."""
        faults = self._faults[training.label]
        strikes = [fault for fault in faults if fault.role == SERVER]
        if not (strikes and plan.iterations_saved(training.folder)):
            return False
        faults.remove(min(strikes, key=attrgetter("iteration")))
        self._tell(training, "its server was struck; goes on from its checkpoint")
        self._start(training, resume=True)
        return True

    def _end_all(self) -> None:
        """Asks all running trainings to save and stop, and kills those that do not."""
        for process in self._running:
            process.popen.terminate()  # as Ctrl-C would: the run ends its own processes
        deadline = time.monotonic() + _STOPPING_SECONDS
        for process in self._running:
            process.end(max(0.0, deadline - time.monotonic()))
            self._tell(process.training, "stopped")

    @contextmanager
    def _stop_signals(self) -> Iterator[None]:
        """Ctrl-C, SIGTERM and a closed terminal end the queue between two of its steps."""

        def stop(_number: int, _frame: FrameType | None) -> None:
            self._stopped = True

        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # not under nohup
            numbers.append(signal.SIGHUP)
        before = [signal.signal(number, stop) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def _tell(self, training: Training, what: str) -> None:
        place = f"[{self._places[training.label]}/{len(self._places)}]"
        _say("%s %s: %s", place, training.label, what)


class _Process(NamedTuple):
    """One training with all its processes, in its own session."""

    training: Training
    popen: subprocess.Popen[bytes]
    began: float

    def end(self, timeout_seconds: float) -> None:
        """Waits for the training, and kills the processes that are left of its session."""
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(timeout_seconds)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()


def _last_score(training: Training) -> str:
    try:
        events = score_events(RecordedRun.read(training.folder))
    except BadInput:
        return ""
    said = in_short(events[-1].scores) if events else ""
    return f", {said or 'not scored'}"
