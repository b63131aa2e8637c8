"""The folder of a run: the server creates or locks it, and each host elsewhere has its own.

The server names its run, and two servers may choose the same name. So each run has a random id,
too. A host writes only to a folder with the run's id, or to the one that its user has named.
"""

import json
import logging
import os
import platform
import secrets
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from glob import escape
from hashlib import sha256
from pathlib import Path
from socket import gethostname
from typing import Any

import psutil
import torch
from torch import nn

from mdgan.credentials.identity import Identity
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput, cannot_write, printable, writing
from mdgan.families import registry
from mdgan.launch import beginning
from mdgan.launch.beginning import Continuation, continuation
from mdgan.launch.checked import Checked
from mdgan.launch.faults import SERVER
from mdgan.launch.machine import resolve_device
from mdgan.launch.same_samples import compare_samples
from mdgan.launch.site_maps import log_maps
from mdgan.observe.profiler import Profiler
from mdgan.observe.record_writer import RecordWriter
from mdgan.observe.run_observer import Launched, Rhythm, RunObserver
from mdgan.observe.snapshots import Sampled
from mdgan.observe.tracer import Tracer
from mdgan.observe.trackers import Trackers
from mdgan.privacy.canaries import CANARIES
from mdgan.records.run_directory import RunDirectory, Status
from mdgan.settings.machine import num_cores
from mdgan.spelling import count, flag
from mdgan.storage.checkpoints import Checkpoints, worker_file
from mdgan.storage.fence import Fence, Fenced
from mdgan.storage.state_file import Damaged, StoredFile, check_file
from mdgan.storage.whole_file import copy_private, make_private_folder
from mdgan.system import processor_name
from mdgan.version import __version__

_log = logging.getLogger(__name__)

STOPPED_BY = (128 + signal.SIGINT, 128 + signal.SIGTERM)
"""Exit statuses of processes that were asked to stop, as shells give them."""
_DIGITS = 16  # of the hash that ends the name of a host's folder


@dataclass(frozen=True)
class Claim:
    """A run's folder, locked by the process with the generator."""

    run: RunDirectory
    fence: Fence  # shows whether another server has taken over since
    goes_on: Continuation | None  # the checkpoint at which training goes on; None for a new run
    takes_over: bool  # whether this server is a standby that replaces one that does not answer
    listens: str  # address and port for workers of other machines; empty if there are none
    socket: str  # where workers of this machine find the server; empty if it has none
    run_id: str  # drawn at random for a new run; `host_folder` recognises the run by it
    # The former contents of the files that the claim has changed, by name, None for a new file;
    # empty if the folder is new.
    before: Mapping[str, bytes | None] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return 0.0 if self.goes_on is None else self.goes_on.manifest.seconds

    @property
    def iteration(self) -> int:
        """The last iteration that is done."""
        return 0 if self.goes_on is None else self.goes_on.manifest.iteration

    @contextmanager
    def noting_end(self) -> Iterator[Callable[[int], int]]:
        """Writes to `run.json` that a new run failed or was stopped, if the server could not.

        A resumed run whose training has not begun again is put back as it was. The block passes its
        exit status to the function that it gets, which returns the status.
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
            with suppress(BadInput, Fenced, OSError):  # the user knows why the server ended
                self.fence.check()
                status = self.run.read_status()
                written = status.get("state")
                # If a host cannot join, the launcher stops the server, which does not know why.
                is_wrong = written == "stopped" and is_refused and not self.before
                if written == "starting" and self.before:
                    self.give_back()
                elif written == "starting" or is_wrong:
                    self.run.write_status({**status, "state": state})

    def give_back(self) -> None:
        """Puts the folder back as it was before this server claimed it."""
        self.run.put_back(self.before)
        if not self.takes_over:  # hosts that met this standby must not go back to the old server
            self.fence.withdraw()


def claim(
    checked: Checked, listens: str = "", socket: str = "", *, taking_over: bool = False
) -> Claim:
    """Creates the folder of a new run, or locks the folder of a run that is resumed."""
    run, goes_on, is_new = _find_run(checked, taking_over=taking_over)
    place = flag("out" if goes_on is None else "resume", run.path)
    try:
        before = {} if is_new else run.contents(checked.dataset.name)
        fence = Fence.claim(run.path)
    except OSError as error:
        if is_new:  # the folder was empty; without it the user can repeat the command
            shutil.rmtree(run.path, ignore_errors=True)
        raise cannot_write(place, error) from error
    run_id = "" if is_new else run.read_status().get("run_id", "")
    run_id = run_id or secrets.token_hex(16)
    claimed = Claim(
        run,
        fence=fence,
        goes_on=goes_on,
        takes_over=taking_over,
        listens=listens,
        socket=socket,
        run_id=run_id,
        before=before,
    )
    try:
        run.write_config(checked.config)
        if checked.dataset.kept:
            run.keep_dataset_file(checked.dataset.path)
        for name, content in checked.dataset.keeps.items():
            if goes_on is None or not run.kept(name).exists():
                run.keep(name, content)
        log_maps(checked.settings.data, run.path, checked.holdings, claimed.iteration)
        status = {"state": "starting", "iteration": claimed.iteration, "seconds": claimed.seconds}
        run.write_status({**about(checked, claimed), **status})
    except BaseException as error:
        if is_new:
            shutil.rmtree(run.path, ignore_errors=True)
        else:
            with suppress(OSError):
                claimed.give_back()
        if isinstance(error, OSError):
            raise cannot_write(place, error) from error
        raise
    if goes_on is not None:
        _log.info("going on with %s from iteration %d", run.path, claimed.iteration)
        for note in goes_on.notes:
            _log.info("  %s", note)
    elif not checked.is_rehearsed:
        compare_samples(checked, run.path, checked.holdings, goes_on=False)
    return claimed


def _find_run(
    checked: Checked, *, taking_over: bool
) -> tuple[RunDirectory, Continuation | None, bool]:
    """Finds the run's folder, the checkpoint to go on with, and whether the folder was empty."""
    if checked.continues is not None:
        run = RunDirectory.open(checked.continues)
        goes_on = continuation(run, checked.config, taking_over=taking_over)
        _check_covered(run.path, checked.settings, goes_on.manifest.settings)
        return run, goes_on, False
    name = f"{checked.dataset.name}-{datetime.now():%Y%m%d-%H%M%S}"
    path = Path(checked.launch.out or f"runs/{name}")
    if not (checked.resumes_or_starts and (path / "run.json").is_file()):
        return RunDirectory.claim(path), None, True
    run = RunDirectory.open(path)
    beginning.check_not_running(run)
    _log.info("%s has no checkpoint; starting it again", path)
    return run, None, False


