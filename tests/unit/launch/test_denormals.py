"""With differential privacy no thread of a host takes longer for the smallest numbers."""

import threading

import torch

from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.launch.privacy import flush_denormals


def left_by_a_new_thread(settings: MDGANSettings) -> int:
    """How many of four million products below 10⁻³⁸ are not 0, with two threads."""
    found: list[int] = []

    def compute() -> None:
        torch.set_num_threads(2)
        flush_denormals(settings)
        found.append(int((torch.full((1 << 22,), 1e-20) * 1e-20).count_nonzero()))

    before = torch.get_num_threads()
    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    torch.set_num_threads(before)
    return found[0]


def test_all_threads_of_a_private_host_count_them_as_0() -> None:
    assert left_by_a_new_thread(MDGANSettings(dp_noise=1.0, dp_delta=1e-4)) == 0
    assert left_by_a_new_thread(MDGANSettings()) == 1 << 22
