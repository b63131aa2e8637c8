"""Scores of a conditional generator class by class."""

from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean

import torch
from torch import Tensor

from mdgan.metrics.distances import Moments, frechet_distance, why_no_distance
from mdgan.metrics.extractor import Extractor, Features

_NO_HELD_OUT = "no held-out samples that the server may hold; name some with --held-out DIR"


@dataclass(frozen=True)
class ByClass:
    """What samples of each class are worth.

    Attributes:
        asked: how many samples of each class were generated, K numbers.
        right: the share of them that the extractor predicts to be of that class; None where none
            was generated. Empty if the extractor's classes are not those of the data.
        fid: the FID between them and the real samples of that class (Miyato and Koyama 2018, "cGANs
            with Projection Discriminator"); None where there are too few of either. Empty without
            real samples.
        label_accuracy: the share of all samples that are predicted to be of their class.
        intra_fid: the mean of `fid`; None unless every class that was generated has one.
        left_out: for each of `label_accuracy` and `intra_fid` that is missing, the reason.
    """

    asked: list[int]
    right: list[float | None] = field(default_factory=list)
    fid: list[float | None] = field(default_factory=list)
    label_accuracy: float | None = None
    intra_fid: float | None = None
    left_out: dict[str, str] = field(default_factory=dict)


def by_class(
    generated: Features, num_classes: int, held_out: Features | None, extractor: Extractor
) -> ByClass:
    """Compares the samples of each class with the real ones of that class.

    Only held-out samples are compared with: workers tell sums over all classes together, and tell
    nothing more for this.

    Args:
        generated: features of generated samples, with labels in [0, K).
        held_out: features of real samples with labels; None if the server has none.
    """
    assert generated.labels is not None, "samples of a conditional generator have labels"
    asked = torch.bincount(generated.labels, minlength=num_classes)
    left_out: dict[str, str] = {}
    right, accuracy = _right(generated, generated.labels, asked, extractor, left_out)
    fid, mean = _fid(generated, generated.labels, asked, held_out, left_out)
    return ByClass(asked.tolist(), right, fid, accuracy, mean, left_out)


def _right(
    generated: Features,
    labels: Tensor,
    asked: Tensor,
    extractor: Extractor,
    left_out: dict[str, str],
) -> tuple[list[float | None], float | None]:
    same_classes = extractor.kind == "classifier" or (
        extractor.kind == "file" and extractor.num_classes == len(asked)
    )
    if generated.probabilities is None or not same_classes:
        left_out["label_accuracy"] = f"extractor {extractor.name} does not know the data's classes"
        return [], None
    is_right = (generated.probabilities.argmax(1) == labels).double()
    sums = torch.zeros(len(asked), dtype=torch.float64).index_add_(0, labels, is_right)
    pairs = zip(sums.tolist(), asked.tolist(), strict=True)
    return [total / n if n else None for total, n in pairs], float(is_right.mean())


def _fid(
    generated: Features,
    labels: Tensor,
    asked: Tensor,
    held_out: Features | None,
    left_out: dict[str, str],
) -> tuple[list[float | None], float | None]:
    if held_out is None or held_out.labels is None:
        left_out["intra_fid"] = _NO_HELD_OUT
        return [], None
    found: list[float | None] = []
    for c, n in enumerate(asked.tolist()):
        distance, reason = _distance(
            generated.values[labels == c], held_out.values[held_out.labels == c]
        )
        found.append(distance)
        if distance is None and n:
            left_out.setdefault("intra_fid", f"class {c}: {reason}")
    values = [value for value in found if value is not None]
    return found, None if "intra_fid" in left_out or not values else fmean(values)


def _distance(generated: Tensor, real: Tensor) -> tuple[float | None, str]:
    sides = [(Moments.of(real), "held-out"), (Moments.of(generated), "generated")]
    for moments, what in sides:
        if (reason := why_no_distance(moments, what)) is not None:
            return None, reason
    distance = frechet_distance(sides[0][0], sides[1][0])
    return (distance, "") if isfinite(distance) else (None, "the result is not finite")
