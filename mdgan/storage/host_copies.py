"""The bytes of tensors in the memory of this machine; from a GPU they come beside training.

ParaGAN (section 4.1) streams checkpoints out instead of waiting for them. On a GPU a plain copy
would take its turn among the kernels of training, which would wait for it. Here a stream of its own
copies one tensor into page-locked memory while the one before is written.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


def bytes_on_host(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """The bytes of each tensor, in order.

    Args:
        tensors: on any devices; not written to meanwhile.

    Yields:
        uint8 [n] on the CPU; good until the next one is asked for.
    """
    on_gpu = [tensor for tensor in tensors if tensor.is_cuda]
    if not on_gpu:
        for tensor in tensors:
            yield _flat(tensor.detach().cpu())
        return
    copier = _Copier(on_gpu[0].device, max(tensor.nbytes for tensor in on_gpu))
    ahead = copier.begin(tensors[0])
    for following in [*tensors[1:], None]:
        ready = ahead
        if following is not None:
            ahead = copier.begin(following)
        copy, done = ready
        if done is not None:
            done.synchronize()
        yield copy


class _Copier:
    """Copies tensors from a GPU, one after the other, into two buffers in turns."""

    def __init__(self, device: torch.device, num_bytes: int) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call] # torch leaves it unannotated
        # What is copied was made on the stream of training, perhaps a moment ago.
        self._stream.wait_stream(torch.cuda.default_stream(device))
        self._buffers = [page_locked(num_bytes), page_locked(num_bytes)]

    def begin(self, tensor: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
        """Begins a copy."""
        if not tensor.is_cuda:
            return _flat(tensor.detach()), None
        self._buffers.reverse()
        with torch.cuda.stream(self._stream):
            copy = self._buffers[0][: tensor.nbytes]
            copy.copy_(_flat(tensor.detach()), non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call] # as above
            done.record(self._stream)
        return copy, done


def page_locked(num_bytes: int) -> Tensor:
    """Memory that a GPU can write to by itself, uint8 [n]."""
    return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)


def _flat(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
