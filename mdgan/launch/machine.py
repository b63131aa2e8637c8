"""How the cores and devices of this machine are shared out."""

import torch

from mdgan.errors import BadInput
from mdgan.launch.settings import LaunchSettings
from mdgan.settings.machine import num_cores


def worker_threads(settings: LaunchSettings, processes_here: int) -> int:
    """Compute threads of a host process: its share of the cores, unless `--threads` says."""
    if settings.threads == "auto":
        return max(1, num_cores() // processes_here)
    return settings.threads


def server_threads(settings: LaunchSettings) -> int:
    """Compute threads of the server: all cores, since the workers wait while it computes."""
    return num_cores() if settings.threads == "auto" else settings.threads


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
