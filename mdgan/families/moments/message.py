"""DP-MERF: the one message of each worker, and the generator's loss (Harder et al. 2021, 3).

Two distributions are alike if the means of their features are (Rahimi and Recht 2007, for the
Gaussian kernel). Server and workers draw the same random frequencies W from the seed.

    EACH WORKER n, once
    φ(x) = [c, √(1 − c²) · (cos W·x, sin W·x) / √(D/2)]     features of a sample: 1 + D numbers
    S_n  = Σ φ(x) over its samples, each in row y(x), + N(0, σ²)              ──► to the server

    SERVER
    S    = Σ_n S_n                                          all that it sees, with secure sums
    J    = Σ_y ‖S_y / m − p_y · mean φ(G(z, y))‖²           G steps on J, iteration after iteration

φ(x) has length 1 and depends on x alone: that is all that the noise must hide. p_y, the share of
class y, follows from the sums of the constant c; m is the number of all samples.
"""

from dataclasses import dataclass
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.families.moments.contract import SUM, Lesson, NoisySums, Pieces, Statistic, descend
from mdgan.gan.exact_sum import FixedPoint
from mdgan.gan.generator import Generator
from mdgan.gan.labels import Samples, even_labels, shares_of
from mdgan.gan.model_state import digest_of
from mdgan.metrics.extractor import Extractor, run_network

CONSTANT = 0.2
"""c, the first feature of every sample: its sum is c times the number of samples of a class. The
other features have the rest of a sample's squared length, 1 − c²."""
_ROUNDED = 1 + 2.0**-20  # the largest length in float32 of a vector of length 1
SUMS = FixedPoint(2.0**30, 2.0**21)
"""The fixed-point arithmetic of sums over workers: exact up to 2²¹ samples with their noise."""


# Each worker.


@dataclass(frozen=True)
class SampleFeatures(Statistic):
    """φ: from samples to a constant, and cosines and sines of W·x, float32 [b, 1 + D]."""

    frequencies: Tensor  # W, float32 [D/2, d], for d values in a sample
    num_classes: int  # K, or 1 where samples have no classes
    # Replaces W: a network that has seen no sample of a worker (DP-MEPF: Harder et al. 2023); its
    # features are scaled to one length.
    network: Extractor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of S_n: K rows of 1 + D features."""
        number = 2 * len(self.frequencies) if self.network is None else self.network.num_features
        return self.num_classes, 1 + number

    @property
    def identity(self) -> str:
        """The digest of the network's file, if there is one."""
        return "" if self.network is None else self.network.sha256

    @property
    def meaning(self) -> str:
        return f"{self.identity} {digest_of({'frequencies': self.frequencies})}"

    @property
    def form(self) -> AnswerForm:
        return AnswerForm(SUM, self.shape, arithmetic=SUMS)

    def about(self) -> str:
        num_classes, num_features = self.shape
        return f"{num_features:,} features × {num_classes} class(es), once"

    def to(self, device: torch.device) -> "SampleFeatures":
        network = self.network and self.network.to(device)
        return SampleFeatures(self.frequencies.to(device), self.num_classes, network)

    def of(self, samples: Tensor) -> Tensor:
        """φ(x) of samples, [b, *shape]: float32 [b, 1 + D], each of length 1."""
        if self.network is None:
            angles = samples.flatten(1) @ self.frequencies.T
            features = torch.cat([angles.cos(), angles.sin()], 1) / sqrt(len(self.frequencies))
        else:
            features = F.normalize(run_network(self.network.name, self.network.network, samples)[0])
        ones = torch.full((len(samples), 1), CONSTANT, device=features.device)
        return torch.cat([ones, features * sqrt(1 - CONSTANT**2)], 1)

    def sums(self, pieces: Pieces) -> Tensor:
        """S_n without noise: Σ w φ(x) by class, float64 [K, 1 + D]; φ that is not finite is 0."""
        total = torch.zeros(self.shape, dtype=torch.float64)
        for piece, weights in pieces:
            features = cut(self.of(piece.images.to(self.frequencies.device)))
            labels = None if self.num_classes == 1 else piece.labels
            rows = torch.zeros(len(piece), dtype=torch.int64) if labels is None else labels.cpu()
            total.index_add_(0, rows, features * weights.double()[:, None])
        return total

    def lengths(self, samples: Samples) -> Tensor:
        of_samples = self.of(samples.images.to(self.frequencies.device))
        lengths: Tensor = torch.linalg.vector_norm(of_samples, dim=1)
        return lengths.cpu()

    def lesson(self, noisy: NoisySums, device: torch.device) -> "FeatureLesson":
        embedding = Embedding.of(noisy.sums.cpu(), max(1, noisy.num_samples), noisy.variance)
        return FeatureLesson(self, embedding.to(device))


