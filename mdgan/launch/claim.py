"""The run's folder becomes this server's: a new one, or one that goes on."""

import logging
import os
import platform
import secrets
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from socket import gethostname
from typing import Any

import psutil
import torch
from torch import nn

from mdgan.errors import BadInput, cannot_write, writing
from mdgan.families import registry
from mdgan.launch import beginning
from mdgan.launch.beginning import Continuation, continuation
from mdgan.launch.faults import SERVER
from mdgan.launch.host_folder import run_key
from mdgan.launch.machine import resolve_device
from mdgan.launch.models import default_settings
from mdgan.launch.prepare import Prepared
from mdgan.launch.privacy import check_covered
from mdgan.observe.profiler import Profiler
from mdgan.observe.record_writer import RecordWriter
from mdgan.observe.run_observer import Launched, Rhythm, RunObserver
from mdgan.observe.snapshots import Sampled
from mdgan.observe.tracer import Tracer
from mdgan.observe.trackers import Trackers
from mdgan.records.run_directory import RunDirectory
from mdgan.settings.machine import num_cores, processor_name
from mdgan.storage.checkpoints import Checkpoints
from mdgan.storage.fence import Fence, Fenced
from mdgan.version import __version__

_log = logging.getLogger(__name__)

STOPPED_BY = (128 + signal.SIGINT, 128 + signal.SIGTERM)
"""Exit statuses of processes that were asked to stop, as shells give them."""


@dataclass(frozen=True)
class Claim:
    """A run's folder, which the process with the generator holds."""

    run: RunDirectory
    fence: Fence  # tells whether another server has taken over since
    goes_on: Continuation | None  # where training goes on, unless the run is new
    takes_over: bool  # whether this server replaces one that may seem to live but does not answer
    listens: str  # address and port for workers of other machines; empty if there are none
    socket: str  # where workers of this machine find the server; empty if it has none
    run_id: str  # drawn for the run when it was new; the folders of its hosts are known by it
    # What the files held that the claim has changed, by name, None where there was none; empty if
    # the folder is new.
    before: Mapping[str, bytes | None] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return 0.0 if self.goes_on is None else self.goes_on.manifest.seconds

    @property
    def iteration(self) -> int:
        """The last one that is done."""
        return 0 if self.goes_on is None else self.goes_on.manifest.iteration

    @contextmanager
    def noting_end(self) -> Iterator[Callable[[int], int]]:
        """Says that a new run has failed or was stopped, if the server could not say so itself.

        A run that was to go on is left as it was, if training has not begun. The block calls what
        it is given with its exit status, which that returns.
        """
        state, is_refused = "failed", False

        def ended(status: int) -> int:
            nonlocal state, is_refused
            state = "stopped" if status in STOPPED_BY else "failed"
            is_refused = status == 2
            return status

        try:
            yield ended
        finally:
            with suppress(BadInput, Fenced, OSError):  # why the server ended is told already
                self.fence.check()
                status = self.run.read_status()
                noted = status.get("state")
                # Where a host cannot join, the launcher stops the server, which does not know why.
                is_wrong = noted == "stopped" and is_refused and not self.before
                if noted == "starting" and self.before:
                    self.give_back()
                elif noted == "starting" or is_wrong:
                    self.run.write_status({**status, "state": state})

    def give_back(self) -> None:
        """Leaves the folder as it was before this server claimed it."""
        self.run.put_back(self.before)
        if not self.takes_over:  # hosts that have seen this server must not go back to the other
            self.fence.withdraw()

    def take_records(self) -> None:
        """Cuts off what training is about to repeat, once nothing can keep it from its begin."""
        with writing(f"--resume {self.run.path}"):
            self.run.cut_after(self.iteration)
            self.run.sweep()


def claim(
    prepared: Prepared, listens: str = "", socket: str = "", *, taking_over: bool = False
) -> Claim:
    """Makes the folder of a new run, or takes that of a run that goes on; see `Claim`."""
    run, goes_on, is_new = _find_run(prepared, taking_over=taking_over)
    place = f"--out {run.path}" if goes_on is None else f"--resume {run.path}"
    try:
        before = {} if is_new else run.contents(prepared.dataset.name)
        fence = Fence.claim(run.path)
    except OSError as error:
        if is_new:  # the folder was empty; the same command can be given again
            shutil.rmtree(run.path, ignore_errors=True)
        raise BadInput(cannot_write(place, error)) from error
    run_id = "" if is_new else run.read_status().get("run_id", "")
    run_id = run_id or secrets.token_hex(16)
    claimed = Claim(run, fence, goes_on, taking_over, listens, socket, run_id, before)
    try:
        run.write_config(prepared.config)
        if prepared.dataset.kept:
            run.keep_dataset_file(prepared.dataset.path)
        for name, content in prepared.dataset.keeps.items():
            run.keep(name, content)
        status = {"state": "starting", "iteration": claimed.iteration, "seconds": claimed.seconds}
        run.write_status({**about(prepared, claimed), **status})
    except BaseException as error:
        if is_new:
            shutil.rmtree(run.path, ignore_errors=True)
        else:
            with suppress(OSError):
                claimed.give_back()
        if isinstance(error, OSError):
            raise BadInput(cannot_write(place, error)) from error
        raise
    if goes_on is not None:
        _log.info("going on with %s from iteration %d", run.path, claimed.iteration)
        for note in goes_on.notes:
            _log.info("  %s", note)
    return claimed


