"""A CUDA GPU for machines that have none: what runs on it mixes no devices, and gives real numbers.

torch's FakeTensorMode knows on which devices an operation may find its tensors, but it has no
values: nothing could be compared, saved or decided by them. Here it judges every operation, and
the values are computed on the CPU beside it. A tensor that is left on the CPU, or a file that is
written from "GPU memory", fails as it would on a GPU.

Autocast knows its tensors by what is hidden from it, so layers compute in float32 here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

CUDA = torch.device("cuda", 0)
_CPU, _HIDDEN = torch.device("cpu"), torch.device("meta")
"""Where values are, and where torch's own code is told they are: it asks no driver about that."""
_NO_VALUES = (DataDependentOutputException, DynamicOutputShapeException)


class FakeCUDATensor(Tensor):
    """A tensor that says it is on a GPU.

    Attributes:
        held: its values, on the CPU.
    """

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "FakeCUDATensor":
        made: FakeCUDATensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=_HIDDEN,
        )
        made.held = held
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override] # an attribute in torch's stubs
        return CUDA

    @property
    def is_cuda(self) -> bool:  # type: ignore[override] # as above
        return True

    @property
    def is_meta(self) -> bool:  # type: ignore[override] # as above
        return False

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter  # type: ignore[override] # as above
    def data(self, new: "FakeCUDATensor") -> None:
        assert (new.shape, new.dtype) == (self.shape, self.dtype)
        self.held = new.held

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __getitem__(self, index: Any) -> Tensor:
        return super().__getitem__(_with_values(index))

    def __setitem__(self, index: Any, new: Any) -> None:
        super().__setitem__(_with_values(index), new)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override] # any operation, with any arguments
        return _run(func, args, kwargs or {})


class _FakeCUDA(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch leaves it unannotated
    """Makes the tensors whose `device=` is the GPU; torch then asks no driver, as for its own."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch leaves it unannotated
        self._mode_key = torch._C._TorchDispatchModeKey.FAKE

    def __enter__(self) -> Any:
        self._lifted = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        return super().__enter__()  # type: ignore[no-untyped-call] # torch leaves it unannotated

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call] # torch leaves it unannotated
        torch._C._set_only_lift_cpu_tensors(self._lifted)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


_JUDGE, _ONE_AT_A_TIME = FakeTensorMode(), Lock()


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """Lets torch judge an operation, and computes it on the CPU."""
    if not any(map(_is_on_gpu, tree_flatten((args, kwargs))[0])):
        return func(*args, **kwargs)
    devices = _devices_of_results(func, args, kwargs)
    values = func(*tree_map(_held, args), **tree_map(_held, kwargs))
    results, form = tree_flatten(values)
    devices += [CUDA] * (len(results) - len(devices))
    wrapped = [
        FakeCUDATensor(each) if isinstance(each, Tensor) and device.type == "cuda" else each
        for each, device in zip(results, devices, strict=False)
    ]
    return return_and_correct_aliasing(func, args, kwargs, tree_unflatten(wrapped, form))  # type: ignore[no-untyped-call] # torch leaves it unannotated


def _devices_of_results(func: Any, args: Any, kwargs: Any) -> list[torch.device]:
    """Where the results are, by FakeTensorMode; raises RuntimeError for what a GPU refuses."""
    try:
        with _ONE_AT_A_TIME, _JUDGE:
            judged = func(*tree_map(_without_values, args), **tree_map(_without_values, kwargs))
            # A fake tensor says that it is on `meta` while another thread computes in the mode.
            return [x.device if isinstance(x, Tensor) else _CPU for x in tree_flatten(judged)[0]]
    except _NO_VALUES:  # how many there are, and how large, depends on the values
        return []


def _is_on_gpu(x: Any) -> bool:
    if isinstance(x, torch.device):
        return x.type in (CUDA.type, _HIDDEN.type)
    assert isinstance(x, FakeCUDATensor) or not (isinstance(x, Tensor) and x.is_meta), "no values"
    return isinstance(x, FakeCUDATensor)


def _held(x: Any) -> Any:
    if isinstance(x, FakeCUDATensor):
        return x.held
    return _CPU if _is_on_gpu(x) else x


def _unlocked(num_bytes: int) -> Tensor:
    """What stands for memory that a GPU can write to: a driver would have to lock it."""
    return torch.empty(num_bytes, dtype=torch.uint8)


def _with_values(index: Any) -> Any:
    """An index without lists, which torch would put where no values are."""
    if isinstance(index, tuple):
        return tuple(map(_with_values, index))
    return torch.tensor(index) if isinstance(index, list) else index


def _without_values(x: Any) -> Any:
    if isinstance(x, Tensor):
        return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)
    return CUDA if isinstance(x, torch.device) and x == _HIDDEN else x


@contextmanager
def fake_cuda() -> Iterator[torch.device]:
    """Yields a device that behaves as one GPU, in this thread and those that it starts.

    Its random numbers are the CPU's: a computation gives the bits that it gives on the CPU.
    """
    run = Thread.run

    def run_on_it(thread: Thread) -> None:
        with _FakeCUDA():
            run(thread)

    torch._C._ensureCUDADeviceGuardSet()
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with (
            patch("torch.cuda.amp.common.amp_definitely_not_available", return_value=False),
            patch("torch.cuda.is_bf16_supported", return_value=True),
            patch("torch.cuda.device_count", return_value=1),
            patch("torch.cuda.synchronize"),
            patch("torch.cuda.Stream"),
            patch("torch.cuda.Event"),
            patch("torch.cuda.stream"),
            patch("torch.cuda.default_stream"),
            patch("mdgan.storage.state_file.page_locked", _unlocked),
            patch("mdgan.gan.randomness.default_generator", lambda device: torch.default_generator),
            patch.object(Thread, "run", run_on_it),
            _FakeCUDA(),
        ):
            yield CUDA
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
