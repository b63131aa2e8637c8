"""Computes all scores of a generator, and the reason for each score that is left out.

Scores come from the features of a network, or from the kind of sample, as with tables.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import torch
from msgspec import to_builtins
from torch import Tensor, nn

from mdgan.gan.labels import even_labels, label_counts, num_classes_of
from mdgan.gan.randomness import derive_seed, generator_for
from mdgan.gan.sampling import sample_pieces
from mdgan.metrics.distances import (
    LEAST_FOR_KID,
    NUM_NEIGHBOURS,
    Moments,
    class_divergence,
    class_histogram,
    classes_covered,
    distance_of_real_data,
    frechet_distance,
    inception_score,
    kernel_distance,
    precision_recall,
    why_no_distance,
)
from mdgan.metrics.extractor import Extractor, Features, gather
from mdgan.metrics.real_statistics import RealStatistics
from mdgan.records.rows import ClassScores
from mdgan.samples.contract import Judge, Verdict

LEAST_FOR_FID = 2048
"""The number of Inception's features: with fewer samples their covariance is singular. With any
extractor FID from fewer samples is much too high."""

MOST_PAIRS = 5000

NO_HELD_OUT = "no held-out samples that the server may hold; name some with --held-out DIR"
_NOT_FINITE = "the result is not finite"


@dataclass
class Scores:
    """The scores of a generator, ready for JSON: every number is finite."""

    n: int
    n_real: int
    n_held_out: int
    # The equal number of generated and of held-out samples, drawn at random, that KID, precision,
    # recall, density and coverage compare; 0 without held-out samples.
    n_pairs: int
    extractor: dict[str, Any]
    # Those that could be computed of fid, kid, kid_std, inception_score, precision, recall,
    # density, coverage, classes_covered, class_kl (nats). For a conditional generator also
    # label_accuracy, the share of samples that the extractor assigns to their class, and intra_fid,
    # the mean FID of all generated classes.
    scores: dict[str, float | int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # other scores, and why, in a line each
    warnings: list[str] = field(default_factory=list)
    # The scores of real data: `fid`, see `distance_of_real_data`; `inception_score` of all real
    # samples, and `classes`, how many are predicted in them, if the extractor has classes.
    real: dict[str, float | int] = field(default_factory=dict)
    class_histogram: list[int] = field(default_factory=list)
    real_class_histogram: list[int] = field(default_factory=list)
    by_class: ClassScores | None = None  # scores of each class of a conditional generator

    def as_record(self) -> dict[str, Any]:
        """All fields as JSON values; `by_class` only if there is one."""
        record: dict[str, Any] = to_builtins(self)
        if self.by_class is None:
            del record["by_class"]
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
    num_held_out = 0 if held_out is None else len(held_out)
    scores = Scores(
        n=len(generated),
        n_real=real.num_samples,
        n_held_out=num_held_out,
        n_pairs=min(len(generated), num_held_out, MOST_PAIRS),
        extractor=extractor.describe(),
    )
    _add_fid(scores, generated, real)
    _add_pairwise(scores, generated, held_out, seed=seed)
    _add_classes(scores, generated, real, extractor=extractor)
    if num_classes is not None:
        scores.by_class = _add_by_class(scores, generated, num_classes, held_out, extractor)
    return scores


def _add(scores: Scores, name: str, value: float) -> None:
    if math.isfinite(value):
        scores.scores[name] = value
    else:
        scores.left_out[name] = _NOT_FINITE


def _add_fid(scores: Scores, generated: Features, real: RealStatistics) -> None:
    moments = Moments.of(generated.values)
    distance, reason = _distance(real.moments, moments, "real", b_is="generated")
    if distance is None:
        scores.left_out["fid"] = reason
    else:
        scores.scores["fid"] = distance
        of_real = distance_of_real_data(real.moments, scores.n)
        if math.isfinite(of_real):
            scores.real["fid"] = of_real
        if scores.n < LEAST_FOR_FID:
            scores.warnings.append(
                f"FID from {scores.n:,} samples is biased upwards; {LEAST_FOR_FID:,} or more are "
                "needed to compare"
            )


def _distance(a: Moments, b: Moments, a_is: str, b_is: str) -> tuple[float | None, str]:
    """The FID, or None and why there is none."""
    reason = why_no_distance(a, a_is) or why_no_distance(b, b_is)
    if reason is not None:
        return None, reason
    distance = frechet_distance(a, b)
    return (distance, "") if math.isfinite(distance) else (None, _NOT_FINITE)


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
    scores.class_histogram = made.tolist()
    scores.real_class_histogram = real.class_histogram.tolist()
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


def _add_by_class(
    scores: Scores,
    generated: Features,
    num_classes: int,
    held_out: Features | None,
    extractor: Extractor,
) -> ClassScores:
    """Compares the samples of each class with held-out samples of that class.

    Workers send only sums over all classes together, so their samples cannot be used.
    """
    labels = generated.labels
    assert labels is not None, "samples of a conditional generator have labels"
    by_class = ClassScores(torch.bincount(labels, minlength=num_classes).tolist())
    knows_classes = extractor.kind == "classifier" or (
        extractor.kind == "file" and extractor.num_classes == num_classes
    )
    if generated.probabilities is None or not knows_classes:
        reason = f"extractor {extractor.name} does not know the data's classes"
        scores.left_out["label_accuracy"] = reason
    else:
        is_right = (generated.probabilities.argmax(1) == labels).double()
        for c, number in enumerate(by_class.asked):
            by_class.right.append(float(is_right[labels == c].mean()) if number else None)
        _add(scores, "label_accuracy", float(is_right.mean()))
    if held_out is None or held_out.labels is None:
        scores.left_out["intra_fid"] = NO_HELD_OUT
        return by_class
    for c, number in enumerate(by_class.asked):
        kept = Moments.of(held_out.values[held_out.labels == c])
        made = Moments.of(generated.values[labels == c])
        distance, reason = _distance(kept, made, "held-out", b_is="generated")
        by_class.fid.append(distance)
        if distance is None and number:
            scores.left_out.setdefault("intra_fid", f"class {c}: {reason}")
    distances = [distance for distance in by_class.fid if distance is not None]
    if distances and "intra_fid" not in scores.left_out:
        _add(scores, "intra_fid", fmean(distances))
    return by_class


def score_generator(
    generator: nn.Module,
    extractor: Extractor,
    real: RealStatistics,
    held_out: Features | None,
    *,
    z_dim: int,
    num_samples: int,
    seed: int,
    held: Iterable[Sequence[int]] = (),
) -> Scores:
    """Generates samples and scores them.

    Args:
        held: for each worker its number of samples by class, if a conditional generator should make
            classes as often; empty to make all equally often.
    """
    labels = _labels(generator, num_samples, held)
    pieces = sample_pieces(generator, num_samples, z_dim, seed=seed, labels=labels)
    features = replace(gather(map(extractor, pieces)), labels=labels)
    return score(features, real, held_out, extractor, seed, num_classes_of(generator))


def judge_generator(
    generator: nn.Module,
    judge: Judge,
    *,
    z_dim: int,
    num_samples: int,
    seed: int,
    held: Iterable[Sequence[int]] = (),
) -> Verdict:
    """Generates samples and has their kind judge them; see `score_generator`."""
    labels = _labels(generator, num_samples, held)
    pieces = sample_pieces(generator, num_samples, z_dim, seed=seed, labels=labels)
    return judge(torch.cat([*pieces]), labels)


def judged_record(verdict: Verdict, num_samples: int) -> dict[str, Any]:
    """A verdict as JSON values, like `Scores.as_record`."""
    return {
        "n": num_samples,
        "n_held_out": verdict.num_held_out,
        "scores": verdict.scores,
        "left_out": verdict.left_out,
        "warnings": [],
        "real": verdict.real,
        "rare": verdict.rare,
        **{name: verdict.figures[name] for name in ("rules",) if name in verdict.figures},
    }


def _labels(generator: nn.Module, num_samples: int, held: Iterable[Sequence[int]]) -> Tensor | None:
    num_classes = num_classes_of(generator)
    if num_classes is None:
        return None
    return even_labels(label_counts(num_classes, held), num_samples)