def _find_run(
    prepared: Prepared, *, taking_over: bool
) -> tuple[RunDirectory, Continuation | None, bool]:
    """The run's folder; where training goes on; and whether the folder was empty."""
    if prepared.continues is not None:
        run = RunDirectory.open(prepared.continues)
        goes_on = continuation(run, prepared.config, taking_over=taking_over)
        check_covered(run.path, prepared.settings, goes_on.manifest.settings)
        return run, goes_on, False
    name = f"{prepared.dataset.name}-{datetime.now():%Y%m%d-%H%M%S}"
    path = Path(prepared.launch.out or f"runs/{name}")
    if not (prepared.resumes_or_starts and (path / "run.json").is_file()):
        return RunDirectory.claim(path), None, True
    run = RunDirectory.open(path)
    beginning.check_not_running(run)
    _log.info("%s has no checkpoint; starting it again", path)
    return run, None, False


def resumed_or_started(prepared: Prepared) -> Prepared | None:
    """What `--resume-or-start` makes of a run, by its `--out`; None if it is finished."""
    path = Path(prepared.launch.out or "")
    if not (path / "run.json").is_file():
        return prepared
    run = RunDirectory.open(path)
    status = run.read_status()
    iterations = status.get("iteration", 0)
    if status.get("state") == "finished" and iterations >= prepared.settings.training.iterations:
        _log.info("%s is finished: %d iterations", path, iterations)
        return None
    if Checkpoints(run.checkpoints, keep=1).exist():
        return replace(prepared, continues=path, beginning=None)
    return prepared


def about(prepared: Prepared, claimed: Claim) -> dict[str, Any]:
    """What `run.json` says of the run from its start."""
    run, dataset = claimed.run, prepared.dataset
    file = dataset.path.resolve()
    if dataset.kept:  # from the run's folder, so that the folder can be moved
        file = run.dataset_file(dataset.name).relative_to(run.path)
    return {
        "version": __version__,
        "dataset_file": str(file),
        "dataset_sha256": prepared.dataset.sha256,
        **({"paper_scale": prepared.scaled_from} if prepared.scaled_from else {}),
        "machine": gethostname(),
        "system": {  # two runs must share it to be timed against each other
            "processor": f"{processor_name()}, {num_cores()} cores for this process",
            "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
            "device": str(resolve_device(prepared.launch.device, 0)),
            "system": platform.platform(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "mdgan": __version__,
        },
        "other_defaults": _other_defaults(prepared),
        "process": os.getpid(),
        "process_began": beginning.seconds_since_boot(psutil.Process()),
        "listens": claimed.listens,
        "socket": claimed.socket,
        "run_id": claimed.run_id,
        "run_key": run_key(claimed.run_id, prepared.credentials),
        "unit": prepared.algorithm.unit,
    }


def _other_defaults(prepared: Prepared) -> dict[str, Any]:
    """Setting → its default, of those that have another value in this run."""
    algorithm = {"algorithm": prepared.settings.algorithm}
    try:
        model = {"architecture": prepared.settings.models.architecture}
        defaults = registry.read_settings(
            [algorithm], default_settings([model], prepared.dataset)
        ).as_json()
    except BadInput:  # the user's settings may be what makes those of the dataset file possible
        return {}
    chosen = prepared.settings.as_json()
    return {name: value for name, value in defaults.items() if chosen[name] != value}


def make_observer(
    prepared: Prepared,
    claimed: Claim,
    generator: nn.Module,
    average: nn.Module | None = None,
    profiler: Profiler | None = None,
) -> RunObserver:
    """The observer of a run."""
    run = claimed.run
    settings = prepared.settings
    resume = f"mdgan {registry.command(settings.algorithm)} --resume {run.path}"
    at_begin = claimed.take_records if claimed.before else None
    return RunObserver(
        run,
        Sampled(
            generator, prepared.models.z_dim, settings.training.seed, average, prepared.dataset.kind
        ),
        Rhythm(
            settings.training.iterations,
            settings.records.sample_interval,
            settings.records.log_interval,
        ),
        Launched(
            status=about(prepared, claimed),
            at=prepared.launched,
            settings=prepared.config,
            seconds=claimed.seconds,
            resume=resume,
            budget=None if settings.tells_once else settings.privacy.dp_epsilon,
            for_coverage=prepared.builder.for_coverage(settings),
        ),
        write=RecordWriter(run.path, claimed.fence.check, at_begin),
        tracer=Tracer(on_phase=prepared.faults.on_phase(SERVER), profiler=profiler),
        trackers=Trackers(settings.records.trackers(), run.path, settings.as_json(shared=True)),
    )
