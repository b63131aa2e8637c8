"""What clients send of what they find: their models, or what training has changed."""

from collections.abc import Callable
from functools import partial
from math import fsum, inf, isfinite, sqrt

import torch
from torch import Tensor

from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.model_vector import ModelVector

Found = tuple[Tensor, Tensor]
"""Models after training, float32 `ModelVector.shape`, and J_disc and J_gen, float32 [2]."""

Sent = Callable[[Tensor, Found], Found]
"""From the models that a client began with, and what it found, to what it sends in their place."""

_A_HAIR = 2.0**-20
"""By so much updates are cut shorter than C: rounding to float32 leaves none longer."""


def sent_by(settings: FederatedSettings, vector: ModelVector) -> Sent:
    """What clients send in a run.

    Args:
        settings: of the run.
        vector: of both models.
    """
    if settings.rounds.sampling == "poisson":
        return partial(
            update,
            num_weight_blocks=vector.num_weight_blocks,
            clip=settings.privacy.update_clip,
            tells_losses=settings.privacy.discloses_losses,
        )
    return models if str(settings.wire.models) == "fp32" else differences


def models(begun: Tensor, found: Found) -> Found:
    """The models as they are."""
    del begun
    return found


def differences(begun: Tensor, found: Found) -> Found:
    """What training has changed."""
    return found[0] - begun, found[1]


def update(
    begun: Tensor,
    found: Found,
    *,
    num_weight_blocks: int,
    clip: float = inf,
    tells_losses: bool = True,
) -> Found:
    """What training has changed in the weights, cut to a norm (McMahan et al. 2018, Algorithm 1).

    Buffers stay as they were: those that count batches would outweigh everything else, and noise
    would make variances negative. The server finds its own; see `statistics.py`.

    Args:
        begun: see `Sent`.
        found: see `Sent`.
        num_weight_blocks: see `ModelVector`.
        clip: C; infinite to cut nothing.
        tells_losses: whether losses may be sent; they are 0 if not.
    """
    vector, losses = found
    changed = torch.zeros_like(vector)
    torch.sub(
        vector[:num_weight_blocks], begun[:num_weight_blocks], out=changed[:num_weight_blocks]
    )
    return cut(changed, clip), losses if tells_losses else torch.zeros_like(losses)


def cut(changed: Tensor, clip: float) -> Tensor:
    """An update, or the one in its direction whose norm is C if it is longer.

    One with NaN or Inf counts as none. Refused, it would take with it what others have added to it.

    Args:
        changed: float32 [blocks, values].
        clip: C.
    """
    # Each row by itself: then the norm does not depend on the number of threads.
    norm = sqrt(fsum(changed.double().square().sum(1).tolist()))
    if not isfinite(norm):
        return torch.zeros_like(changed)
    if norm <= clip:
        return changed
    return changed.double().mul_(clip / norm * (1 - _A_HAIR)).float()
