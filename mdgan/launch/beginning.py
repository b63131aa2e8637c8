"""What training may begin with instead of weights from the seed: those of a run, or of a file."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from mdgan.errors import BadInput
from mdgan.gan.build import Models
from mdgan.records.run_directory import GENERATOR_FILE, RunDirectory
from mdgan.settings.machine import path_of
from mdgan.storage.checkpoints import Checkpoints
from mdgan.storage.manifest import SERVER
from mdgan.storage.state_file import Damaged, read_state

_log = logging.getLogger(__name__)

_HEADER_BYTES = 1 << 20

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Beginning:
    """Weights and buffers that fit the models of the run, by the models' own names.

    Those of D are by the worker that they were trained by; one with the number 0 is for all.
    """

    generator: State
    discriminators: Mapping[int, State]


def read_beginning(given: str, models: Models) -> Beginning:
    """Reads what `--init-from` names: the folder of a run, or a generator's safetensors file."""
    path, model = path_of(given), models.generator()
    is_run = path.is_dir()
    try:
        file = RunDirectory.open(path).path / GENERATOR_FILE if is_run else path
        generator = _read(file, 2 * sum(tensor.nbytes for tensor in model.state_dict().values()))
    except BadInput as error:
        raise BadInput(f"--init-from {given}: {error}; name a run or a generator's file") from error
    misfit = _misfit(generator, model)
    if misfit is not None:
        raise BadInput(
            f"--init-from {given}: does not fit the generator of {models.source}: {misfit}"
        )
    discriminators = _discriminators(path, models.discriminator()) if is_run else {}
    beside = "its discriminators" if discriminators else "new discriminators"
    _log.info("beginning with the generator of %s and %s", path, beside)
    return Beginning(generator, discriminators)


def _read(path: Path, most_bytes: int) -> State:
    """All tensors of a safetensors file, which may be anything else."""
    try:
        size = path.stat().st_size
        state = load_file(path) if size <= most_bytes + _HEADER_BYTES else None
    except (OSError, SafetensorError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"{path.name} cannot be read ({reason or error!s:.99})") from error
    if state is None:
        raise BadInput(f"{path.name} is larger than the generator")
    return state


def _discriminators(run: Path, model: nn.Module) -> dict[int, State]:
    """Those of a run's newest checkpoint that are on this machine and fit, by their workers."""
    manifest, _ = Checkpoints(run / "checkpoints", keep=1).newest()
    if manifest is None:
        return {}
    folder, fitting = run / "checkpoints" / f"{manifest.iteration:07d}", dict[int, State]()
    for owner in sorted(manifest.files, key=lambda name: (name != SERVER, len(name), name)):
        if 0 in fitting or not (folder / manifest.files[owner].name).exists():
            continue
        try:
            state = read_state(folder, manifest.files[owner])
        except Damaged:
            continue
        weights = discriminator_in(state, model)
        if weights is not None:
            fitting[0 if owner == SERVER else int(owner)] = weights
    return fitting


def discriminator_in(state: State, model: nn.Module) -> State | None:
    """The weights and buffers of D in the state of any server or worker; None if none fit."""
    for marker in ("discriminator.model.", "discriminator."):
        parts = {name: name.partition(marker)[2] for name in state if marker in name}
        weights = {part: state[name] for name, part in parts.items()}
        if _misfit(weights, model) is None:
            return weights
    return None


def _misfit(given: State, model: nn.Module) -> str | None:
    """Why tensors cannot be a model's weights and buffers, by the first that does not fit."""
    wanted = model.state_dict()
    for name, tensor in wanted.items():
        if name not in given:
            return f"{name} is missing"
        theirs = given[name]
        if theirs.shape != tensor.shape or theirs.dtype != tensor.dtype:
            return f"{name} is {_kind(theirs)}, not {_kind(tensor)}"
        if theirs.is_floating_point() and not bool(theirs.isfinite().all()):
            return f"{name} holds NaN or Inf"
    foreign = sorted(given.keys() - wanted.keys())
    return f"{foreign[0]} is not a tensor of that model" if foreign else None


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