def _check_covered(path: Path, settings: RunSettings, before: Mapping[str, Any]) -> None:
    """Refuses a resumed run whose earlier steps had no noise, or noise for another unit."""
    privacy = settings.privacy
    if not privacy.keeps_ledger:
        return
    has_noise = before.get("dp_noise") or before.get("dp_epsilon") is not None
    is_alike = (before.get("dp_unit") == "client") == privacy.hides_clients
    if not has_noise or before.get("dp_repeatable") or not is_alike:
        why = f"{privacy.dp_flag} covers the steps from here on alone, and the run has already "
        why += "learnt from these samples without privacy"
        raise BadInput(flag("resume", path), why, "start a new run")


def resumed_or_started(checked: Checked) -> Checked | None:
    """Decides whether to start or to resume the run in `--out`; None if that is finished."""
    path = Path(checked.launch.out or "")
    if not (path / "run.json").is_file():
        return checked
    run = RunDirectory.open(path)
    status = run.read_status()
    iterations = status.get("iteration", 0)
    if status.get("state") == "finished" and iterations >= checked.settings.training.iterations:
        _log.info("%s is finished: %d iterations", path, iterations)
        return None
    if Checkpoints(run.checkpoints, keep=1).exist():
        return replace(checked, continues=path, beginning=None)
    return checked


