"""Models of rows of a table.

G is the generator of CTGAN (Xu et al. 2019, section 4.4): layers whose outputs stand beside their
inputs. Its last layer makes each column as what it is: tanh for a score, Gumbel-softmax (Jang et
al. 2017) for a choice. D is a perceptron that is told the class by projection (Miyato and Koyama
2018), and judges each row by itself.
"""

from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mdgan.gan.build import Parts
from mdgan.samples.contract import SampleKind
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.layout import RowLayout

_NOISE_SIZE = 128
_NUM_BLOCKS = 2
_TEMPERATURE = 0.5
_SLOPE = 0.2
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
    """

    def __init__(self, layout: RowLayout, width: int, num_classes: int) -> None:
        super().__init__()
        self._layout = layout
        self.num_classes = num_classes or None
        sizes = [_NOISE_SIZE + num_classes + block * width for block in range(_NUM_BLOCKS + 1)]
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(size, width), nn.ReLU()) for size, _ in pairwise(sizes)
        )
        self.last = nn.Linear(sizes[-1], layout.width)

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        features, noise = z[:, :_NOISE_SIZE], z[:, _NOISE_SIZE:]
        if labels is not None and self.num_classes is not None:
            told = F.one_hot(labels, self.num_classes).to(z.dtype)
            features = torch.cat([features, told], dim=1)
        for block in self.blocks:
            features = torch.cat([block(features), features], dim=1)
        raw = self.last(features)
        shares = torch.special.ndtr(noise).clamp(_LEAST_SHARE, 1 - _LEAST_SHARE)
        gumbel = -(-shares.log()).log()
        made, begin = torch.tanh(raw), 0
        parts, done = [], 0
        for choice in self._layout.choices:
            drawn = raw[:, choice.start : choice.stop] + gumbel[:, begin : begin + len(choice)]
            parts += [made[:, done : choice.start], F.softmax(drawn / _TEMPERATURE, dim=1)]
            begin, done = begin + len(choice), choice.stop
        return torch.cat([*parts, made[:, done:]], dim=1)


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
