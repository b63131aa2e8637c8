"""What all sites learn together before training: counts that hosts add up; see `SampleKind`."""

import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.gan.exact_sum import FixedPoint
from mdgan.gan.model_state import digest_of
from mdgan.messages import Kind, Message
from mdgan.samples.contract import SampleKind

_MOST_COUNT = 2.0**48
_WHOLE = FixedPoint(1.0, _MOST_COUNT)


def counts_form(num_counts: int) -> AnswerForm:
    """How hosts answer: whole numbers, which are exact in any order."""
    return AnswerForm(Kind.COUNTS, (num_counts,), arithmetic=_WHOLE)


def read_counts(message: Message, num_counts: int, *, noisy: bool) -> Tensor:
    """The counts, float64, of a host that may be hostile; ValueError if they are malformed."""
    counts = message.tensors.get("counts", torch.empty(0))
    if counts.shape != (num_counts,) or counts.dtype != torch.int64:
        raise ValueError(f"counts of {counts.dtype} {list(counts.shape)}")
    if int(counts.abs().max()) >= _MOST_COUNT or (not noisy and int(counts.min()) < 0):
        raise ValueError("counts that no rows have")
    return counts.double()


def published(kind: SampleKind, counts: Tensor, *, noisy: bool) -> Tensor:
    """What strangers may know of all sites' counts: coarse numbers, unless noise covers them."""
    return counts.double() if noisy else kind.coarse(counts.double())


def published_digest(kind: SampleKind, counts: Tensor, *, noisy: bool) -> str:
    """What hosts sign of them."""
    return digest_of({"counts": published(kind, counts, noisy=noisy)})


def read_learnt(message: Message, num_counts: int) -> Tensor:
    """The counts of all sites; ValueError if they are malformed."""
    counts = message.tensors.get("counts", torch.empty(0))
    is_right = counts.shape == (num_counts,) and counts.dtype == torch.float64
    if not is_right or not bool(counts.isfinite().all()):
        raise ValueError(f"what all sites have learnt is {counts.dtype} {list(counts.shape)}")
    return counts
