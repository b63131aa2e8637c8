"""Finds what training begins with instead of the seed's weights: a checkpoint, a run, or a file."""

import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from safetensors import SafetensorError
from torch import Tensor, nn

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.gan.build import Models
from mdgan.records.run_directory import GENERATOR_FILE, RunDirectory
from mdgan.settings.machine import path_of
from mdgan.settings.retired import modern
from mdgan.spelling import flag
from mdgan.storage.checkpoints import Checkpoints
from mdgan.storage.manifest import SERVER, Manifest
from mdgan.storage.state_file import Damaged, load_tensors, read_state

_SAME_SECONDS = 2.0  # the system gives its start in whole seconds
_NOT_REPORTED = (
    *("ranks", "master_addr", "master_port", "network_interface", "listen", "log_file", "insecure"),
    *("credentials", "ca", "certificate", "key", "revoked"),
)


@dataclass(frozen=True)
class Continuation:
    """The checkpoint at which a resumed run goes on."""

    run: RunDirectory
    manifest: Manifest
    notes: tuple[str, ...]  # lines for the user: damaged checkpoints, and settings that changed
    settings: Mapping[str, Any]  # those of today

    def restore(self, load: Callable[[dict[str, Tensor]], object]) -> None:
        """Loads the server's state with `load`; BadInput if it does not fit the models."""
        folder = self.run.checkpoints / f"{self.manifest.iteration:07d}"
        try:
            load(read_state(folder, self.manifest.files[SERVER]))
        except (Damaged, KeyError, RuntimeError) as error:
            why = f"its checkpoint does not fit the models of {self.settings['dataset']} ({error})"
            way_out = "use the dataset file of that run"
            raise BadInput(flag("resume", self.run.path), why, way_out) from error

    @property
    def changed(self) -> set[str]:
        """The names of settings that have other values than when the checkpoint was made."""
        before = _settings_before(self.manifest, self.run)
        return {name for name, value in self.settings.items() if before.get(name) != value}


def continuation(
    run: RunDirectory, settings: Mapping[str, Any], *, taking_over: bool = False
) -> Continuation:
    """Finds a run's newest whole checkpoint; refuses a running run unless a standby takes over."""
    resume = flag("resume", run.path)
    if not taking_over:
        check_not_running(run)
    manifest, passed_over = Checkpoints(run.checkpoints, keep=1).newest()
    if manifest is None:
        why = "; ".join(passed_over) or "none was made"
        raise BadInput(resume, f"has no whole checkpoint ({why})", "start a new run")
    algorithm = manifest.settings.get("algorithm")
    if algorithm != settings["algorithm"]:
        is_baseline = algorithm == registry.BASELINE
        command = algorithm if is_baseline else f"train {flag('algorithm', algorithm)}"
        raise BadInput(resume, f"was trained with {algorithm}", f"use `mdgan {command}`")
    iterations = int(settings["iterations"])
    if manifest.iteration >= iterations:
        more = flag("iterations", 2 * manifest.iteration)
        why = f"all {manifest.iteration:,} iterations are done"
        raise BadInput(resume, why, f"to go on, give more, such as {more}")
    before = _settings_before(manifest, run)
    changed = [
        f"{name} was {before[name]}, is {value}"
        for name, value in settings.items()
        if name in before and before[name] != value and name not in _NOT_REPORTED
    ]
    notes = [*(f"passed over {line}" for line in passed_over), *changed]
    return Continuation(run, manifest, tuple(notes), settings)


def _settings_before(manifest: Manifest, run: RunDirectory) -> dict[str, Any]:
    """The settings of a checkpoint, as this version would write them."""
    declared = registry.declared_settings()
    before = modern(manifest.settings, f"{flag('resume', run.path)}")
    keyed = {name for name in before.keys() & declared.keys() if declared[name].kind.is_keyed}
    return before | {name: str(declared[name].read(before[name])) for name in keyed}


