"""How large the body of each kind of message may be, from what the models and batches are.

A link refuses what is larger, or of a kind that is not listed, before it takes memory for it. The
limits are generous where only JSON travels and where states of models do, and tight for feedback.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from mdgan.messages import Kind

_KIB, _MIB = 1 << 10, 1 << 20
_SMALL_BYTES = 64 * _KIB
_OF_A_WORKER_BYTES = _KIB
"""What a worker may add to the JSON of a message."""
_OF_A_TENSOR_BYTES = 512
"""What a tensor may add beside its elements: name and shape in JSON, and padding."""
_SPANS_BYTES = 8 * _MIB
_SWAP_BYTES = _MIB
_REAL_BYTES = 256 * _MIB
_EXTRACTOR_BYTES = 1024 * _MIB
_RANDOM_STATES_BYTES = 64 * _KIB
_OF_A_SAMPLE_BYTES = 16
_VERDICT_BYTES = 4
_MOST_SAMPLES = 1 << 28
"""No more samples than so many are believed of one worker."""
_COPIES = 4
"""Weights, gradients, and Adam's two moments."""
_MARGIN = 1.1


@dataclass(frozen=True)
class Sizes:
    """What decides how large messages are.

    Attributes:
        shape: of a sample, (C, H, W).
        batch_size: b.
        state_bytes: most bytes of what a worker trains, with its optimizers; see `state_bytes`.
        model_bytes: of both models, where these travel; 0 where they do not.
    """

    shape: Sequence[int]
    batch_size: int
    state_bytes: int
    model_bytes: int = 0

    @property
    def batch_bytes(self) -> int:
        """A batch as float32."""
        return 4 * self.batch_size * math.prod(self.shape)


def state_bytes(model: nn.Module) -> int:
    """The most bytes that a model, its optimizer and their names take in a message."""
    parameters = list(model.parameters())
    buffers = list(model.buffers())
    num_bytes = _COPIES * sum(p.numel() * p.element_size() for p in parameters)
    num_bytes += sum(b.numel() * b.element_size() for b in buffers)
    num_tensors = (_COPIES + 1) * len(parameters) + len(buffers)  # and Adam's count of steps
    return int(_MARGIN * num_bytes) + _MIB + _OF_A_TENSOR_BYTES * num_tensors


def from_host(sizes: Sizes, num_samples: Sequence[int]) -> dict[Kind, int]:
    """What the server accepts from a host.

    Args:
        sizes: of the run.
        num_samples: for each of the host's workers, as the host says.
    """
    count = len(num_samples)
    believed = sum(min(max(samples, 0), _MOST_SAMPLES) for samples in num_samples)
    per_worker = sizes.state_bytes + _RANDOM_STATES_BYTES
    small = _SMALL_BYTES + _OF_A_WORKER_BYTES * count
    verdicts = _VERDICT_BYTES * sizes.batch_size
    answer = {Kind.FEEDBACK: count * (sizes.batch_bytes + verdicts + 64) + 8 * _KIB}
    if sizes.model_bytes:  # the codecs' places and scales come on top of values
        answer = {Kind.UPDATE: count * (2 * sizes.model_bytes + 64) + 8 * _KIB}
    return {
        **answer,
        Kind.STATE: count * per_worker + _OF_A_SAMPLE_BYTES * believed + _SMALL_BYTES,
        Kind.SPANS: _SPANS_BYTES,
        Kind.REAL: _REAL_BYTES,
        **dict.fromkeys((Kind.SWAPPED, Kind.READY, Kind.LEAVE, Kind.CHECKPOINTED), small),
    }


def from_server(sizes: Sizes, num_samples: Sequence[int]) -> dict[Kind, int]:
    """What a host accepts from the server.

    Args:
        sizes: of the run.
        num_samples: for each of the host's workers.
    """
    count = len(num_samples)
    states = from_host(sizes, num_samples)[Kind.STATE]
    small = _SMALL_BYTES + _OF_A_WORKER_BYTES * count
    # Every worker uses two batches at most.
    question = {Kind.BATCHES: 2 * count * sizes.batch_bytes + small}
    if sizes.model_bytes:
        question = {Kind.ROUND: sizes.model_bytes + small}
    return {
        **question,
        Kind.SWAP: _SWAP_BYTES + small,
        Kind.EXTRACTOR: _EXTRACTOR_BYTES,
        Kind.ADOPT: states,
        **dict.fromkeys((Kind.STOP, Kind.COPY, Kind.CHECKPOINT), small),
    }


def between_hosts(sizes: Sizes, num_workers: int) -> Mapping[Kind, int]:
    """What a host accepts from another one: a discriminator for each of its workers at most."""
    return {Kind.DISCRIMINATORS: num_workers * sizes.state_bytes + _SMALL_BYTES}
