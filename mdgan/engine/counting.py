"""Counts that all sites add up before training, by which samples are encoded; see `SampleKind`."""

from math import sqrt

import torch
from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.gan.exact_sum import FixedPoint
from mdgan.gan.model_state import digest_of
from mdgan.messages import Kind, Message
from mdgan.privacy.noise import lattice_step
from mdgan.samples.contract import SampleKind

_WHOLE = FixedPoint(1.0, 2.0**48)


def counts_form(kind: SampleKind, *, noisy: bool) -> AnswerForm:
    """The form of counts: whole numbers, or with noise multiples of its step; sums are exact."""
    if not noisy:
        return AnswerForm(Kind.COUNTS, (kind.num_counts,), arithmetic=_WHOLE)
    step = lattice_step(sqrt(kind.num_histograms), kind.num_noisy_counts)
    exact = FixedPoint(1 / step, 2.0**50 * step)
    return AnswerForm(Kind.COUNTS, (kind.num_noisy_counts,), arithmetic=exact)


def read_counts(message: Message, form: AnswerForm) -> Tensor:
    """Reads the counts of a host that may be hostile, float64; ValueError if they are malformed."""
    counts = message.tensors.get("counts", torch.empty(0))
    whole = form.arithmetic == _WHOLE
    if counts.shape != form.shape or counts.dtype != (torch.int64 if whole else torch.float64):
        raise ValueError(f"counts of {counts.dtype} {list(counts.shape)}")
    if not bool((counts.abs() < form.arithmetic.largest).all()) or (whole and counts.min() < 0):
        raise ValueError("counts that no rows have")
    return form.arithmetic.steps(counts) / form.arithmetic.scale


def published(kind: SampleKind, counts: Tensor, *, noisy: bool) -> Tensor:
    """The counts of all sites as strangers may see them: coarse, unless noise covers them."""
    return counts.double() if noisy else kind.coarse(counts.double())


def published_digest(kind: SampleKind, counts: Tensor, *, noisy: bool) -> str:
    """The digest of the published counts, which hosts sign."""
    return digest_of({"counts": published(kind, counts, noisy=noisy)})


def read_learnt(message: Message, num_counts: int) -> Tensor:
    """Reads the counts of all sites from the server; ValueError if they are malformed."""
    counts = message.tensors.get("counts", torch.empty(0))
    is_right = counts.shape == (num_counts,) and counts.dtype == torch.float64
    if not is_right or not bool(counts.isfinite().all()):
        raise ValueError(f"what all sites have learnt is {counts.dtype} {list(counts.shape)}")
    return counts