def check_not_running(run: RunDirectory) -> None:
    """Checks that no process on this machine works on a run."""
    if is_running(run):
        process = run.read_status()["process"]
        why = f"still running (process {process})"
        raise BadInput(flag("resume", run.path), why, "stop it first, with Ctrl-C")


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
        # A process that began at another time has only inherited the number of one that ended.
        if "process_began" in status:
            return abs(seconds_since_boot(process) - status["process_began"]) < _SAME_SECONDS
        return bool(process.create_time() < (run.path / "run.json").stat().st_mtime)
    except (psutil.Error, ValueError, OverflowError):
        return False


def seconds_since_boot(process: psutil.Process) -> float:
    """When a process began, in seconds after the system; users may set the clock meanwhile."""
    return float(process.create_time() - psutil.boot_time())


_log = logging.getLogger(__name__)

_HEADER_BYTES = 1 << 20

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Beginning:
    """Weights and buffers that fit the models of the run.

    `discriminators` is by the number of the worker that trained each; 0 stands for all workers.
    """

    generator: State
    discriminators: Mapping[int, State]


def read_beginning(init_from: str, models: Models) -> Beginning:
    """Reads what `--init-from` names: the folder of a run, or a generator's safetensors file."""
    path, model = path_of(init_from), models.generator()
    is_run = path.is_dir()
    try:
        file = RunDirectory.open(path).path / GENERATOR_FILE if is_run else path
        generator = _read(file, 2 * sum(tensor.nbytes for tensor in model.state_dict().values()))
    except BadInput as error:
        way_out = "name a run or a generator's file"
        raise BadInput(flag("init_from", init_from), error.marked, way_out) from error
    misfit = _misfit(generator, model)
    if misfit is not None:
        why = f"does not fit the generator of {models.source}: {misfit}"
        raise BadInput(flag("init_from", init_from), why)
    discriminators = _discriminators(path, models.discriminator()) if is_run else {}
    beside = "its discriminators" if discriminators else "new discriminators"
    _log.info("beginning with the generator of %s and %s", path, beside)
    return Beginning(generator, discriminators)


def _read(path: Path, most_bytes: int) -> State:
    """Reads all tensors of a safetensors file; BadInput if it is too large or is none."""
    try:
        is_small = path.stat().st_size <= most_bytes + _HEADER_BYTES
        state = load_tensors(path) if is_small else None
    except (OSError, SafetensorError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"{path.name} cannot be read ({reason or error!s:.99})") from error
    if state is None:
        raise BadInput(f"{path.name} is larger than the generator")
    return state


def _discriminators(run: Path, model: nn.Module) -> dict[int, State]:
    """The discriminators of a run's newest checkpoint that lie on this machine and fit."""
    store, fitting = Checkpoints(run / "checkpoints", keep=1), dict[int, State]()
    manifest, _ = store.newest()
    for worker, state in () if manifest is None else store.states_of(manifest):
        if 0 not in fitting and (weights := discriminator_in(state, model)) is not None:
            fitting[worker] = weights
    return fitting


def discriminator_in(state: State, model: nn.Module) -> State | None:
    """Finds the weights and buffers of D in a server's or worker's state; None if none fit."""
    for marker in ("discriminator.model.", "discriminator."):
        parts = {name: name.partition(marker)[2] for name in state if marker in name}
        weights = {part: state[name] for name, part in parts.items()}
        if _misfit(weights, model) is None:
            return weights
    return None


def _misfit(state: State, model: nn.Module) -> str | None:
    """Names the first tensor that keeps a state from being a model's; None if all fit."""
    wanted = model.state_dict()
    for name, tensor in wanted.items():
        if name not in state:
            return f"{name} is missing"
        theirs = state[name]
        if theirs.shape != tensor.shape or theirs.dtype != tensor.dtype:
            return f"{name} is {_kind(theirs)}, not {_kind(tensor)}"
        if theirs.is_floating_point() and not bool(theirs.isfinite().all()):
            return f"{name} holds NaN or Inf"
    foreign = sorted(state.keys() - wanted.keys())
    return f"{foreign[0]} is not a tensor of that model" if foreign else None


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
