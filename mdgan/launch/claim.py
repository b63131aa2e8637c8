"""The folder of a run: the server's, a new one or one that goes on, and that of a host elsewhere.

The server names its run, and two servers may choose one name. So each run has a random id too, and
a host writes only to a folder that bears it, or to the one that its user has named.
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
from mdgan.spelling import flag
from mdgan.storage.checkpoints import Checkpoints, worker_file
from mdgan.storage.fence import Fence, Fenced
from mdgan.storage.state_file import Damaged, StoredFile, check_file
from mdgan.storage.whole_file import copy_private, make_private_folder
from mdgan.system import processor_name
from mdgan.version import __version__

_log = logging.getLogger(__name__)

STOPPED_BY = (128 + signal.SIGINT, 128 + signal.SIGTERM)
"""Exit statuses of processes that were asked to stop, as shells give them."""
_DIGITS = 16  # of the hash at the end of a host's folder's name


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
        with writing(flag("resume", self.run.path)):
            self.run.cut_after(self.iteration)
            self.run.sweep()


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
        if is_new:  # the folder was empty; the same command can be given again
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
    """The run's folder; where training goes on; and whether the folder was empty."""
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
    """Checks that a run that goes on has learnt under the same protection from its start."""
    privacy = settings.privacy
    if not privacy.keeps_ledger:
        return
    has_noise = before.get("dp_noise") or before.get("dp_epsilon") is not None
    is_alike = (before.get("dp_unit") == "client") == privacy.hides_clients
    if not has_noise or before.get("dp_repeatable") or not is_alike:
        raise BadInput(
            flag("resume", path),
            f"{privacy.dp_flag} covers the steps from here on alone, and the run has already "
            "learnt from these samples without privacy",
            "start a new run",
        )


def resumed_or_started(checked: Checked) -> Checked | None:
    """What `--resume-or-start` makes of a run, by its `--out`; None if it is finished."""
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
    """What `run.json` says of the run from its start."""
    run, dataset = claimed.run, checked.dataset
    file = dataset.path.resolve()
    if dataset.kept:  # from the run's folder, so that the folder can be moved
        file = run.dataset_file(dataset.name).relative_to(run.path)
    return {
        "version": __version__,
        "dataset_file": str(file),
        "dataset_sha256": checked.dataset.sha256,
        **({"paper_scale": checked.scaled_from} if checked.scaled_from else {}),
        "machine": gethostname(),
        "system": {  # two runs must share it to be timed against each other
            "processor": f"{processor_name()}, {num_cores()} cores for this process",
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
    """The observer of a run."""
    run, settings, models = claimed.run, checked.settings, checked.models
    training, records = settings.training, settings.records

    def at_begin() -> None:
        claimed.take_records()
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
    """The end of a run's folder's name on a host: another one for another authority's server."""
    authorities = b"" if identity is None else identity.authorities
    return sha256(json.dumps([run_id, authorities.hex()]).encode()).hexdigest()[:_DIGITS]


def host_folder(
    welcome: Mapping[str, Any], workers: Iterable[int], identity: Identity | None, out: str | None
) -> Path:
    """The folder of a run on the machine of a host that a server has let in.

    Args:
        out: the folder that the user has named.

    Raises:
        BadInput: the user has named the folder of another run, or the server no usable name.
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
    # On a disk that this machine shares with it, where both run as the same user.
    if _status(servers).get("run_key") == key and servers.stat().st_uid == os.geteuid():
        return servers
    own = Path("runs") / f"{name}-{key}"
    _copy_states(welcome.get("checkpoint"), workers, own, servers)
    return own


def _status(folder: Path) -> Status:
    """What `run.json` says in a folder; empty if it is no run's."""
    with suppress(BadInput, OSError):
        return RunDirectory.open(folder).read_status()
    return {}


def _copy_states(
    newest: Mapping[str, Any] | None, workers: Iterable[int], own: Path, servers: Path
) -> None:
    """Brings states of the run's newest checkpoint from where older versions have written them.

    They may also lie in the folder for other credentials. What they hold tells them from others;
    what was seen of canaries lies beside them.
    """
    if newest is None:
        return
    others = [servers, *own.parent.glob(f"{escape(servers.name)}-*")]
    for worker in workers:
        name = worker_file(worker)
        if any(own.glob(f"checkpoints/*/{name}")):
            continue
        with suppress(Damaged, OSError, StopIteration, LookupError, TypeError, ValueError):
            stored = StoredFile.from_record(newest["files"][str(worker)])
            found = next(_holding(stored, others))
            folder = Checkpoints(own / "checkpoints", keep=1).make_folder_of(int(found.name))
            copy_private(found / stored.name, folder / name)
            canaries = own / CANARIES / f"{worker}.json"
            make_private_folder(canaries.parent)
            copy_private(found.parent.parent / CANARIES / canaries.name, canaries)


def _holding(stored: StoredFile, runs: Iterable[Path]) -> Iterator[Path]:
    """The folders of checkpoints of some runs in which a file lies as it was written."""
    for run in runs:
        for folder in run.glob("checkpoints/*"):
            with suppress(Damaged):
                check_file(folder, stored)
                yield folder
