"""How much arithmetic a discriminator takes, counted without doing it."""

from math import inf

import torch
from torch.utils.flop_counter import FlopCounterMode

from mdgan.gan.build import Models
from mdgan.gan.labels import call, num_classes_of
from mdgan.gan.randomness import RandomState


def judging_operations(models: Models, batch_size: int) -> float:
    """Floating-point operations of D's forward pass on a batch of b samples.

    Returns:
        0 or more; infinite if the model cannot be run without numbers.
    """
    with RandomState(0, torch.device("cpu")).in_place(), torch.device("meta"), torch.no_grad():
        try:
            model = models.discriminator().train()
            labels = None
            if num_classes_of(model) is not None:
                labels = torch.zeros(batch_size, dtype=torch.int64)
            with FlopCounterMode(display=False) as counter:
                call(model, torch.zeros(batch_size, *models.shape), labels)
        except Exception:  # the user's own code may raise anything
            return inf
    return float(counter.get_total_flops())
