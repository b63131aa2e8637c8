"""Memory that the processes of one machine share, and a bell by which each of them is woken.

The launcher makes it before it forks, so only its own children have it: it has no name that another
program could open, and nothing is left of it when the last of them is gone.
"""

import mmap
import multiprocessing
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence

SERVER = 0
"""The number of the server's bell; that of a host is its own."""
_LOOK_SECONDS = 0.1


class CommonMemory:
    """Some bytes, all zero at first; only those that are written take memory.

    Args:
        hosts: those that share it with the server, each with its workers.

    Attributes:
        token: what only a process with this memory knows.

    Raises:
        OSError: the system has no such memory, or no semaphores.
    """

    def __init__(self, num_bytes: int, hosts: Mapping[int, Sequence[int]]) -> None:
        forks = multiprocessing.get_context("fork")
        self.hosts = {host: tuple(workers) for host, workers in hosts.items()}
        self.token = secrets.token_hex(16)
        self.bytes = mmap.mmap(-1, num_bytes)
        self._bells = {number: forks.Semaphore(0) for number in (SERVER, *hosts)}

    def wake(self, numbers: Iterable[int]) -> None:
        """Rings the bells of some processes, whether they wait or not."""
        for number in numbers:
            self._bells[number].release()

    def wait(self, number: int, is_over: Callable[[], bool]) -> bool:
        """Waits until something is so that another process writes before it rings.

        Returns:
            Whether it is so; False after a short while, for the caller to look at other things.
        """
        bell = self._bells[number]
        while not is_over():
            if not bell.acquire(timeout=_LOOK_SECONDS):
                return is_over()
        while bell.acquire(block=False):  # rings for what has been seen by now
            pass
        return True
