"""What this machine has: homes, cores and devices, and who gets how much."""

import os
from pathlib import Path

import torch

from mdgan.errors import BadInput
from mdgan.settings.deployment import Deployment


def path_of(text: str) -> Path:
    """The path that a user has written; ~ is a home, if there is such a user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def num_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worker_threads(deployment: Deployment, processes_here: int) -> int:
    """Compute threads of a host process: its share of the cores, unless `--threads` says."""
    if deployment.threads == "auto":
        return max(1, num_cores() // processes_here)
    return deployment.threads


def server_threads(deployment: Deployment) -> int:
    """Compute threads of the server: all cores, since the workers wait while it computes."""
    return num_cores() if deployment.threads == "auto" else deployment.threads


def resolve_device(name: str, process_here: int) -> torch.device:
    """The device of one of this machine's processes; GPUs are given out in turn.

    Raises:
        BadInput: there is none of that kind.
    """
    # Counting GPUs must not initialise CUDA: the launcher forks afterwards.
    num_gpus = torch.cuda.device_count()
    has_mps = torch.backends.mps.is_available()
    if name == "auto":
        name = "cuda" if num_gpus else "mps" if has_mps else "cpu"
    if name == "cuda" and not num_gpus:
        raise BadInput("--device cuda: no CUDA GPU found here; use --device cpu")
    if name == "mps" and not has_mps:
        raise BadInput("--device mps: no Apple GPU found here; use --device cpu")
    return torch.device("cuda", process_here % num_gpus) if name == "cuda" else torch.device(name)
