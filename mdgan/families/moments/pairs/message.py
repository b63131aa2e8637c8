"""Tables: the one message of each worker, pairs of bins, and the generator's loss.

    EACH WORKER n, once
    e(x) ∈ {0, 1}^B                          the bin of row x in each of d columns: d ones
    S_n  = Σ e(x) e(x)ᵀ over rows of each class, + N(0, σ² d (d + 1) / 2)     ──► to the server

    SERVER
    S    = Σ_n S_n                           all that it sees, with secure sums
    J    = Σ_y ‖p_y · E_z[q(z, y) q(z, y)ᵀ] − S_y / m‖²     G steps on J, iteration after iteration

A worker sends the products of bins of two columns, once for each pair of columns, and those of a
bin with itself. A row is 1 in d (d + 1) / 2 of these: the root of that is the sensitivity of S.
q(z, y) are the shares of bins that G makes of z and y. Given both, columns are independent (GEM:
Liu, Vietri and Wu 2021), so products of shares are those of rows. m and p_y follow from S, too.
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
from mdgan.families.moments.pairs.generator import PairsGenerator
from mdgan.gan.exact_sum import FixedPoint
from mdgan.gan.generator import Generator
from mdgan.gan.labels import Samples
from mdgan.models.table import NOISE_SIZE
from mdgan.samples.table.kind import TableKind
from mdgan.spelling import flag, key

SUMS = FixedPoint(2.0**24, 2.0**28)
"""The fixed-point arithmetic of sums over workers: exact up to 2²⁸ rows with their noise."""
MOST_CELLS = 1 << 18  # the most numbers that a worker sends
_MOST_ENTRIES = 16 * MOST_CELLS  # of the matrices in which a worker adds up
_FINEST, _COARSEST = 16, 4  # bins of a column of numbers
_DRAWN, _TRIES = 4096, 8  # draws in a review: of z for each group of classes, and of noise
_NOTHING = 1e-12
_HIDDEN = 4.0  # options with fewer rows than this many deviations of the noise count as one


# Each worker.


@dataclass(frozen=True, eq=False)
class PairCounts(Statistic):
    """How often two bins occur in one row, by class.

    The bins follow from what sites counted before training; `bins` is None until `fit_to` or
    `asked` has chosen their fineness.
    """

    kind: TableKind
    fineness: int = _COARSEST
    least: float = 0.0
    bins: Bins | None = None

    @property
    def length(self) -> float:
        """√(d (d + 1) / 2): a row has this many products that are 1."""
        number = len(self.kind.layout.places)
        return sqrt(number * (number + 1) / 2)

    def check(self) -> None:
        """Refuses, by BadInput, a table with too many columns even for the coarsest bins."""
        num_bins = [
            (place.score is not None) * _COARSEST + bool(place.choice)
            for place in self.kind.layout.places
        ]
        number, total = len(num_bins), sum(num_bins)
        if (total**2 - sum(n**2 for n in num_bins)) / 2 + total > MOST_CELLS:
            why = f"pairs of its {number:,} columns are more than the {MOST_CELLS:,} that it tells"
            way_out = f"leave some out, or give {key('features', 'random')}"
            raise BadInput(flag("algorithm", "moments"), why, way_out)

    @property
    def most_numbers(self) -> int:
        """The bound `MOST_CELLS` until bins are known."""
        return MOST_CELLS if self.bins is None else self.num_cells

    def about(self) -> str:
        number = len(self.kind.layout.places)
        pairs = number * (number - 1) // 2
        if self.bins is None:
            return f"{pairs:,} pairs of columns, at most {MOST_CELLS:,} numbers, once"
        size = f"{pairs:,} pairs of columns in {self.num_cells:,} numbers, once"
        if self.fineness == _FINEST:
            return size
        return (
            f"{size}; noise and room let numbers have {self.fineness} ranges, not {_FINEST}, and "
            f"values of fewer than {self.least:,.0f} rows count as one"
        )

    @property
    def form(self) -> AnswerForm:
        """The form of S_n: groups of classes × products."""
        shape = (0, 0)
        if self.bins is not None:
            within = sum(len(entries) ** 2 for entries in self.used)
            shape = (self.bins.num_groups, (self.num_bins**2 - within) // 2 + self.num_bins)
        return AnswerForm(SUM, shape, arithmetic=SUMS)

    def fit_to(self, noise: float) -> Self:
        """The finest bins that noise does not hide and a worker can send; rare options are one."""
        fineness, least = self._visible(noise * self.length), _HIDDEN * noise * self.length
        while (asked := self._with(fineness, least)).is_too_large:
            if fineness > _COARSEST:
                fineness -= 1
            else:  # at last all options of a column count as one
                least = max(2 * least, 1.0)
        return asked

    def _visible(self, noise: float) -> int:
        """The number of bins of a column of numbers for which noise hides few pairs of bins.

        A pair of bins then has about as many rows of a class as the deviation of the noise.
        """
        spread = self.kind.encoding.spreads[0]
        rows = max(1.0, float((spread.options if len(spread.options) else spread.histogram).sum()))
        cells = rows / (self.kind.num_classes or 1) / max(noise, _NOTHING)
        return min(_FINEST, max(_COARSEST, ceil(sqrt(cells))))

    @property
    def num_cells(self) -> int:
        """How many numbers a worker sends."""
        return prod(self.form.shape)

    @property
    def is_too_large(self) -> bool:
        """Whether S_n is too large to send, or the matrices too large to add up in."""
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
        columns, (begins, ends) = columns_of(self.kind.layout), self._products.T
        total = torch.zeros(self.bins.num_groups, self.num_bins, self.num_bins, dtype=torch.float64)
        for piece, weights in pieces:
            samples = piece.images.cpu()
            groups = torch.zeros(len(piece), dtype=torch.int64)
            if piece.labels is not None and self.kind.num_classes is not None:
                groups = self.bins.class_group[piece.labels.cpu()]
            ones = torch.zeros(len(piece), self.num_bins, dtype=torch.float64)
            ones.scatter_(1, self._bin_of_entry[self.bins.entries_of(columns, samples)], 1.0)
            for group in range(len(total)):
                rows = ones[groups == group]
                total[group] += (rows * weights[groups == group, None].double()).T @ rows
        return total[:, begins, ends]

    def lengths(self, samples: Samples) -> Tensor:
        return torch.full((len(samples),), self.length)

    def lesson(self, noisy: NoisySums, device: torch.device) -> "PairLesson":
        return PairLesson.of(self, noisy, device)

    # The B bins of all columns, by number.

    def _with(self, fineness: int, least: float) -> Self:
        bins = Bins.of(self.kind, fineness, least)
        return type(self)(self.kind, fineness, least, bins)

    @cached_property
    def used(self) -> list[Tensor]:
        """By column, the entries that are bins (see `bins.py`), in order."""
        assert self.bins is not None
        return self.bins.used(columns_of(self.kind.layout))

    @property
    def num_bins(self) -> int:
        """B, the number of bins of all columns."""
        return sum(map(len, self.used))

    @cached_property
    def column_of_bin(self) -> Tensor:
        """The column of each bin, int64 [B]."""
        return torch.repeat_interleave(torch.tensor([*map(len, self.used)]))

    @cached_property
    def _bin_of_entry(self) -> Tensor:
        assert self.bins is not None
        bin_of_entry = torch.zeros(len(self.bins.group), dtype=torch.int64)
        bin_of_entry[torch.cat(self.used)] = torch.arange(self.num_bins)
        return bin_of_entry

    @cached_property
    def _products(self) -> Tensor:
        """Both bins of each product that workers send, int64 [products, 2]."""
        column, same = self.column_of_bin, torch.eye(self.num_bins, dtype=torch.bool)
        return ((column[:, None] < column[None, :]) | same).nonzero()

    def square(self, sums: Tensor) -> Tensor:
        """Sums, [groups, products], as matrices, [groups, B, B]; 0 for products not sent."""
        matrices = sums.new_zeros(len(sums), self.num_bins, self.num_bins)
        matrices[:, self._products[:, 0], self._products[:, 1]] = sums
        return matrices

    def likeness(self, sums: Tensor, others: Tensor) -> Tensor:
        """By pair of columns, 1 − half the summed differences of shares, [columns, columns].

        Args:
            sums, others: [groups, products]; numbers below 0 count as 0.
        """
        number = len(self.kind.layout.places)
        pair = self.column_of_bin[self._products] @ torch.tensor([number, 1])

        def of_pairs(values: Tensor) -> Tensor:
            return values.new_zeros(number**2).index_add(0, pair, values.sum(0))

        parts = [sums.clamp(min=0), others.clamp(min=0)]
        shares, other_shares = (part / (of_pairs(part)[pair] + _NOTHING) for part in parts)
        upper = of_pairs((shares - other_shares).abs()).view(number, number) / 2
        return 1 - upper - upper.triu(1).T


# The server.


@dataclass(frozen=True, eq=False)
class PairLesson(Lesson):
    """S / m, and all else that a step of G needs."""

    pairs: Tensor  # S / m, float32 [groups, B, B]
    is_sent: Tensor  # float32 [B, B]: 1 where workers send a product, else 0
    shares: Tensor  # p_y, float32 [groups]
    class_counts: list[Tensor]  # by group, how many rows each class has, int64 [K]
    offset: float  # what the noise in S adds to J on average
    counts: PairCounts

    @classmethod
    def of(cls, counts: PairCounts, noisy: NoisySums, device: torch.device) -> "PairLesson":
        """Makes it of S with noise; a group with fewer than 0 rows counts as empty."""
        assert counts.bins is not None
        square = counts.square(noisy.sums)
        # The bins of each column add up to all rows of a group: the mean has the least noise.
        num_rows = square.diagonal(dim1=1, dim2=2).sum(1) / len(counts.kind.layout.places)
        num_rows = num_rows.clamp(min=0)
        total = float(num_rows.sum()) or 1.0
        groups = counts.bins.class_group
        held = counts.kind.class_counts
        held = torch.ones(len(groups), dtype=torch.int64) if held is None else held
        in_group = [torch.where(groups == group, held, 0) for group in range(len(square))]
        alone = [torch.where(groups == group, 1, 0) for group in range(len(square))]
        is_sent = counts.square(torch.ones_like(noisy.sums[:1]))[0]
        return cls(
            pairs=(square / total).float().to(device),
            is_sent=is_sent.float().to(device),
            shares=(num_rows / total).float().to(device),
            class_counts=[n if n.any() else one for n, one in zip(in_group, alone, strict=True)],
            offset=noisy.variance * counts.length**2 * noisy.sums.numel() / total**2,
            counts=counts,
        )

    def step(self, generator: Generator, batch_size: int) -> float:
        """Steps to w' = opt(w; ∇_w J); returns J before it.

        J multiplies the differences of two halves of a batch. The square of those of one batch
        would be too large by their variance over z, and G would learn to vary less.
        """
        half = max(1, batch_size // (2 * len(self.pairs)))
        z, _ = generator.draw_inputs(2 * half * len(self.pairs))
        differs = self._made(generator.model, z) - self.pairs[:, None]
        loss = (differs[:, 0] * differs[:, 1] * self.is_sent).sum() - self.offset
        return descend(generator, loss)

    def _made(self, model: nn.Module, z: Tensor) -> Tensor:
        """p_y · mean q qᵀ of two halves of G's batch, float32 [groups, 2, B, B].

        The first number of z by which G draws bins also decides which class of its group y is.
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
        diagonal = torch.eye(shares.shape[-1], device=shares.device)
        products = torch.where(diagonal > 0, torch.diag_embed(shares.mean(2)), products)
        return self.shares[:, None, None, None] * products

    @torch.no_grad()
    def review(self, shown: nn.Module) -> Mapping[str, Any]:
        """How near G's rows are to S, and how near to themselves they would be with its noise."""
        random, total = torch.Generator().manual_seed(0), torch.zeros_like(self.pairs)
        for _ in self.pairs:  # each group gets `_DRAWN` draws in all
            z = torch.randn(_DRAWN, NOISE_SIZE + 1, generator=random)
            total += self._made(shown, z.to(total.device)).mean(1) / len(total)
        both = (matrices.cpu().double() for matrices in (self.pairs, total))
        real, made = (matrices[:, *self.counts._products.T] for matrices in both)
        noise = torch.randn(_TRIES, *made.shape, generator=random)
        noisy = made + noise * sqrt(self.offset / made.numel())
        likeness = [self.counts.likeness(one, made).round(decimals=4) for one in (real, *noisy)]
        return {
            "correlated": [place.column.name for place in self.counts.kind.layout.places],
            "made": likeness[0].tolist(),
            "real": torch.stack(likeness[1:]).mean(0).tolist(),
        }
