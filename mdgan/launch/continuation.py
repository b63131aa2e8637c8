"""Which checkpoint a run goes on from, and which of its settings are different now."""

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil
from torch import Tensor

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.records.run_directory import RunDirectory
from mdgan.settings.retired import modern
from mdgan.storage.checkpoints import Checkpoints
from mdgan.storage.manifest import SERVER, Manifest
from mdgan.storage.state_file import Damaged, read_state

_SAME_SECONDS = 2.0  # the system tells when it was started by whole seconds
_NO_MATTER = (
    *("ranks", "master_addr", "master_port", "network_interface", "listen", "log_file", "insecure"),
    *("credentials", "ca", "certificate", "key", "revoked"),
)


@dataclass(frozen=True)
class Continuation:
    """Where a run goes on, with the present settings, and what the user should know of it."""

    run: RunDirectory
    manifest: Manifest
    notes: tuple[str, ...]
    settings: Mapping[str, Any]

    def restore(self, load: Callable[[dict[str, Tensor]], object]) -> None:
        """Brings the owner of the generator to where it was when the checkpoint was made."""
        folder = self.run.checkpoints / f"{self.manifest.iteration:07d}"
        try:
            load(read_state(folder, self.manifest.files[SERVER]))
        except (Damaged, KeyError, RuntimeError) as error:
            raise BadInput(
                f"--resume {self.run.path}: its checkpoint does not fit the models of "
                f"{self.settings['dataset']} ({error}); use the dataset file of that run"
            ) from error

    @property
    def changed(self) -> set[str]:
        """The names of settings that have other values than when the checkpoint was made."""
        before = _settings_before(self.manifest, self.run)
        return {name for name, value in self.settings.items() if before.get(name) != value}


def continuation(
    run: RunDirectory, settings: Mapping[str, Any], *, taking_over: bool = False
) -> Continuation:
    """Finds the newest whole checkpoint of a run, on which nothing works unless it takes over."""
    if not taking_over:
        check_not_running(run)
    manifest, passed_over = Checkpoints(run.checkpoints, keep=1).newest()
    if manifest is None:
        why = "; ".join(passed_over) or "none was made"
        raise BadInput(f"--resume {run.path}: has no whole checkpoint ({why}); start a new run")
    algorithm = manifest.settings.get("algorithm")
    if algorithm != settings["algorithm"]:
        is_baseline = algorithm == registry.BASELINE
        command = str(algorithm) if is_baseline else f"train --algorithm {algorithm}"
        raise BadInput(f"--resume {run.path}: was trained with {algorithm}; use `mdgan {command}`")
    iterations = int(settings["iterations"])
    if manifest.iteration >= iterations:
        raise BadInput(
            f"--resume {run.path}: all {iterations} iterations are done; to go on, give more, such "
            f"as --iterations {2 * iterations}"
        )
    before = _settings_before(manifest, run)
    changed = [
        f"{name} was {before[name]}, is {value}"
        for name, value in settings.items()
        if name in before and before[name] != value and name not in _NO_MATTER
    ]
    notes = [*(f"passed over {line}" for line in passed_over), *changed]
    return Continuation(run, manifest, tuple(notes), settings)


def _settings_before(manifest: Manifest, run: RunDirectory) -> dict[str, Any]:
    """Those of a checkpoint, as this version would write them."""
    before, declared = (
        modern(manifest.settings, f"--resume {run.path}"),
        registry.declared_settings(),
    )
    keyed = {name for name in before.keys() & declared.keys() if declared[name].kind.is_keyed}
    return before | {name: str(declared[name].read(before[name])) for name in keyed}


def check_not_running(run: RunDirectory) -> None:
    """Checks that no process on this machine works on a run."""
    if is_running(run):
        process = run.read_status()["process"]
        raise BadInput(
            f"--resume {run.path}: still running (process {process}); stop it first, with Ctrl-C"
        )


def is_running(run: RunDirectory) -> bool:
    """Whether the process that wrote a run's status still works on it, on this machine."""
    status = run.read_status()
    if status.get("machine") != socket.gethostname():
        return False
    if status.get("state") not in ("starting", "running"):
        return False
    try:
        process = psutil.Process(status.get("process", 0))
        if process.status() == psutil.STATUS_ZOMBIE:  # dead; its parent has not noticed yet
            return False
        # One that began at another time has been given the number of a process that ended.
        if "process_began" in status:
            return abs(seconds_since_boot(process) - status["process_began"]) < _SAME_SECONDS
        return bool(process.create_time() < (run.path / "run.json").stat().st_mtime)
    except (psutil.Error, ValueError, OverflowError):
        return False


def seconds_since_boot(process: psutil.Process) -> float:
    """When a process began; as clocks may be set, in seconds from the start of the system.

    Raises:
        psutil.Error: the process is gone.
    """
    return float(process.create_time() - psutil.boot_time())
