"""How many bytes the body of each kind of message may have, for given models and batches.

A link refuses what is larger, or of a kind that is not listed, before it takes memory for it. The
limits are generous where only JSON travels and where states of models do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import nn

from mdgan.gan.kept import COUNTS
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import kept_by
from mdgan.messages import Kind

_KIB, _MIB = 1 << 10, 1 << 20
_SMALL_BYTES = 64 * _KIB
_OF_A_WORKER_BYTES = _KIB
"""What a worker may add to the JSON of a message."""
_OF_A_TENSOR_BYTES = 512
"""What a tensor may add beside its elements: name and shape in JSON, and padding."""
_SPANS_BYTES = 8 * _MIB
_REAL_BYTES = 256 * _MIB
_EXTRACTOR_BYTES = 1024 * _MIB
_RANDOM_STATES_BYTES = 64 * _KIB
_OF_A_SAMPLE_BYTES = 16
_MOST_SAMPLES = 1 << 28
"""The largest number of samples that the server believes of one worker."""
_COPIES = 2
"""Weights and gradients; what the optimizer keeps comes on top."""
_MARGIN = 1.1

Network = tuple[nn.Module, Policy]
"""A model, and how it is optimized."""

Limits = Callable[[int], Mapping[str, int]]
"""From a number of workers to the kinds of message, each with the most bytes of its body."""


@dataclass(frozen=True)
class MessageSizes:
    """How large the messages of one algorithm can be.

    Attributes:
        state_bytes: of what a worker trains, with its optimizers; see `state_bytes`.
        from_host: the kinds that a host with this many workers may send to the server.
        from_server: the kinds that the server may send to such a host.
        between_hosts: the kinds that such a host may get from another one.
    """

    state_bytes: int
    from_host: Limits
    from_server: Limits
    between_hosts: Limits = field(default=lambda _: {})


def small_bytes(num_workers: int) -> int:
    """Of a message that holds a little JSON for each of some workers."""
    return _SMALL_BYTES + _OF_A_WORKER_BYTES * num_workers


def training_bytes(*networks: Network) -> int:
    """What models in training take: weights, gradients, what their optimizers keep, buffers."""
    total = 0
    for model, policy in networks:
        copies = _COPIES + len(kept_by(policy).moments)
        total += copies * sum(p.nbytes for p in model.parameters())
        total += sum(b.nbytes for b in model.buffers())
    return total


def state_bytes(*networks: Network) -> int:
    """The most bytes that models, their optimizers and their names take in a message."""
    total = 0
    for model, policy in networks:
        kept, num_parameters = kept_by(policy), len(list(model.parameters()))
        copies = _COPIES + len(kept.moments) + len(kept.numbers)
        num_tensors = copies * num_parameters + len(list(model.buffers())) + len(COUNTS)
        size = training_bytes((model, policy))
        total += int(_MARGIN * size) + _MIB + _OF_A_TENSOR_BYTES * num_tensors
    return total


def from_host(sizes: MessageSizes, num_samples: Sequence[int]) -> dict[str, int]:
    """What the server accepts from a host.

    Args:
        sizes: of the run's algorithm.
        num_samples: for each of the host's workers, as the host says.
    """
    count = len(num_samples)
    believed = sum(min(max(samples, 0), _MOST_SAMPLES) for samples in num_samples)
    per_worker = sizes.state_bytes + _RANDOM_STATES_BYTES
    return {
        **sizes.from_host(count),
        Kind.STATE: count * per_worker + _OF_A_SAMPLE_BYTES * believed + _SMALL_BYTES,
        Kind.SPANS: _SPANS_BYTES,
        Kind.REAL: _REAL_BYTES,
        **dict.fromkeys((Kind.READY, Kind.LEAVE, Kind.CHECKPOINTED), small_bytes(count)),
    }


def from_server(sizes: MessageSizes, num_samples: Sequence[int]) -> dict[str, int]:
    """What a host accepts from the server.

    Args:
        sizes: of the run's algorithm.
        num_samples: for each of the host's workers.
    """
    count = len(num_samples)
    return {
        **sizes.from_server(count),
        Kind.EXTRACTOR: _EXTRACTOR_BYTES,
        Kind.ADOPT: from_host(sizes, num_samples)[Kind.STATE],
        **dict.fromkeys((Kind.STOP, Kind.COPY, Kind.CHECKPOINT), small_bytes(count)),
    }
