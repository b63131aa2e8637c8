"""Where random numbers come from: every stream has a name, none is shared.

torch's default generator is one per process and feeds dropout. Who shares a process must not
change what anybody draws, so each role owns a `RandomState` and puts it in place around its work.
"""

import hashlib
import threading
from collections.abc import Iterator, Mapping
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


def restore_generator(generator: torch.Generator, state: Tensor) -> None:
    """Puts a generator where another of the same kind was.

    Args:
        generator: continues as the other would have.
        state: the other's `get_state`, uint8.

    Raises:
        RuntimeError: it is not such a state; nothing changed.
    """
    generator.set_state(_checked(state, generator.device))


def _checked(state: Tensor, device: torch.device) -> Tensor:
    """The state on the CPU, after a generator that nobody needs has taken it."""
    if state.dtype != torch.uint8 or state.dim() != 1:
        raise RuntimeError(f"no state of random numbers: {state.dtype} {list(state.shape)}")
    state = state.cpu().contiguous()
    torch.Generator(device).set_state(state)
    return state


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

    def tensors(self) -> dict[str, Tensor]:
        """A copy of everything: `cpu`, and `cuda` or `mps` if the device is one; uint8."""
        return {name: state.clone() for name, state in zip(self._names(), self._state, strict=True)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continues where another `RandomState` was.

        On another kind of device only the CPU's state is taken over; a GPU keeps its own, and does
        not draw what the other would have drawn.

        Args:
            tensors: what the other's `tensors` returned.

        Raises:
            KeyError, RuntimeError: they are no such states; nothing changed.
        """
        if "cpu" not in tensors or not tensors.keys() <= {"cpu", "cuda", "mps"}:
            raise KeyError(f"no states of random numbers: {sorted(tensors)}")
        devices = [torch.device("cpu"), self.device]
        self._state = [
            _checked(tensors[name], device).clone() if name in tensors else own
            for name, device, own in zip(self._names(), devices, self._state, strict=False)
        ]

    def _names(self) -> list[str]:
        return ["cpu"] if self.device.type == "cpu" else ["cpu", self.device.type]

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
