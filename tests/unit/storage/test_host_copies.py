"""Copies from a GPU that is not there, with streams that compute only when they are waited for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from mdgan.storage.state_file import bytes_on_host
from tests.fake_cuda import fake_cuda

TENSORS = [
    torch.arange(12.0).view(3, 4),
    torch.arange(6, dtype=torch.int64),
    torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)).to(
        memory_format=torch.channels_last
    ),
    torch.zeros(0),
    torch.tensor([True, False, True]),
    torch.randn(5, 7, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16).T,
]


def _raw(tensor: Tensor) -> list[int]:
    found: list[int] = tensor.contiguous().reshape(-1).view(torch.uint8).tolist()
    return found


class _LateStream:
    """A stream whose copies take place as late as they may."""

    queue: list[Callable[[], object]]

    def __init__(self, *_: object) -> None:
        self.queue, self.waited_for = [], list[object]()
        _LateStream.last = self

    last: "_LateStream"

    def wait_stream(self, other: object) -> None:
        self.waited_for.append(other)


class _LateEvent:
    """Everything before it has been done once it is waited for."""

    def record(self, stream: _LateStream) -> None:
        self._stream, self._place = stream, len(stream.queue)

    def synchronize(self) -> None:
        for copy in self._stream.queue[: self._place]:
            copy()
        self._stream.queue[: self._place] = [lambda: None] * self._place


@contextmanager
def _late_copies() -> Iterator[None]:
    at_once = Tensor.copy_

    def copy_(self: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        if not non_blocking:
            return at_once(self, source)
        _LateStream.last.queue.append(lambda: at_once(self, source))
        return self

    with (
        patch("torch.cuda.Stream", _LateStream),
        patch("torch.cuda.Event", _LateEvent),
        patch("torch.cuda.default_stream", return_value="training"),
        patch.object(Tensor, "copy_", copy_),
    ):
        yield


def test_tensors_on_the_cpu_are_read_as_they_are() -> None:
    assert [each.tolist() for each in bytes_on_host(TENSORS)] == [_raw(t) for t in TENSORS]


@pytest.mark.parametrize("kept_here", [set(), {0}, {1, 4}, {5}], ids=str)
def test_each_tensor_is_whole_when_it_is_handed_out(kept_here: set[int]) -> None:
    expected = [_raw(tensor) for tensor in TENSORS]
    with fake_cuda() as device:
        state = [t if n in kept_here else t.to(device) for n, t in enumerate(TENSORS)]
        with _late_copies():
            found = [each.tolist() for each in bytes_on_host(state)]
    assert found == expected
    assert _LateStream.last.waited_for == ["training"]


def test_the_next_tensor_is_copied_while_one_is_written() -> None:
    with fake_cuda() as device:
        state = [torch.full((4,), float(n)).to(device) for n in range(4)]
        with _late_copies():
            copies = bytes_on_host(state)
            first = next(copies)
            assert len(_LateStream.last.queue) == 2, "that after it has begun"
            assert first.view(torch.float32).tolist() == [0.0] * 4
            second = next(copies)
            assert len(_LateStream.last.queue) == 3
            assert second.data_ptr() != first.data_ptr()