def cut(features: Tensor) -> Tensor:
    """What each sample adds, float64 [b, n] on the CPU: of length 1 at most, whatever φ gives.

    Cuts longer vectors, unless they are longer by rounding alone, which `noise.SENSITIVITY` allows
    for. A vector whose length is not finite becomes 0.
    """
    rows = features.detach().double().cpu()
    lengths = torch.linalg.vector_norm(rows, dim=1)
    is_long = lengths > _ROUNDED
    rows[is_long] /= lengths[is_long, None]
    rows[~lengths.isfinite()] = 0.0
    return rows


# The server.


@dataclass(frozen=True)
class Embedding:
    """S / m, as the loss needs it: the share of each class, and the mean of its features."""

    shares: Tensor  # p, float32 [K], adding up to 1
    features: Tensor  # S / m without the constant, float32 [K, D]
    noise: float  # the variance of each feature that the workers' noise adds

    @classmethod
    def of(cls, sums: Tensor, num_samples: int, variance: float) -> "Embedding":
        """Makes it of S, float64 [K, 1 + D], m, and the variance of the noise in S."""
        counts = sums[:, 0] / CONSTANT
        shares = shares_of(counts.clamp(min=0), variance / CONSTANT**2)
        features = (sums[:, 1:] / num_samples).float()
        return cls(shares.float(), features, variance / num_samples**2)

    def to(self, device: torch.device) -> "Embedding":
        """The same on a device."""
        return Embedding(self.shares.to(device), self.features.to(device), self.noise)

    def distance(self, phi: Tensor, classes: Tensor) -> Tensor:
        """J of generated samples, a scalar.

        J is unbiased: what noise and the finite batch of G add to it on average is subtracted.
        Otherwise G would learn to make samples that vary less.

        Args:
            phi: φ of generated samples, float32 [b, 1 + D].
            classes: y of each, int64 [b].
        """
        num_classes, num_features = self.features.shape
        numbers = torch.bincount(classes, minlength=num_classes).to(phi.dtype)
        total = phi.new_zeros(num_classes, num_features).index_add(0, classes, phi[:, 1:])
        means = total / numbers.clamp(min=1)[:, None]
        seen = (numbers > 0).to(phi.dtype)
        # The squared mean of k random vectors of length L is too large by about L²/k.
        squared_length = 1 - CONSTANT**2
        square = (numbers * means.square().sum(1) - squared_length) / (numbers - 1).clamp(min=1)
        square = torch.where(numbers > 1, square, means.square().sum(1))
        both = (self.features * means).sum(1)
        rows = self.features.square().sum(1) - 2 * self.shares * both + self.shares**2 * square
        return (seen * rows).sum() - self.noise * num_features * seen.sum()


class EvenGenerator(Generator):
    """G whose batches have the same number of samples of each class."""

    def draw_inputs(self, num_samples: int) -> tuple[Tensor, Tensor | None]:
        z, _ = super().draw_inputs(num_samples)
        if self.label_counts is None:
            return z, None
        return z, even_labels(self.label_counts, num_samples).to(self.device)


@dataclass(frozen=True)
class FeatureLesson(Lesson):
    """Steps of G on J, with φ and S / m."""

    features: SampleFeatures
    embedding: Embedding

    def step(self, generator: Generator, batch_size: int) -> float:
        samples = generator.draw(batch_size)
        if (labels := samples.labels) is None:
            labels = torch.zeros(batch_size, dtype=torch.int64, device=generator.device)
        return descend(generator, self.embedding.distance(self.features.of(samples.images), labels))
