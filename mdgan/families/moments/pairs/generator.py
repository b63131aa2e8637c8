"""A generator of tables that gives a probability to each entry (see `bins.py`) of each column.

From noise and a class it makes shares of the entries of each column; given both, columns are
independent (GEM: Liu, Vietri and Wu 2021, "Iterative Methods for Private Synthetic Data", section
4.2). z has one more number for each column, by which the generator draws an entry from the shares.
"""

from math import inf

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mdgan.families.moments.pairs.bins import Bins, columns_of
from mdgan.models.table import NOISE_SIZE, JoinedLayers
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.spread import score_at

WIDTH = 256
_INSIDE = 1e-7  # the least distance of shares from 0 and 1
_NOTHING = 1e-12


class PairsGenerator(JoinedLayers):
    """Makes rows, [b, layout's width], of z, [b, 128 + columns], and classes y, [b], if any.

    Args:
        kind: the table's columns and classes.
        width: of each block of the network.
    """

    edges: Tensor
    group: Tensor
    ends: Tensor
    class_group: Tensor

    def __init__(self, kind: TableKind, width: int = WIDTH) -> None:
        columns = columns_of(kind.layout)
        super().__init__(kind.num_classes or 0, width, columns[-1].entries.stop)
        self.kind, self.columns = kind, columns
        for name, tensor in vars(Bins.coarsest(kind.layout, kind.num_classes)).items():
            self.register_buffer(name, tensor)
        self.register_load_state_dict_post_hook(_check)  # type: ignore[no-untyped-call] # torch's

    @property
    def bins(self) -> Bins:
        """The bins whose shares G makes; they are buffers of G, saved with its weights."""
        return Bins(self.edges, self.group, self.ends, self.class_group)

    @bins.setter
    def bins(self, bins: Bins) -> None:
        for name, tensor in vars(bins).items():
            getattr(self, name).copy_(tensor)

    def shares(self, noise: Tensor, labels: Tensor | None = None) -> list[Tensor]:
        """The shares of the used entries of each column, float32 [b, entries of a column].

        Args:
            noise: float32 [b, 128].
            labels: the classes, int64 [b], if there are any.
        """
        used = self.bins.used(self.columns)
        entries = torch.cat(used)
        features = self._features(noise, labels)
        logits = F.linear(features, self.last.weight[entries], self.last.bias[entries])
        parts = torch.split(logits, [*map(len, used)], dim=1)
        return [F.softmax(part, dim=1) for part in parts]

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        # Of all entries, used or not: an exported program's shapes must not depend on values.
        logits = self.last(self._features(z[:, :NOISE_SIZE], labels))
        parts = torch.split(logits, [len(column.entries) for column in self.columns], dim=1)
        drawn = torch.special.ndtr(z[:, NOISE_SIZE:].double()).clamp(_INSIDE, 1 - _INSIDE)
        rows = z.new_zeros(z.shape[0], self.kind.layout.width)  # of any number, when exported
        by_column = zip(self.columns, self.bins.is_used(self.columns), parts, strict=True)
        for (column, is_used, part), share in zip(by_column, drawn.unbind(1), strict=True):
            shares = F.softmax(torch.where(is_used, part, -inf), dim=1)
            entry, within = _drawn(shares.double(), share)
            chosen, place = column.entries.start + entry, column.place
            if place.score is not None:
                low, high = self.edges[chosen].unbind(1)
                score = score_at((low + within * (high - low)).clamp(_INSIDE, 1 - _INSIDE))
                rows[:, place.score] = torch.where(high > low, score, 0.0).float()
            if column.options:
                option = self._option(chosen, within, column.options)
                rows[:, slice(place.choice.start, place.choice.stop)] = F.one_hot(
                    option, len(place.choice)
                ).float()
        return rows

    def _option(self, chosen: Tensor, within: Tensor, options: range) -> Tensor:
        """The option of each drawn entry, int64 [b]; options that count as one by their shares."""
        numbers = slice(options.start, options.stop)
        counts_as = self.group[numbers] == chosen[:, None]
        return (counts_as & (self.ends[numbers] >= within[:, None])).byte().argmax(1)


def _check(model: nn.Module, _keys: object) -> None:
    """After weights are read: RuntimeError if a column then has no entry to draw."""
    assert isinstance(model, PairsGenerator)
    if not all(map(len, model.bins.used(model.columns))):
        raise RuntimeError("a column has no bins")


def _drawn(shares: Tensor, number: Tensor) -> tuple[Tensor, Tensor]:
    """Draws an entry for each row, int64 [b], and a uniform number, [b], for a place within it.

    Args:
        shares: float64 [b, entries].
        number: uniform, float64 [b].
    """
    upto = shares.cumsum(1)
    upto = upto / upto[:, -1:]
    entry = (upto < number[:, None]).sum(1)
    before = F.pad(upto, (1, 0)).gather(1, entry[:, None])[:, 0]
    share = (upto.gather(1, entry[:, None])[:, 0] - before).clamp(min=_NOTHING)
    return entry, ((number - before) / share).clamp(0, 1)
