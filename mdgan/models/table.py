"""Models for rows of a table.

G is the generator of CTGAN (Xu et al. 2019, section 4.4): each layer's output is joined to its
input. The last layer makes numbers by tanh, and choices by Gumbel-softmax (Jang et al. 2017). D is
a perceptron that learns the class by projection (Miyato and Koyama 2018), and judges each row by
itself.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mdgan.gan.build import Parts
from mdgan.gan.labels import even_labels, label_counts
from mdgan.gan.randomness import generator_for
from mdgan.samples.contract import SampleKind
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.layout import RowLayout

NOISE_SIZE = 128
_NUM_BLOCKS = 2
_TEMPERATURE = 0.5
_SLOPE = 0.2
_NUM_TRIED, _MOST_TRIED_VALUES = 1 << 14, 1 << 22
_MOST_ROUNDS, _CLOSE, _MOST_SHIFT, _LEAST_MADE, _STEPS = 50, 0.01, 30.0, 1e-200, 256
_LEAST_SHARE = 1e-6  # keeps uniform numbers away from 0 and 1, where Gumbel noise is infinite


def make(kind: SampleKind, num_classes: int, width: int) -> Parts:
    """Returns the models for a table; see `Architecture.parts`."""
    if not isinstance(kind, TableKind):
        raise ValueError(f"makes rows of tables, not {kind.name}")
    layout = kind.layout
    z_dim = NOISE_SIZE + sum(map(len, layout.choices))
    generator = partial(TableGenerator, layout, width, num_classes)
    return generator, partial(TableDiscriminator, layout.width, width, num_classes), z_dim


class JoinedLayers(nn.Module):
    """G for rows: blocks that join their output to their input, and a last linear layer.

    Args:
        num_classes: 0 without classes.
        width: of each block.
    """

    def __init__(self, num_classes: int, width: int, num_outputs: int) -> None:
        super().__init__()
        self.num_classes = num_classes or None
        sizes = [NOISE_SIZE + num_classes + block * width for block in range(_NUM_BLOCKS + 1)]
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(size, width), nn.ReLU()) for size, _ in pairwise(sizes)
        )
        self.last = nn.Linear(sizes[-1], num_outputs)

    def _features(self, features: Tensor, labels: Tensor | None) -> Tensor:
        """The inputs of the last layer, from the first 128 numbers of z."""
        if labels is not None and self.num_classes is not None:
            one_hot = F.one_hot(labels, self.num_classes).to(features.dtype)
            features = torch.cat([features, one_hot], dim=1)
        for block in self.blocks:
            features = torch.cat([block(features), features], dim=1)
        return features


class TableGenerator(JoinedLayers):
    """From z [b, 128 + number of options], and maybe classes y [b], to rows [b, layout's width].

    The numbers of z after the first 128 are the noise that draws choices: z alone decides a row.

    Args:
        width: of each block.

    Attributes:
        shift: float32 [layout's width], added to the logits of choices; see `meet`.
    """

    shift: Tensor | None

    def __init__(self, layout: RowLayout, width: int, num_classes: int) -> None:
        super().__init__(num_classes, width, layout.width)
        self._layout = layout
        self.register_buffer("shift", None, persistent=False)

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        noise = z[:, NOISE_SIZE:]
        raw = self.last(self._features(z[:, :NOISE_SIZE], labels))
        if self.shift is not None:
            raw = raw + self.shift
        shares = torch.special.ndtr(noise).clamp(_LEAST_SHARE, 1 - _LEAST_SHARE)
        gumbel = -(-shares.log()).log()
        scores, begin = torch.tanh(raw), 0
        parts, end = [], 0
        for choice in self._layout.choices:
            drawn = raw[:, choice.start : choice.stop] + gumbel[:, begin : begin + len(choice)]
            parts += [scores[:, end : choice.start], F.softmax(drawn / _TEMPERATURE, dim=1)]
            begin, end = begin + len(choice), choice.stop
        return torch.cat([*parts, scores[:, end:]], dim=1)

    @torch.no_grad()
    def meet(self, shares: Tensor, class_counts: Sequence[int]) -> None:
        """Shifts the logits of some options until generated rows have them at given shares.

        Each shift is the same for all rows: which rows have an option rather than others stays as
        G learnt it. Shifts are no weights. Without shifts, samples keep all bits.

        Args:
            shares: float64 [layout's width], of all rows; 0 for options without a shift.
            class_counts: how often each class occurs in these rows.
        """
        self.shift = None
        if not shares.any():
            return
        device, labels = self.last.weight.device, None
        if self.num_classes is not None:
            counts = label_counts(self.num_classes, [class_counts])
            labels = even_labels(counts, _NUM_TRIED).to(device)
        noise = torch.randn(_NUM_TRIED, NOISE_SIZE, generator=generator_for(0, "shares"))
        features, shift = self._features(noise.to(device), labels), torch.zeros(len(shares))
        for choice in self._layout.choices:
            options = slice(choice.start, choice.stop)
            targets = shares[options]
            if not (targets > 0).any():
                continue
            inputs = features[: max(1024, _MOST_TRIED_VALUES // len(choice))]
            raw = F.linear(inputs, self.last.weight[options], self.last.bias[options])
            shift[options] = _shift_to(raw.double().cpu(), targets).float()
        self.shift = shift.to(device)


def _shift_to(raw: Tensor, targets: Tensor) -> Tensor:
    """Finds a shift of logits [n, options] so that the mean softmax meets all targets above 0."""
    rare, shift = targets > 0, torch.zeros_like(targets)
    for _ in range(_MOST_ROUNDS):
        present = F.softmax(raw + shift, dim=1).mean(0)[rare]
        missing = (targets[rare] / present.clamp(min=_LEAST_MADE)).log()
        if missing.abs().max() < _CLOSE:
            break
        shift[rare] = (shift[rare] + missing).clamp(-_MOST_SHIFT, _MOST_SHIFT)
    return (shift * _STEPS).round() / _STEPS  # so that all processors find the same


class TableDiscriminator(nn.Module):
    """From rows [b, size], and classes y [b] if there are any, to logits [b, 1]."""

    def __init__(self, size: int, width: int, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes or None
        self.features = nn.Sequential(
            nn.Linear(size, width),
            nn.LeakyReLU(_SLOPE),
            nn.Linear(width, width),
            nn.LeakyReLU(_SLOPE),
        )
        self.last = nn.Linear(width, 1)
        self.of_class = nn.Embedding(num_classes, width) if num_classes else None

    def forward(self, rows: Tensor, labels: Tensor | None = None) -> Tensor:
        features = self.features(rows)
        logits: Tensor = self.last(features)
        if labels is not None and self.of_class is not None:
            logits = logits + (self.of_class(labels) * features).sum(1, keepdim=True)
        return logits
