"""Random Fourier features, and means of them by class.

DP-MERF (Harder, Adamczewski and Park 2021): two distributions are alike if the means of their
features are (Rahimi and Recht 2007 for the Gaussian kernel). A sample of class c adds its features
to row c of a sum, so what one sample adds has length 1, and no other sample has a part in it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod, sqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from mdgan.families.moments.settings import FeatureSettings
from mdgan.gan.exact_sum import FixedPoint
from mdgan.gan.labels import Samples, shares_of
from mdgan.gan.randomness import generator_for
from mdgan.metrics.extractor import Extractor, run_network

CONSTANT = 0.2
"""The first feature of every sample: sums of it tell how many samples a class has. Its square is
the part of a sample's length that the others do without."""
_ROUNDED = 1 + 2.0**-20  # how long a vector of length 1 may be in float32
_WAYS = {1: "linear", 2: "bilinear", 3: "trilinear"}
"""How series, pictures and volumes are enlarged."""
_ALONE = 32  # the sum of one in so many samples is made alone, to see what it adds
SUMS = FixedPoint(2.0**30, 2.0**21)
"""How sums of several workers are added up, exactly: those of 2²¹ samples and noise fit."""


@dataclass(frozen=True)
class SampleFeatures:
    """φ: from samples to a constant, and cosines and sines of W·x, float32 [b, 1 + D]."""

    frequencies: Tensor  # W, float32 [D/2, d], for d values in a sample
    num_classes: int  # K, or 1 where classes are not known
    # Instead of W, one that has seen no sample of a worker (DP-MEPF: Harder et al. 2023); its
    # features are scaled to one length.
    network: Extractor | None = None

    @classmethod
    def drawn(
        cls,
        settings: FeatureSettings,
        shape: Sequence[int],
        num_classes: int | None,
        seed: int,
        weights: Sequence[float] = (),
    ) -> "SampleFeatures":
        """W ~ N(0, w²/σ²), the same at all hosts, with σ = width · √d and w of each value, or 1.

        Of pictures, volumes and series larger than the `feature_side` it is drawn coarsely, and
        enlarged as pictures are: W·x is that of coarse means, and G's gradient is smooth.
        """
        channels, most = shape[:1], settings.feature_side
        sides = [-(-side // -(-side // most)) for side in shape[1:]]
        size = prod([*channels, *sides])
        random = generator_for(seed, "features")
        drawn = torch.randn(-(-settings.num_features // 2), size, generator=random)
        if sides != list(shape[1:]):
            coarse = drawn.view(-1, *channels, *sides)
            way = _WAYS[len(sides)]
            drawn = F.interpolate(coarse, shape[1:], mode=way).flatten(1) * (size / prod(shape))
        if weights:
            drawn *= torch.tensor(weights)
        return cls(drawn / (settings.kernel_width * sqrt(size)), num_classes or 1)

    @property
    def shape(self) -> tuple[int, int]:
        """Of sums: K rows of 1 + D features."""
        number = 2 * len(self.frequencies) if self.network is None else self.network.num_features
        return self.num_classes, 1 + number

    @property
    def identity(self) -> str:
        """What must be equal at the server and at all hosts, beside settings."""
        return "" if self.network is None else self.network.sha256

    def to(self, device: torch.device) -> "SampleFeatures":
        """The same on a device."""
        network = self.network and self.network.to(device)
        return SampleFeatures(self.frequencies.to(device), self.num_classes, network)

    def of(self, samples: Tensor) -> Tensor:
        """φ of some samples, [b, *shape]: float32 [b, 1 + D], each of length 1."""
        if self.network is None:
            angles = samples.flatten(1) @ self.frequencies.T
            found = torch.cat([angles.cos(), angles.sin()], 1) / sqrt(len(self.frequencies))
        else:
            found = F.normalize(run_network(self.network.name, self.network.network, samples)[0])
        ones = torch.full((len(samples), 1), CONSTANT, device=found.device)
        return torch.cat([ones, found * sqrt(1 - CONSTANT**2)], 1)

    def sums(self, pieces: Iterable[tuple[Samples, Tensor]]) -> Tensor:
        """Σ w φ(x) by class, float64 [K, 1 + D], of the finite ones of b samples; weights [b]."""
        total = torch.zeros(self.shape, dtype=torch.float64)
        for piece, weights in pieces:
            found = cut(self.of(piece.images.to(self.frequencies.device)))
            labels = None if self.num_classes == 1 else piece.labels
            rows = torch.zeros(len(piece), dtype=torch.int64) if labels is None else labels.cpu()
            total.index_add_(0, rows, found * weights.double()[:, None])
        return total

    def longest(self, pieces: Iterable[tuple[Samples, Tensor]], unit_of_sample: Tensor) -> float:
        """What a unit adds at most: by φ of its samples, and by sums of some samples alone.

        Args:
            pieces: as they are added up.
            unit_of_sample: the number of the unit of each sample in turn, int64 [n].
        """
        units, place, alone = torch.zeros(len(unit_of_sample)), 0, [0.0]
        for piece, weights in pieces:
            lengths = self.of(piece.images.to(self.frequencies.device)).norm(dim=1).cpu()
            owners = unit_of_sample[torch.arange(place, place + len(piece)) % len(units)]
            units.index_add_(0, owners, lengths.nan_to_num(0.0, 0.0, 0.0) * weights.float())
            place += len(piece)
            for one in range(0, len(piece), _ALONE):
                alone.append(float(self.sums([(piece[[one]], weights[[one]])]).norm()))
        return max(float(units.max()), *alone)


def cut(found: Tensor) -> Tensor:
    """What each sample adds, float64 [b, n] on the CPU: of length 1 at most, whatever φ gives.

    Longer ones are cut, but by the rounding of float32, for which noise pays
    (`noise.SENSITIVITY`). Those whose length is not finite are 0.
    """
    rows = found.detach().double().cpu()
    lengths = torch.linalg.vector_norm(rows, dim=1)
    is_long = lengths > _ROUNDED
    rows[is_long] /= lengths[is_long, None]
    rows[~lengths.isfinite()] = 0.0
    return rows


@dataclass(frozen=True)
class Embedding:
    """What the server knows of all samples: for each class its part of them, and its features."""

    shares: Tensor  # p, float32 [K], adding up to 1
    features: Tensor  # Σ φ(x) / n without the constant, float32 [K, D]
    noise: float  # the variance of each of its values, from the noise of workers

    @classmethod
    def of(cls, sums: Tensor, num_samples: int, variance: float) -> "Embedding":
        """From sums of n samples of all workers, float64 [K, 1 + D], with noise of a variance."""
        counts = sums[:, 0] / CONSTANT
        shares = shares_of(counts.clamp(min=0), variance / CONSTANT**2)
        features = (sums[:, 1:] / num_samples).float()
        return cls(shares.float(), features, variance / num_samples**2)

    def to(self, device: torch.device) -> "Embedding":
        """The same on a device."""
        return Embedding(self.shares.to(device), self.features.to(device), self.noise)

    def distance(self, found: Tensor, classes: Tensor) -> Tensor:
        """‖Σ φ(x) / n − E φ(G(z, y))‖², the squares summed over classes; a scalar.

        What G's own sampling adds to it on average is taken off, and so is what the noise adds:
        without that G would make samples that vary less.

        Args:
            found: φ of generated samples, float32 [b, 1 + D].
            classes: of each, int64 [b].
        """
        num_classes, num_features = self.features.shape
        numbers = torch.bincount(classes, minlength=num_classes).to(found.dtype)
        total = found.new_zeros(num_classes, num_features).index_add(0, classes, found[:, 1:])
        means = total / numbers.clamp(min=1)[:, None]
        seen = (numbers > 0).to(found.dtype)
        # Of a squared mean of m vectors of length L, L²/m is there whatever their mean is.
        length = 1 - CONSTANT**2
        square = (numbers * means.square().sum(1) - length) / (numbers - 1).clamp(min=1)
        square = torch.where(numbers > 1, square, means.square().sum(1))
        both = (self.features * means).sum(1)
        rows = self.features.square().sum(1) - 2 * self.shares * both + self.shares**2 * square
        return (seen * rows).sum() - self.noise * num_features * seen.sum()
