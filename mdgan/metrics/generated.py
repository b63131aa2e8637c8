"""Scores what a generator makes, by the features of a network or as its kind of sample judges."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from mdgan.gan.labels import even_labels, label_counts, num_classes_of
from mdgan.gan.sampling import sample_pieces
from mdgan.metrics.extractor import Extractor, Features, gather
from mdgan.metrics.real_statistics import RealStatistics
from mdgan.metrics.scores import Scores, score
from mdgan.samples.contract import Judge, Verdict


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
        held: by worker, the samples of each class that it holds, if a conditional generator is to
            make classes as often; else it makes all equally often.
    """
    num_classes, labels = num_classes_of(generator), _labels(generator, num_samples, held)
    pieces = sample_pieces(generator, num_samples, z_dim, seed, labels)
    features = replace(gather(map(extractor, pieces)), labels=labels)
    return score(features, real, held_out, extractor, seed, num_classes)


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
    pieces = sample_pieces(generator, num_samples, z_dim, seed, labels)
    return judge(torch.cat([*pieces]), labels)


def judged_record(found: Verdict, num_samples: int) -> dict[str, Any]:
    """A judgement as JSON values, as `Scores.as_record`."""
    return {
        "n": num_samples,
        "n_held_out": found.num_held_out,
        "scores": found.scores,
        "left_out": found.left_out,
        "warnings": [],
        "real": found.real,
    }


def _labels(generator: nn.Module, num_samples: int, held: Iterable[Sequence[int]]) -> Tensor | None:
    num_classes = num_classes_of(generator)
    if num_classes is None:
        return None
    return even_labels(label_counts(num_classes, held), num_samples)
