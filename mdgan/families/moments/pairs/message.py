"""The one message of pairs, from rows to the generator's loss.

    e(x) ∈ {0, 1}^B                          which bin x has in each of d columns: d ones
    S_n  = Σ e(x) e(x)ᵀ over rows of each class, + N(0, σ² d (d + 1) / 2)
                                             what worker n tells, once
    S    = Σ_n S_n                           with secure sums all that the server sees
    J    = Σ_y ‖p_y · E_z[q(z, y) q(z, y)ᵀ] − S_y / m‖²     what G learns from

Of the products only those of two columns are told, once for each pair, and those of a bin with
itself. In d (d + 1) / 2 of them a row is 1: adding it changes the length of S by the root of that.
q are the shares of bins that G makes of z and y. Given both, columns are independent (GEM: Liu,
Vietri and Wu 2021), so that products of shares are those of rows. m and p_y follow from S, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod, sqrt
from sys import float_info
from typing import Any, Self

import torch
from torch import Tensor, nn

from mdgan.engine.answers import AnswerForm
from mdgan.errors import BadInput
from mdgan.families.moments.contract import SUM, Lesson, NoisySums, Pieces, Statistic, descend
from mdgan.families.moments.pairs.bins import BINS, Bins, columns_of
from mdgan.families.moments.pairs.generator import NOISE_SIZE, PairsGenerator
from mdgan.gan.exact_sum import FixedPoint
from mdgan.gan.generator import Generator
from mdgan.gan.labels import Samples
from mdgan.samples.table.kind import TableKind
from mdgan.spelling import flag, key

SUMS = FixedPoint(2.0**24, 2.0**28)
"""How sums of several workers are added up, exactly: those of 2²⁸ rows and noise fit."""
MOST_CELLS = 1 << 18
_MOST_ENTRIES = 16 * MOST_CELLS  # of the matrices that sums are made in
_FINEST, _COARSEST = 16, 4
_DRAWN, _TRIES = 4096, 8  # a review's draws of z, for each group of classes, and of noise
_NOTHING = 1e-12
_HIDDEN = 4.0  # options with fewer rows than so many deviations of the noise count as one


# What workers tell.


@dataclass(frozen=True, eq=False)
class PairCounts(Statistic):
    """How often two bins come together, by class; bins follow from what all sites have learnt."""

    kind: TableKind
    fineness: int = _COARSEST
    least: float = 0.0
    bins: Bins | None = None

    @property
    def length(self) -> float:
        """The root of how many products of a row are 1."""
        number = len(self.kind.layout.places)
        return sqrt(number * (number + 1) / 2)

    def check(self) -> None:
        """Raises BadInput if a table has too many columns, however coarse their bins are."""
        each = [
            (place.score is not None) * _COARSEST + bool(place.choice)
            for place in self.kind.layout.places
        ]
        if (sum(each) ** 2 - sum(n**2 for n in each)) / 2 + sum(each) > MOST_CELLS:
            why = (
                f"pairs of its {len(each):,} columns are more than the {MOST_CELLS:,} that it tells"
            )
            way_out = f"leave some out, or give {key('features', 'random')}"
            raise BadInput(flag("algorithm", "moments"), why, way_out)

    @property
    def most_numbers(self) -> int:
        """Before bins are known, the most."""
        return MOST_CELLS if self.bins is None else self.num_cells

    def about(self) -> str:
        number = len(self.kind.layout.places)
        pairs = number * (number - 1) // 2
        if self.bins is None:
            return f"{pairs:,} pairs of columns, at most {MOST_CELLS:,} numbers, once"
        told = f"{pairs:,} pairs of columns in {self.num_cells:,} numbers, once"
        if self.fineness == _FINEST:
            return told
        return (
            f"{told}; noise and room let numbers have {self.fineness} ranges, not {_FINEST}, and "
            f"values of fewer than {self.least:,.0f} rows count as one"
        )

    @property
    def form(self) -> AnswerForm:
        """Groups of classes × products."""
        shape = (0, 0)
        if self.bins is not None:
            within = sum(len(own) ** 2 for own in self.used)
            shape = (self.bins.num_groups, (self.num_bins**2 - within) // 2 + self.num_bins)
        return AnswerForm(SUM, shape, arithmetic=SUMS)

    def fit_to(self, noise: float) -> Self:
        """Bins as fine as they may be, and no option by itself that noise would hide."""
        fineness, least = self._visible(noise * self.length), _HIDDEN * noise * self.length
        while (asked := self._with(fineness, least)).is_too_large:
            if fineness > _COARSEST:
                fineness -= 1
            else:  # in the end all options of a column are one
                least = max(2 * least, 1.0)
        return asked

    def _visible(self, noise: float) -> int:
        """Into how many bins a number is divided, so that noise hides few pairs of bins.

        Two columns' pairs then have about as many rows of a class each as noise is large.
        """
        spread = self.kind.encoding.spreads[0]
        rows = max(1.0, float((spread.options if len(spread.options) else spread.histogram).sum()))
        cells = rows / (self.kind.num_classes or 1) / max(noise, _NOTHING)
        return min(_FINEST, max(_COARSEST, ceil(sqrt(cells))))

    @property
    def num_cells(self) -> int:
        """How many numbers a worker tells."""
        return prod(self.form.shape)

    @property
    def is_too_large(self) -> bool:
        """Whether that is too much to tell, or to add up."""
        assert self.bins is not None
        entries = self.bins.num_groups * self.num_bins**2
        return self.num_cells > MOST_CELLS or entries > _MOST_ENTRIES

    def fields(self) -> dict[str, Any]:
        return {"fineness": self.fineness, "least": self.least}

    def asked(self, fields: Mapping[str, Any]) -> Self:
        fineness, least = fields.get("fineness"), fields.get("least")
        if type(fineness) is not int or not 1 < fineness <= BINS:
            raise ValueError(f"bins of {fineness!r:.20} parts")
        if not isinstance(least, int | float) or not 0 <= least <= float_info.max:
            raise ValueError(f"bins of {least!r:.20} rows at least")
        asked = self._with(fineness, float(least))
        if asked.is_too_large:
            raise ValueError(f"{asked.num_cells:,} pairs of values")
        return asked

    def put_into(self, generator: nn.Module) -> None:
        assert isinstance(generator, PairsGenerator)
        assert self.bins is not None
        generator.bins = self.bins

    def kept_in(self, generator: nn.Module) -> Self:
        assert isinstance(generator, PairsGenerator)
        bins = Bins(*(tensor.cpu() for tensor in vars(generator.bins).values()))
        return type(self)(self.kind, self.fineness, self.least, bins)

    def sums(self, pieces: Pieces) -> Tensor:
        assert self.bins is not None
        columns, (begins, ends) = columns_of(self.kind.layout), self._told.T
        total = torch.zeros(self.bins.num_groups, self.num_bins, self.num_bins, dtype=torch.float64)
        for piece, weights in pieces:
            samples = piece.images.cpu()
            groups = torch.zeros(len(piece), dtype=torch.int64)
            if piece.labels is not None and self.kind.num_classes is not None:
                groups = self.bins.class_group[piece.labels.cpu()]
            ones = torch.zeros(len(piece), self.num_bins, dtype=torch.float64)
            ones.scatter_(1, self._bin_of_entry[self.bins.entries_of(columns, samples)], 1.0)
            for group in range(len(total)):
                own = ones[groups == group]
                total[group] += (own * weights[groups == group, None].double()).T @ own
        return total[:, begins, ends]

    def lengths(self, samples: Samples) -> Tensor:
        return torch.full((len(samples),), self.length)

    def lesson(self, told: NoisySums, device: torch.device) -> "PairLesson":
        return PairLesson.of(self, told, device)

    # Bins by number.

    def _with(self, fineness: int, least: float) -> Self:
        bins = Bins.of(self.kind, fineness, least)
        return type(self)(self.kind, fineness, least, bins)

    @cached_property
    def used(self) -> list[Tensor]:
        """The entries of each column that are bins, in order."""
        assert self.bins is not None
        return self.bins.used(columns_of(self.kind.layout))

    @property
    def num_bins(self) -> int:
        """B, of all columns."""
        return sum(map(len, self.used))

    @cached_property
    def column_of_bin(self) -> Tensor:
        """The column of each bin, int64 [B]."""
        return torch.repeat_interleave(torch.tensor([*map(len, self.used)]))

    @cached_property
    def _bin_of_entry(self) -> Tensor:
        assert self.bins is not None
        found = torch.zeros(len(self.bins.group), dtype=torch.int64)
        found[torch.cat(self.used)] = torch.arange(self.num_bins)
        return found

    @cached_property
    def _told(self) -> Tensor:
        """The products that are told: both bins of each, int64 [products, 2]."""
        column, same = self.column_of_bin, torch.eye(self.num_bins, dtype=torch.bool)
        return ((column[:, None] < column[None, :]) | same).nonzero()

    def square(self, sums: Tensor) -> Tensor:
        """Sums as matrices, [groups, B, B], with 0 where nothing is told."""
        found = sums.new_zeros(len(sums), self.num_bins, self.num_bins)
        found[:, self._told[:, 0], self._told[:, 1]] = sums
        return found

    def likeness(self, sums: Tensor, others: Tensor) -> Tensor:
        """1 − half the differences of shares, for each two columns, [columns, columns].

        Of sums [groups, products]; below 0 they count as 0.
        """
        number = len(self.kind.layout.places)
        pair = self.column_of_bin[self._told] @ torch.tensor([number, 1])

        def of_pairs(values: Tensor) -> Tensor:
            return values.new_zeros(number**2).index_add(0, pair, values.sum(0))

        parts = [sums.clamp(min=0), others.clamp(min=0)]
        here, there = (part / (of_pairs(part)[pair] + _NOTHING) for part in parts)
        upper = of_pairs((here - there).abs()).view(number, number) / 2
        return 1 - upper - upper.triu(1).T


# What the server learns from.


@dataclass(frozen=True, eq=False)
class PairLesson(Lesson):
    """S / m by group of classes, float32 [groups, B, B], and what a step needs beside."""

    pairs: Tensor
    is_told: Tensor  # float32 [B, B]: 1 where a product is told
    shares: Tensor  # p_y, float32 [groups]
    class_counts: list[Tensor]  # by group, how often each class comes, int64 [K]
    offset: float  # what noise adds to J
    counts: PairCounts

    @classmethod
    def of(cls, counts: PairCounts, told: NoisySums, device: torch.device) -> "PairLesson":
        """From S with noise; no group has less than 0 rows."""
        assert counts.bins is not None
        square = counts.square(told.sums)
        # Each column's bins add up to all rows of a group: the mean has the least noise.
        num_rows = square.diagonal(dim1=1, dim2=2).sum(1) / len(counts.kind.layout.places)
        num_rows = num_rows.clamp(min=0)
        total = float(num_rows.sum()) or 1.0
        groups = counts.bins.class_group
        held = counts.kind.class_counts
        held = torch.ones(len(groups), dtype=torch.int64) if held is None else held
        in_group = [torch.where(groups == group, held, 0) for group in range(len(square))]
        alone = [torch.where(groups == group, 1, 0) for group in range(len(square))]
        is_told = counts.square(torch.ones_like(told.sums[:1]))[0]
        return cls(
            pairs=(square / total).float().to(device),
            is_told=is_told.float().to(device),
            shares=(num_rows / total).float().to(device),
            class_counts=[n if n.any() else one for n, one in zip(in_group, alone, strict=True)],
            offset=told.variance * counts.length**2 * told.sums.numel() / total**2,
            counts=counts,
        )

    def step(self, generator: Generator, batch_size: int) -> float:
        """Steps to w' = opt(w; ∇_w J); returns J before it.

        The squares are products of two halves of a batch: of one they would be too large by what
        z varies, and G would learn to vary less.
        """
        half = max(1, batch_size // (2 * len(self.pairs)))
        z, _ = generator.draw_inputs(2 * half * len(self.pairs))
        differs = self._made(generator.model, z) - self.pairs[:, None]
        loss = (differs[:, 0] * differs[:, 1] * self.is_told).sum() - self.offset
        return descend(generator, loss)

    def _made(self, model: nn.Module, z: Tensor) -> Tensor:
        """p_y · mean q qᵀ of two halves of G's batch, float32 [groups, 2, B, B].

        Which class of a group z has, says the first of its numbers that G draws bins by.
        """
        assert isinstance(model, PairsGenerator)
        half, labels = len(z) // (2 * len(self.pairs)), None
        z = z[: 2 * half * len(self.pairs)]
        if model.num_classes is not None:
            drawn = torch.special.ndtr(z[:, NOISE_SIZE].double()).view(len(self.pairs), -1)
            upto = torch.stack(self.class_counts).cumsum(1).to(z.device)
            labels = torch.searchsorted(upto.double(), drawn * upto[:, -1:], right=True).flatten()
        shares = torch.cat(model.shares(z[:, :NOISE_SIZE], labels), 1)
        shares = shares.view(len(self.pairs), 2, half, -1)
        products = shares.mT @ shares / half
        own = torch.eye(shares.shape[-1], device=shares.device)
        products = torch.where(own > 0, torch.diag_embed(shares.mean(2)), products)
        return self.shares[:, None, None, None] * products

    @torch.no_grad()
    def review(self, shown: nn.Module) -> Mapping[str, Any]:
        """How near G's rows are to what was told, and what noise alone would leave of that."""
        random, total = torch.Generator().manual_seed(0), torch.zeros_like(self.pairs)
        for _ in self.pairs:  # so that each has as many draws as all have at once
            z = torch.randn(_DRAWN, NOISE_SIZE + 1, generator=random)
            total += self._made(shown, z.to(total.device)).mean(1) / len(total)
        each = (matrices.cpu().double() for matrices in (self.pairs, total))
        told, made = (matrices[:, *self.counts._told.T] for matrices in each)
        noise = torch.randn(_TRIES, *made.shape, generator=random)
        noisy = made + noise * sqrt(self.offset / made.numel())
        found = [self.counts.likeness(one, made).round(decimals=4) for one in (told, *noisy)]
        return {
            "correlated": [place.column.name for place in self.counts.kind.layout.places],
            "made": found[0].tolist(),
            "real": torch.stack(found[1:]).mean(0).tolist(),
        }
