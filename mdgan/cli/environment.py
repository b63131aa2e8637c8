"""Sets environment variables that torch reads when it is imported."""

import os


def prepare_environment(*, many_processes: bool) -> None:
    """Sets what torch and OpenMP read when they are loaded; what the user has set stays.

    Args:
        many_processes: whether several processes may share this machine's cores.
    """
    if many_processes:
        # Threads that spin while they wait make the other processes several times slower.
        # In a process that is alone, spinning makes small models fast.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # A process that has asked the driver for GPUs cannot fork. We report what torch would warn of.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
