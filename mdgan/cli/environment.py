"""What must be in the environment before torch is imported."""

import os


def prepare_environment(*, many_processes: bool) -> None:
    """Sets what torch and OpenMP look at when they are loaded, unless the user has set it.

    Args:
        many_processes: whether several processes may share this machine's cores.
    """
    if many_processes:
        # Threads that spin while they wait slow neighbouring processes down several times over.
        # Where there are none, spinning is what makes small models fast.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Asking the driver for GPUs would make forking impossible; what torch warns about, we tell.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
