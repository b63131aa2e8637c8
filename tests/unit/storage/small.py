"""Small checkpoints with real files."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from mdgan.storage.checkpoints import SERVER_FILE, Checkpoints, worker_file
from mdgan.storage.manifest import SERVER, Manifest
from mdgan.storage.state_file import StoredFile, write_state

STORED = StoredFile(SERVER_FILE, "0" * 64, 8)


def make_manifest(
    iteration: int = 10,
    *,
    generation: int = 1,
    files: dict[str, StoredFile] | None = None,
    workers: Sequence[int] = (1, 2),
    elsewhere: Sequence[int] = (),
) -> Manifest:
    return Manifest(
        iteration=iteration,
        generation=generation,
        progress={"num_swaps": 3, "swap_every": 50},
        seconds=12.5,
        workers=tuple(workers),
        files={SERVER: STORED} if files is None else files,
        elsewhere=tuple(elsewhere),
        settings={"batch_size": 10, "beta1": 0.5, "kappa": "auto", "dataset": "digits"},
        version="0.3.0",
    )


def make_state(seed: int = 0, num: int = 300) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(num, generator=random),
        "step": torch.tensor(float(seed)),
        "random": random.get_state(),
    }


def save_checkpoint(
    checkpoints: Checkpoints,
    iteration: int,
    *,
    generation: int = 1,
    workers: Sequence[int] = (1, 2),
) -> Manifest:
    """A checkpoint as a server and its workers make it, on one machine."""
    folder = checkpoints.folder_of(iteration)
    files = {SERVER: write_state(folder, SERVER_FILE, make_state(iteration))}
    for worker in workers:
        state = make_state(1000 * worker + iteration)
        files[str(worker)] = write_state(folder, worker_file(worker), state)
    manifest = make_manifest(iteration, generation=generation, files=files, workers=workers)
    checkpoints.commit(manifest)
    return manifest


def all_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
