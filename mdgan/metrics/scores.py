"""All scores of a generator at one moment, and the reason for each that is left out."""

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch

from mdgan.gan.randomness import derive_seed, generator_for
from mdgan.metrics.classes import (
    NO_HELD_OUT,
    ByClass,
    by_class,
    class_divergence,
    class_histogram,
    classes_covered,
    inception_score,
)
from mdgan.metrics.distances import (
    LEAST_FOR_KID,
    Moments,
    frechet_distance,
    kernel_distance,
    why_no_distance,
)
from mdgan.metrics.extractor import Extractor, Features
from mdgan.metrics.neighbours import NUM_NEIGHBOURS, precision_recall
from mdgan.metrics.real_statistics import RealStatistics

LEAST_FOR_FID = 2048
"""The number of Inception's features: with fewer samples their covariance is singular. With any
extractor FID from fewer samples is much too high."""

MOST_PAIRS = 5000

_NOT_FINITE = "the result is not finite"


@dataclass(frozen=True)
class Scores:
    """What was measured, ready for JSON: every number is finite.

    Attributes:
        n_pairs: the equal number of generated and of held-out samples, drawn at random, that KID,
            precision, recall, density and coverage compare; 0 without held-out samples.
        scores: those that were computed of fid, kid, kid_std, inception_score, precision, recall,
            density, coverage, classes_covered, class_kl (nats); and, of a conditional generator,
            label_accuracy and intra_fid.
        left_out: for each of the others, and for the floor, the reason in one line.
        floor: `fid` of one half of the real samples to the other, if it can be computed, and `n`,
            the sizes of the halves.
        real: `inception_score` of all real samples, and `classes`, how many are predicted in them;
            empty if the extractor has no classes.
        by_class: of a conditional generator, what samples of each class are worth; else None.
    """

    n: int
    n_real: int
    n_held_out: int
    n_pairs: int
    extractor: dict[str, Any]
    scores: dict[str, float | int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    floor: dict[str, Any] = field(default_factory=dict)
    real: dict[str, float | int] = field(default_factory=dict)
    class_histogram: list[int] = field(default_factory=list)
    real_class_histogram: list[int] = field(default_factory=list)
    by_class: ByClass | None = None

    def as_record(self) -> dict[str, Any]:
        """All fields as JSON values; `by_class` only if there is one."""
        record = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        if self.by_class is None:
            del record["by_class"]
        else:
            table = asdict(self.by_class)
            record["by_class"] = {name: table[name] for name in ("asked", "right", "fid")}
        return record


def score(
    generated: Features,
    real: RealStatistics,
    held_out: Features | None,
    extractor: Extractor,
    seed: int,
    num_classes: int | None = None,
) -> Scores:
    """Compares generated samples with real ones in the features of one extractor.

    Args:
        seed: decides which samples are compared in pairs; torch's default generators stay.
        num_classes: K of a conditional generator, whose samples have labels; None of another.
    """
    if len(generated) == 0:
        raise ValueError("no generated sample to score")
    num_features = {generated.values.shape[1], real.num_features, extractor.num_features}
    if held_out is not None:
        num_features.add(held_out.values.shape[1])
    if len(num_features) > 1:
        raise ValueError(f"features of different extractors: {sorted(num_features)}")
    num_held_out = 0 if held_out is None else len(held_out)
    classwise = None
    if num_classes is not None:
        classwise = by_class(generated, num_classes, held_out, extractor)
    scores = Scores(
        by_class=classwise,
        n=len(generated),
        n_real=real.num_samples,
        n_held_out=num_held_out,
        n_pairs=min(len(generated), num_held_out, MOST_PAIRS),
        extractor=extractor.describe(),
    )
    _add_fid(scores, generated, real)
    _add_pairwise(scores, generated, held_out, seed)
    _add_classes(scores, generated, real, extractor)
    if classwise is not None:
        scores.left_out.update(classwise.left_out)
        for name in ("label_accuracy", "intra_fid"):
            if (value := getattr(classwise, name)) is not None:
                _add(scores, name, value)
    return scores


def _add(scores: Scores, name: str, value: float) -> None:
    if math.isfinite(value):
        scores.scores[name] = value
    else:
        scores.left_out[name] = _NOT_FINITE


def _add_fid(scores: Scores, generated: Features, real: RealStatistics) -> None:
    moments = Moments.of(generated.values)
    reason = why_no_distance(moments, "generated") or why_no_distance(real.whole, "real")
    if reason:
        scores.left_out["fid"] = reason
    else:
        _add(scores, "fid", frechet_distance(real.whole, moments))
        if scores.n < LEAST_FOR_FID:
            scores.warnings.append(
                f"FID from {scores.n:,} samples is biased upwards; {LEAST_FOR_FID:,} or more are "
                "needed to compare"
            )
    scores.floor["n"] = [half.num_samples for half in real.halves]
    reason = real.why_no_floor()
    floor = math.nan if reason else real.floor()
    if math.isfinite(floor):
        scores.floor["fid"] = floor
    else:
        scores.left_out["floor"] = reason or _NOT_FINITE


def _add_pairwise(
    scores: Scores, generated: Features, held_out: Features | None, seed: int
) -> None:
    by_kernel = ("kid", "kid_std")
    by_neighbours = ("precision", "recall", "density", "coverage")
    if held_out is None:
        scores.left_out.update(dict.fromkeys((*by_kernel, *by_neighbours), NO_HELD_OUT))
        return
    n = scores.n_pairs
    made, kept = (
        part.values[torch.randperm(len(part), generator=generator_for(seed, "pairs", name))[:n]]
        for name, part in (("generated", generated), ("held out", held_out))
    )
    if n < LEAST_FOR_KID:
        reason = f"needs at least {LEAST_FOR_KID} generated and held-out samples each, got {n}"
        scores.left_out.update(dict.fromkeys(by_kernel, reason))
    else:
        kid = kernel_distance(kept, made, derive_seed(seed, "kid"))
        for name, value in zip(by_kernel, kid, strict=True):
            _add(scores, name, value)
    if n <= NUM_NEIGHBOURS:
        reason = (
            f"{NUM_NEIGHBOURS} nearest neighbours need at least {NUM_NEIGHBOURS + 1} generated and "
            f"held-out samples each, got {n}"
        )
        scores.left_out.update(dict.fromkeys(by_neighbours, reason))
    else:
        for name, value in zip(by_neighbours, precision_recall(kept, made), strict=True):
            _add(scores, name, value)


def _add_classes(
    scores: Scores, generated: Features, real: RealStatistics, extractor: Extractor
) -> None:
    against_real = ("classes_covered", "class_kl")
    if generated.probabilities is None:
        reason = f"extractor {extractor.name} has no classes"
        scores.left_out.update(dict.fromkeys(("inception_score", *against_real), reason))
        return
    _add(scores, "inception_score", inception_score(generated.probabilities))
    made = class_histogram(generated.probabilities)
    scores.class_histogram.extend(made.tolist())
    scores.real_class_histogram.extend(real.class_histogram.tolist())
    if real.num_samples == 0:
        scores.left_out.update(dict.fromkeys(against_real, "no statistics of real samples"))
        return
    scores.real["inception_score"] = real.inception_score()
    scores.real["classes"] = int((real.class_histogram > 0).sum())
    scores.scores["classes_covered"] = classes_covered(made, real.class_histogram)
    strange = ((made > 0) & (real.class_histogram == 0)).nonzero().flatten().tolist()
    if strange:
        scores.left_out["class_kl"] = (
            f"infinite: class {strange[0]} is generated but never predicted in the real data"
        )
    else:
        _add(scores, "class_kl", class_divergence(made, real.class_histogram))
