"""Models of rows of a table.

G is the generator of CTGAN (Xu et al. 2019, section 4.4): layers whose outputs stand beside their
inputs. Its last layer makes each column as what it is: tanh for a score, Gumbel-softmax (Jang et
al. 2017) for a choice. D is a perceptron that is told the class by projection (Miyato and Koyama
2018), and judges each row by itself.
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

_NOISE_SIZE = 128
_NUM_BLOCKS = 2
_TEMPERATURE = 0.5
_SLOPE = 0.2
_NUM_TRIED, _MOST_TRIED_VALUES = 1 << 14, 1 << 22
_MOST_ROUNDS, _CLOSE, _MOST_SHIFT, _LEAST_MADE, _STEPS = 50, 0.01, 30.0, 1e-200, 256
_LEAST_SHARE = 1e-6  # of a uniform number, away from 0 and 1, where Gumbel noise is infinite


def make(kind: SampleKind, num_classes: int, width: int) -> Parts:
    """The models for a table; see `Architecture.parts`."""
    if not isinstance(kind, TableKind):
        raise ValueError(f"makes rows of tables, not {kind.name}")
    layout = kind.layout
    z_dim = _NOISE_SIZE + sum(map(len, layout.choices))
    generator = partial(TableGenerator, layout, width, num_classes)
    return generator, partial(TableDiscriminator, layout.width, width, num_classes), z_dim


class TableGenerator(nn.Module):
    """From z [b, 128 + number of options], and maybe classes y [b], to rows [b, layout's width].

    What of z stands behind the first 128 numbers is the noise by which choices are drawn, so that a
    row follows from z alone.

    Args:
        width: of each block.

    Attributes:
        shift: float32 [layout's width], added to what choices are drawn by; see `meet`.
    """

    shift: Tensor | None

    def __init__(self, layout: RowLayout, width: int, num_classes: int) -> None:
        super().__init__()
        self._layout = layout
        self.num_classes = num_classes or None
        sizes = [_NOISE_SIZE + num_classes + block * width for block in range(_NUM_BLOCKS + 1)]
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(size, width), nn.ReLU()) for size, _ in pairwise(sizes)
        )
        self.last = nn.Linear(sizes[-1], layout.width)
        self.register_buffer("shift", None, persistent=False)

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        noise = z[:, _NOISE_SIZE:]
        raw = self.last(self._features(z[:, :_NOISE_SIZE], labels))
        if self.shift is not None:
            raw = raw + self.shift
        shares = torch.special.ndtr(noise).clamp(_LEAST_SHARE, 1 - _LEAST_SHARE)
        gumbel = -(-shares.log()).log()
        made, begin = torch.tanh(raw), 0
        parts, done = [], 0
        for choice in self._layout.choices:
            drawn = raw[:, choice.start : choice.stop] + gumbel[:, begin : begin + len(choice)]
            parts += [made[:, done : choice.start], F.softmax(drawn / _TEMPERATURE, dim=1)]
            begin, done = begin + len(choice), choice.stop
        return torch.cat([*parts, made[:, done:]], dim=1)

    def _features(self, features: Tensor, labels: Tensor | None) -> Tensor:
        """What the last layer is given, from the first 128 numbers of z."""
        if labels is not None and self.num_classes is not None:
            told = F.one_hot(labels, self.num_classes).to(features.dtype)
            features = torch.cat([features, told], dim=1)
        for block in self.blocks:
            features = torch.cat([block(features), features], dim=1)
        return features

    @torch.no_grad()
    def meet(self, shares: Tensor, class_counts: Sequence[int]) -> None:
        """Shifts what some options are drawn by until they have the shares that are told.

        Each shift is the same for all rows: in which rows an option comes rather than in others
        stays as it was learnt. Shifts are no weights. Without any, samples keep all bits.

        Args:
            shares: float64 [layout's width], of all rows; 0 for what stays as it is.
            class_counts: how often each class comes in these rows.
        """
        self.shift = None
        if not shares.any():
            return
        device, labels = self.last.weight.device, None
        if self.num_classes is not None:
            counts = label_counts(self.num_classes, [class_counts])
            labels = even_labels(counts, _NUM_TRIED).to(device)
        noise = torch.randn(_NUM_TRIED, _NOISE_SIZE, generator=generator_for(0, "shares"))
        features, shift = self._features(noise.to(device), labels), torch.zeros(len(shares))
        for choice in self._layout.choices:
            told, own = shares[choice.start : choice.stop], slice(choice.start, choice.stop)
            rare = told > 0
            if not rare.any():
                continue
            some = features[: max(1024, _MOST_TRIED_VALUES // len(choice))]
            raw = F.linear(some, self.last.weight[own], self.last.bias[own])
            shift[own] = _shift_to(raw.double().cpu(), told).float()
        self.shift = shift.to(device)


def _shift_to(raw: Tensor, told: Tensor) -> Tensor:
    """What to add to logits [n, options] until the mean of their softmax is as told, where > 0."""
    rare, shift = told > 0, torch.zeros_like(told)
    for _ in range(_MOST_ROUNDS):
        made = F.softmax(raw + shift, dim=1).mean(0)[rare]
        lacks = (told[rare] / made.clamp(min=_LEAST_MADE)).log()
        if lacks.abs().max() < _CLOSE:
            break
        shift[rare] = (shift[rare] + lacks).clamp(-_MOST_SHIFT, _MOST_SHIFT)
    return (shift * _STEPS).round() / _STEPS  # so that other processors find the same


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
