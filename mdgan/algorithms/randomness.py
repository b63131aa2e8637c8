"""Where random numbers come from: every stream has a name, none is shared.

torch's default generator is one per process and feeds dropout. Who shares a process must not
change what anybody draws, so each role owns a `RandomState` and puts it in place around its work.
"""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def derive_seed(seed: int, *stream: str | int) -> int:
    """The seed of one named stream of random numbers.

    Args:
        seed: the run's seed, `--seed`.
        stream: the stream's name, for example `("discriminator", 3)`.

    Returns:
        An integer in [0, 2^63), equal on every machine and in every process.
    """
    text = "/".join(str(part) for part in (seed, *stream))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator_for(seed: int, *stream: str | int) -> torch.Generator:
    """A CPU generator for one named stream."""
    return torch.Generator().manual_seed(derive_seed(seed, *stream))


class RandomState:
    """One role's own state of torch's default generators (CPU, and the device if it is a GPU).

    Attributes:
        device: the device whose default generator is kept beside the CPU's.
    """

    # The default generator belongs to the process: only one role may have its state in place.
    _in_place = threading.RLock()

    def __init__(self, seed: int, device: torch.device) -> None:
        self.device = device
        with self._in_place:
            outside = self._read()
            torch.manual_seed(seed)
            self._state = self._read()
            self._write(outside)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Puts this state in place for the block, and the state before it back afterwards."""
        with self._in_place:
            outside = self._read()
            self._write(self._state)
            try:
                yield
            finally:
                self._state = self._read()
                self._write(outside)

    def _read(self) -> list[Tensor]:
        states = [torch.get_rng_state()]
        if self.device.type == "cuda":
            states.append(torch.cuda.get_rng_state(self.device))
        elif self.device.type == "mps":
            states.append(torch.mps.get_rng_state())
        return states

    def _write(self, states: list[Tensor]) -> None:
        torch.set_rng_state(states[0])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(states[1], self.device)
        elif self.device.type == "mps":
            torch.mps.set_rng_state(states[1])
