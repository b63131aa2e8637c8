"""Named streams of random numbers, one for each use, and private states of torch's generators.

torch has one default generator a process, and dropout draws from it. A worker's numbers must not
depend on the other workers in its process. So the server and every worker have a `RandomState`
each, and put it in place around their work.
"""

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor


def derive_seed(seed: int, *stream: str | int) -> int:
    """The seed of a stream with a name such as ("worker", 3), in [0, 2^63), equal everywhere."""
    text = "/".join(str(part) for part in (seed, *stream))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator_for(seed: int, *stream: str | int) -> torch.Generator:
    """A CPU generator for one named stream."""
    return torch.Generator().manual_seed(derive_seed(seed, *stream))


def restore_generator(generator: torch.Generator, state: Tensor) -> None:
    """Sets a generator's state; RuntimeError, and no change, if the tensor is malformed."""
    generator.set_state(_checked(state, generator.device))


def _checked(state: Tensor, device: torch.device) -> Tensor:
    """The state on the CPU, after a throwaway generator has accepted it."""
    if state.dtype != torch.uint8 or state.dim() != 1:
        raise RuntimeError(f"no state of random numbers: {state.dtype} {list(state.shape)}")
    state = state.cpu().contiguous()
    torch.Generator(device).set_state(state)
    return state


def default_generator(device: torch.device) -> torch.Generator:
    """The generator from which torch draws on a device by default."""
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        number = torch.cuda.current_device() if device.index is None else device.index
        return torch.cuda.default_generators[number]
    if device.type == "mps":
        return torch.mps._get_default_mps_generator()
    return torch.default_generator


class RandomState:
    """A private state of torch's default generators: the CPU's, and that of another device."""

    # The default generator belongs to the process, so only one `RandomState` can be in place.
    _in_place = threading.RLock()

    def __init__(self, seed: int, device: torch.device) -> None:
        self.device = device
        devices = {one.type: one for one in (torch.device("cpu"), device)}
        self._generators = {name: default_generator(one) for name, one in devices.items()}
        with self._in_place:
            outside = self._read()
            for generator in self._generators.values():
                generator.manual_seed(seed)
            self._state = self._read()
            self._write(outside)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Puts this state in place for the block, and the previous one back afterwards."""
        with self._in_place:
            outside = self._read()
            self._write(self._state)
            try:
                yield
            finally:
                self._state = self._read()
                self._write(outside)

    def tensors(self) -> dict[str, Tensor]:
        """Copies of the states, uint8: `cpu`, and `cuda` or `mps` if the device is of that kind."""
        return {
            name: state.clone() for name, state in zip(self._generators, self._state, strict=True)
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Copies the state of another `RandomState` into this one.

        If the other's device is of another kind, this copies only the CPU's state: then the GPU
        does not draw what the other would have drawn.

        Raises:
            KeyError, RuntimeError: the tensors are not such states; nothing changed.
        """
        if "cpu" not in tensors or not tensors.keys() <= {"cpu", "cuda", "mps"}:
            raise KeyError(f"no states of random numbers: {sorted(tensors)}")
        self._state = [
            _checked(tensors[name], generator.device).clone() if name in tensors else state
            for (name, generator), state in zip(self._generators.items(), self._state, strict=True)
        ]

    def _read(self) -> list[Tensor]:
        return [generator.get_state() for generator in self._generators.values()]

    def _write(self, states: list[Tensor]) -> None:
        for generator, state in zip(self._generators.values(), states, strict=True):
            generator.set_state(state)
