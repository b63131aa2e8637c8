"""Tries the models of a run before anything is started."""

import torch
from torch import Tensor

from mdgan.data.readable import warn_once
from mdgan.errors import BadInput, reason_of
from mdgan.gan.build import Build, Models, build_model
from mdgan.gan.randomness import RandomState

_NUM_WEIGHTS = 8


@torch.no_grad()
def check_models(models: Models) -> None:
    """Runs both models once on a batch of two; warns of a discriminator that gives no logits.

    Raises:
        BadInput: a model fails, or its output is not of SHAPE, or not one logit a sample.
    """
    z = torch.zeros(2, models.z_dim)
    samples = _try(models, "Generator", models.generator, z, f"[b, Z_DIM={models.z_dim}]")
    if tuple(samples.shape) != (2, *models.shape):
        raise BadInput(
            f"{models.source}: Generator gives {list(samples.shape)} for 2 vectors of noise, "
            f"SHAPE says {[2, *models.shape]}"
        )
    logits = _try(models, "Discriminator", models.discriminator, samples, f"[b, *{models.shape}]")
    if logits.numel() != 2 or logits.shape[0] != 2:
        raise BadInput(
            f"{models.source}: Discriminator gives {list(logits.shape)} for 2 samples, "
            "must give one logit a sample"
        )
    if _is_squashed(models):
        warn_once(
            f"{models.source}: Discriminator gives values from 0 to 1 with any weights, as after a "
            "sigmoid, but the losses expect logits and would hardly learn; remove its last sigmoid"
        )


@torch.no_grad()
def _is_squashed(models: Models) -> bool:
    """Whether D's outputs on noise stay within [0, 1] with several random weights.

    Weights as they are at the start would not tell: logits may lie within [0, 1] by chance.
    """
    for seed in range(_NUM_WEIGHTS):
        model = build_model(models.discriminator, seed)
        with RandomState(seed, torch.device("cpu")).in_place():
            model(torch.zeros(2, *models.shape))  # lazy layers make their weights
            for weights in model.parameters():
                weights.add_(torch.randn(weights.shape))
            logits = model(torch.rand(2, *models.shape) * 2 - 1)
        if not (logits.ge(0) & logits.le(1)).all():
            return False
    return True


def _try(models: Models, name: str, kind: Build, given: Tensor, shape: str) -> Tensor:
    try:
        model, another = build_model(kind, 0), build_model(kind, 0)
        if model is another:
            raise BadInput(
                f"{models.source}: {name} gives the same model twice; each worker needs its own, "
                "so make a new one in every call"
            )
        places = {str(weights.device) for weights in model.parameters()} - {"cpu"}
        if places:
            raise BadInput(
                f"{models.source}: {name} makes its weights on {places.pop()}; make them on the "
                "CPU, --device says where they go"
            )
        output = model(given)
    except BadInput:
        raise
    except Exception as error:  # the user's own code may raise anything; show the user what it said
        raise BadInput(
            f"{models.source}: {name} fails on a batch {shape}: {type(error).__name__}: "
            f"{reason_of(error)}"
        ) from error
    if not isinstance(output, Tensor):
        raise BadInput(f"{models.source}: {name} returns {type(output).__name__}, not a tensor")
    return output
