"""Tries the models of a run before its processes start, and refuses models that cannot train."""

from typing import Any

import torch
from torch import Tensor, nn

from mdgan.errors import BadInput, place_in_words, users_code, warn_once
from mdgan.gan import independence
from mdgan.gan.build import Build, Models, build_model
from mdgan.gan.labels import call, num_classes_of
from mdgan.gan.losses import as_output
from mdgan.gan.randomness import RandomState
from mdgan.spelling import Mention, flag

_NUM_WEIGHTS = 8


@torch.no_grad()
def check_models(models: Models, num_classes: int | None = None) -> None:
    """Runs both models once on a batch of two; warns of a discriminator that gives no logits."""
    generator = _build(models, "Generator", models.generator)
    discriminator = _build(models, "Discriminator", models.discriminator)
    labels = _labels_for(models, generator, discriminator, num_classes=num_classes)
    z = torch.zeros(2, models.z_dim)
    z_dim = Mention(f"Z_DIM={models.z_dim}", f"z_dim={models.z_dim}")
    samples = _try(models, "Generator", generator, z, labels, f"[b, {z_dim}]")
    if not isinstance(samples, Tensor):
        raise BadInput(models.source, f"Generator returns {type(samples).__name__}, not a tensor")
    if tuple(samples.shape) != (2, *models.shape):
        raise BadInput(
            models.source,
            f"Generator gives {list(samples.shape)} for 2 vectors of noise, SHAPE says "
            f"{[2, *models.shape]}{_place_of(generator)}",
        )
    shape = f"[b, *{models.shape}]"
    output = _try(models, "Discriminator", discriminator, samples, labels, shape)
    logits = _logits(models, output, num_classes_of(discriminator))
    if logits.numel() != 2 or logits.shape[0] != 2:
        raise BadInput(
            models.source,
            f"Discriminator gives {list(logits.shape)} for 2 samples, must give one logit a sample"
            f"{_place_of(discriminator)}",
        )
    if _is_squashed(models, labels):
        warn_once(
            f"{models.source}: Discriminator gives values from 0 to 1 with any weights, as after a "
            "sigmoid, but the losses expect logits and would hardly learn; remove its last sigmoid"
        )


def _place_of(model: nn.Module) -> str:
    """The line of the user's `forward`, such as ` (own.py:7)`; empty if the user wrote none."""
    code = getattr(type(model).forward, "__code__", None)
    is_own = code is not None and not type(model).__module__.startswith(("torch.", "mdgan."))
    return place_in_words(code.co_filename, code.co_firstlineno) if is_own and code else ""


def _labels_for(
    models: Models, generator: nn.Module, discriminator: nn.Module, num_classes: int | None
) -> Tensor | None:
    """Two labels, if the models are conditional; refuses models that differ in that."""
    k_of_g, k_of_d = num_classes_of(generator), num_classes_of(discriminator)
    if k_of_g is None and k_of_d is None:
        return None
    numbers = " and ".join(
        f"{name} has {'no num_classes' if k is None else f'num_classes = {k!r:.80}'}"
        for name, k in (("Generator", k_of_g), ("Discriminator", k_of_d))
    )
    if type(k_of_g) is not int or type(k_of_d) is not int or k_of_g < 1:
        raise BadInput(models.source, numbers, "both must be the same whole number, or neither")
    if k_of_g != k_of_d:
        raise BadInput(models.source, numbers, "both must have the same")
    if k_of_g != num_classes:
        says = "says none" if num_classes is None else f"says NUM_CLASSES = {num_classes}"
        why = f"both models have num_classes = {k_of_g}, but the dataset file {says}"
        way_out = f"it must say NUM_CLASSES = {k_of_g}, and its labels must be 0-{k_of_g - 1}"
        raise BadInput(models.source, why, way_out)
    return torch.zeros(2, dtype=torch.int64)


def _logits(models: Models, output: object, num_classes: int | None) -> Tensor:
    """D's logits; checks the logits of classes if D returns them, too."""
    if num_classes is not None and isinstance(output, tuple) and len(output) == 2:
        output, classes = output
        if not isinstance(classes, Tensor) or tuple(classes.shape) != (2, num_classes):
            shape = list(classes.shape) if isinstance(classes, Tensor) else type(classes).__name__
            raise BadInput(
                models.source,
                f"Discriminator gives {shape} for the classes of 2 samples, must give "
                f"{[2, num_classes]}",
            )
    if not isinstance(output, Tensor):
        kind = type(output).__name__
        raise BadInput(models.source, f"Discriminator returns {kind}, not a tensor")
    return output


@torch.no_grad()
def tells_classes(models: Models) -> bool:
    """Whether D also returns logits of classes."""
    discriminator = build_model(models.discriminator, 0)
    labels = None if num_classes_of(discriminator) is None else torch.zeros(2, dtype=torch.int64)
    output = call(discriminator, torch.zeros(2, *models.shape), labels)
    return as_output(output).classes is not None


def compares_samples(models: Models) -> bool:
    """Whether D's verdict on a sample depends on other samples of its batch in training mode."""
    discriminator, num_samples = build_model(models.discriminator, 0), 4
    num_classes = num_classes_of(discriminator)
    labels = None if num_classes is None else torch.arange(num_samples) % num_classes

    def judge(samples: Tensor) -> list[Tensor]:
        verdict = as_output(call(discriminator, samples, labels))
        return [part for part in verdict if part is not None]

    with RandomState(0, torch.device("cpu")).in_place():
        samples = independence.near_samples(num_samples, models.shape)
        return independence.compares_samples(judge, samples, range(num_samples))


@torch.no_grad()
def _is_squashed(models: Models, labels: Tensor | None) -> bool:
    """Whether D's outputs on noise stay within [0, 1] with several random weights."""
    for seed in range(_NUM_WEIGHTS):
        model = build_model(models.discriminator, seed)
        with RandomState(seed, torch.device("cpu")).in_place():
            call(model, torch.zeros(2, *models.shape), labels)  # lazy layers make their weights
            for weights in model.parameters():
                weights.add_(torch.randn(weights.shape))
            output = call(model, torch.rand(2, *models.shape) * 2 - 1, labels)
        logits = as_output(output).logits
        if not (logits.ge(0) & logits.le(1)).all():
            return False
    return True


def _build(models: Models, name: str, kind: Build) -> nn.Module:
    with users_code(f"{models.source}: {name} fails when it is made"):
        model, another = build_model(kind, 0), build_model(kind, 0)
    if not isinstance(model, nn.Module):
        raise BadInput(models.source, f"{name} gives {type(model).__name__}, not an nn.Module")
    if model is another:
        way_out = "each worker needs its own, so make a new one in every call"
        raise BadInput(models.source, f"{name} gives the same model twice", way_out)
    places = {str(weights.device) for weights in model.parameters()} - {"cpu"}
    if places:
        way_out = f"make them on the CPU, {flag('device')} says where they go"
        raise BadInput(models.source, f"{name} makes its weights on {places.pop()}", way_out)
    return model


def _try(
    models: Models, name: str, model: nn.Module, z_or_x: Tensor, labels: Tensor | None, shape: str
) -> Any:
    beside = "" if labels is None else " with labels [b]"
    with users_code(f"{models.source}: {name} fails on a batch {shape}{beside}"):
        return call(model, z_or_x, labels)