def about(checked: Checked, claimed: Claim) -> dict[str, Any]:
    """The fields of `run.json` that are known when the run starts."""
    run, dataset = claimed.run, checked.dataset
    file = dataset.path.resolve()
    if dataset.kept:  # relative to the run's folder, so that the user can move the folder
        file = run.dataset_file(dataset.name).relative_to(run.path)
    return {
        "version": __version__,
        "dataset_file": str(file),
        "dataset_sha256": checked.dataset.sha256,
        **({"paper_scale": checked.scaled_from} if checked.scaled_from else {}),
        "machine": gethostname(),
        "system": {  # the times of two runs can be compared only if it is the same
            "processor": f"{processor_name()}, {count(num_cores(), 'core')} for this process",
            "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
            "device": str(resolve_device(checked.launch.device, 0)),
            "system": platform.platform(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "mdgan": __version__,
        },
        "other_defaults": checked.other_defaults,
        "process": os.getpid(),
        "process_began": beginning.seconds_since_boot(psutil.Process()),
        "listens": claimed.listens,
        "socket": claimed.socket,
        "run_id": claimed.run_id,
        "run_key": run_key(claimed.run_id, checked.credentials),
        "unit": checked.algorithm.unit,
    }


def make_observer(
    checked: Checked,
    claimed: Claim,
    *,
    generator: nn.Module,
    average: nn.Module | None = None,
    profiler: Profiler | None = None,
) -> RunObserver:
    """Makes the observer, which writes the run's records and shows its progress."""
    run, settings, models = claimed.run, checked.settings, checked.models
    training, records = settings.training, settings.records

    def at_begin() -> None:
        with writing(flag("resume", run.path)):  # cuts off what training is about to repeat
            run.cut_after(claimed.iteration)
            run.sweep()
        if claimed.goes_on is not None and not checked.is_rehearsed:
            compare_samples(checked, run.path, checked.holdings, goes_on=True)

    return RunObserver(
        run,
        Sampled(generator, models.z_dim, training.seed, average=average, kind=checked.dataset.kind),
        Rhythm(training.iterations, records.sample_interval, records.log_interval),
        Launched(
            status=about(checked, claimed),
            at=checked.launched,
            settings=checked.config,
            seconds=claimed.seconds,
            trains_by=registry.command(settings.algorithm),
            budget=None if settings.tells_once else settings.privacy.dp_epsilon,
            for_coverage=checked.builder.for_coverage(settings),
        ),
        write=RecordWriter(run.path, claimed.fence.check, at_begin if claimed.before else None),
        tracer=Tracer(on_phase=checked.faults.on_phase(SERVER), profiler=profiler),
        trackers=Trackers(records.trackers(), run.path, settings.as_json(shared=True)),
    )


def run_key(run_id: str, identity: Identity | None) -> str:
    """The end of the name of a host's folder; it differs between runs and between authorities."""
    authorities = b"" if identity is None else identity.authorities
    return sha256(json.dumps([run_id, authorities.hex()]).encode()).hexdigest()[:_DIGITS]


def host_folder(
    welcome: Mapping[str, Any], workers: Iterable[int], identity: Identity | None, out: str | None
) -> Path:
    """The folder in which a host keeps its files of a run: `out`, or one below `runs`.

    Raises:
        BadInput: the folder has another run in it, or the server's name of the run is no name.
    """
    run_id = str(welcome.get("run_id", ""))
    key = run_key(run_id, identity)
    if out is not None:
        if _status(Path(out)).get("run_id", run_id) != run_id:
            raise BadInput(flag("out", out), "has another run in it", "name a new folder")
        return Path(out)
    name = str(welcome["run"])
    if name in ("", ".", "..") or "/" in name or not name.isprintable():
        what = f"the server calls its run {printable(name, 40)!r}, which names no folder"
        raise BadInput(what, way_out=f"give {flag('out', 'DIR')}")
    servers = Path("runs") / name
    # The server's own folder, if both see one disk and run as the same user.
    if _status(servers).get("run_key") == key and servers.stat().st_uid == os.geteuid():
        return servers
    folder = Path("runs") / f"{name}-{key}"
    _copy_states(welcome.get("checkpoint"), workers, folder, servers)
    return folder


def _status(folder: Path) -> Status:
    """Reads `run.json` in a folder; empty if the folder is no run's."""
    with suppress(BadInput, OSError):
        return RunDirectory.open(folder).read_status()
    return {}


def _copy_states(
    newest: Mapping[str, Any] | None, workers: Iterable[int], folder: Path, servers: Path
) -> None:
    """Copies worker states of the run's newest checkpoint to the host's folder, if they lie nearby.

    Older versions wrote them to the server's folder, and a host with other credentials to a folder
    with another key. Their hashes identify them. Records of canaries are copied with them.
    """
    if newest is None:
        return
    others = [servers, *folder.parent.glob(f"{escape(servers.name)}-*")]
    for worker in workers:
        name = worker_file(worker)
        if any(folder.glob(f"checkpoints/*/{name}")):
            continue
        with suppress(Damaged, OSError, StopIteration, LookupError, TypeError, ValueError):
            stored = StoredFile.from_record(newest["files"][str(worker)])
            source = next(_holding(stored, others))
            target = Checkpoints(folder / "checkpoints", keep=1).make_folder_of(int(source.name))
            copy_private(source / stored.name, target / name)
            canaries = folder / CANARIES / f"{worker}.json"
            make_private_folder(canaries.parent)
            copy_private(source.parent.parent / CANARIES / canaries.name, canaries)


def _holding(stored: StoredFile, runs: Iterable[Path]) -> Iterator[Path]:
    """Yields the checkpoints of some runs that hold a file exactly as it was written."""
    for run in runs:
        for checkpoint in run.glob("checkpoints/*"):
            with suppress(Damaged):
                check_file(checkpoint, stored)
                yield checkpoint
