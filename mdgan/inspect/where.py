"""Draws samples that fulfil conditions: others are drawn, too, and left out."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mdgan.errors import BadInput
from mdgan.gan.randomness import derive_seed
from mdgan.gan.sampling import draw_samples
from mdgan.inspect.trained import TrainedRun

_AT_ONCE = 4096
_MOST_DRAWN = 1_000_000


def draw_where(
    trained: TrainedRun, num_samples: int, seed: int, label: int | None, conditions: Sequence[str]
) -> tuple[Tensor, Tensor | None]:
    """Samples that fulfil all conditions, float32 [n, *shape], and their classes, int64 [n].

    Args:
        label: of all of them; None for the class that conditions name, or else for all.

    Raises:
        BadInput: of a million samples, or of 100 times as many as are asked for, too few fulfil
            them.
    """
    where = trained.dataset.kind.where(conditions)
    wanted = where.label if label is None else label
    found: list[tuple[Tensor, Tensor | None]] = []
    drawn = kept = 0
    while kept < num_samples:
        if drawn >= max(_MOST_DRAWN, 100 * num_samples):
            raise BadInput(
                f"--where {' --where '.join(conditions)}: holds for {kept:,} of {drawn:,} samples; "
                "ask for fewer with -n, or for less"
            )
        labels = trained.labels(_AT_ONCE, wanted)
        of_piece = derive_seed(seed, "where", drawn)
        samples = draw_samples(trained.generator, _AT_ONCE, trained.models.z_dim, of_piece, labels)
        places = where.keeps(samples, labels).nonzero().flatten()
        found.append((samples[places], None if labels is None else labels[places]))
        drawn += _AT_ONCE
        kept += len(places)
    labels_kept = [own for _, own in found if own is not None]
    classes = torch.cat(labels_kept)[:num_samples] if labels_kept else None
    return torch.cat([samples for samples, _ in found])[:num_samples], classes
