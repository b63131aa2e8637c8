"""Which classes a generator makes, how well each, and the Inception score.

The Inception score is exp E_x KL(p(y|x) ‖ p(y)) (Salimans et al. 2016, section 4). With a
classifier of the data set instead of Inception it is the MD-GAN paper's "MNIST score" (section
V.A.c). Higher is better, up to K, the number of classes.
"""

import math
from dataclasses import dataclass, field
from statistics import fmean

import torch
from torch import Tensor

from mdgan.metrics.distances import Moments, frechet_distance, why_no_distance
from mdgan.metrics.extractor import Extractor, Features

LEAST_SHARE = 0.1
"""A class is lost if it has less than this fraction of its share in the real data."""
NO_HELD_OUT = "no held-out samples that the server may hold; name some with --held-out DIR"


def class_histogram(probabilities: Tensor) -> Tensor:
    """How many samples are predicted to be of each class, int64 [K]."""
    return torch.bincount(probabilities.argmax(1), minlength=probabilities.shape[1])


def classes_covered(generated: Tensor, real: Tensor) -> int:
    """The number of classes that get at least a tenth of the share they have in the real data."""
    wanted = LEAST_SHARE * real.double() / real.sum()
    return int((generated.double() / generated.sum() >= wanted)[real > 0].sum())


def class_divergence(generated: Tensor, real: Tensor) -> float:
    """KL(generated ‖ real) of class histograms in nats; ∞ if a class is not among the real."""
    made, true = generated.double() / generated.sum(), real.double() / real.sum()
    present = generated > 0
    return max(0.0, float((made[present] * (made[present] / true[present]).log()).sum()))


def inception_score(probabilities: Tensor) -> float:
    """The Inception score of all samples, p(y|x) float64 [n, K], together (one split)."""
    negative_entropies = torch.xlogy(probabilities, probabilities)
    return score_from_sums(
        len(probabilities), probabilities.sum(0), float(negative_entropies.sum())
    )


def score_from_sums(
    num_samples: int, probability_sum: Tensor, negative_entropy_sum: float
) -> float:
    """The same score if only sums over the samples are known.

    log IS = (1/n) Σ_x Σ_y p(y|x) log p(y|x) − Σ_y p(y) log p(y), p(y) = (1/n) Σ_x p(y|x).
    """
    marginal = probability_sum / num_samples
    return math.exp(
        negative_entropy_sum / num_samples - float(torch.xlogy(marginal, marginal).sum())
    )


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
    """
    labels = generated.labels
    assert labels is not None, "samples of a conditional generator have labels"
    asked = torch.bincount(labels, minlength=num_classes).tolist()
    right: list[float | None] = []
    fid: list[float | None] = []
    accuracy, mean, left_out = None, None, {}
    knows_classes = extractor.kind == "classifier" or (
        extractor.kind == "file" and extractor.num_classes == num_classes
    )
    if generated.probabilities is None or not knows_classes:
        left_out["label_accuracy"] = f"extractor {extractor.name} does not know the data's classes"
    else:
        is_right = (generated.probabilities.argmax(1) == labels).double()
        sums = torch.zeros(num_classes, dtype=torch.float64).index_add_(0, labels, is_right)
        right = [total / n if n else None for total, n in zip(sums.tolist(), asked, strict=True)]
        accuracy = float(is_right.mean())
    if held_out is None or held_out.labels is None:
        left_out["intra_fid"] = NO_HELD_OUT
        return ByClass(asked, right, fid, accuracy, mean, left_out)
    for c, number in enumerate(asked):
        of_class = generated.values[labels == c], held_out.values[held_out.labels == c]
        distance, reason = _distance(*map(Moments.of, of_class))
        fid.append(distance)
        if distance is None and number:
            left_out.setdefault("intra_fid", f"class {c}: {reason}")
    if "intra_fid" not in left_out:
        mean = fmean(values) if (values := [each for each in fid if each is not None]) else None
    return ByClass(asked, right, fid, accuracy, mean, left_out)


def _distance(generated: Moments, real: Moments) -> tuple[float | None, str]:
    """The FID, or None and why there is none."""
    reason = why_no_distance(real, "held-out") or why_no_distance(generated, "generated")
    if reason is not None:
        return None, reason
    distance = frechet_distance(real, generated)
    return (distance, "") if math.isfinite(distance) else (None, "the result is not finite")
