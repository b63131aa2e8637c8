"""The models of a run: those of the dataset file or of an architecture, tried and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import filter as filter_names
from functools import partial
from typing import Any

import torch
from torch import nn

from mdgan.data.dataset_file import DatasetFile
from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput, users_code
from mdgan.families import registry
from mdgan.gan.arithmetic import layers_of
from mdgan.gan.build import Models, build_model, num_parameters
from mdgan.gan.discriminator_learner import LearningRules
from mdgan.gan.labels import Samples, num_classes_of
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES, check_losses
from mdgan.gan.optimizer_settings import OPTIMIZER_NAMES
from mdgan.gan.optimizers import kept_by_registered
from mdgan.gan.randomness import RandomState
from mdgan.gan.regularizers.contract import REAL, regularized
from mdgan.gan.regularizers.registry import SETTINGS_OF_MODELS, make_regularizers
from mdgan.models.blocks import MinibatchDiscrimination, with_group_norm
from mdgan.models.check import check_models, compares_samples, tells_classes
from mdgan.models.registry import architecture, architectures
from mdgan.models.settings import ARCHITECTURES, FILE, ModelSettings
from mdgan.privacy.canaries import most_canaries
from mdgan.privacy.per_sample import per_sample_gradients, still
from mdgan.settings.layers import merged

_OF_MODELS = {
    *ModelSettings.names(),
    *("generator_optimizer", "discriminator_optimizer"),
    *("generator_loss", "discriminator_loss", "local_steps"),
    *SETTINGS_OF_MODELS,
}
"""Settings of which the best values depend on the models, beside those that algorithms name."""


def settings_with_defaults(
    layers: Sequence[Mapping[str, Any]], dataset: DatasetFile
) -> RunSettings:
    """The settings of a run, with the defaults of the data set and of the architecture."""
    settings = registry.read_settings(layers, default_settings(layers, dataset))
    check_losses(settings.training)
    for network in ("generator", "discriminator"):
        if (policy := settings.training.policy(network)).inner in OPTIMIZER_NAMES.registered:
            kept_by_registered(policy)
    return settings


def default_settings(layers: Sequence[Mapping[str, Any]], dataset: DatasetFile) -> dict[str, Any]:
    """What holds where neither the user nor the algorithm has a value.

    An architecture that the user names replaces all that the file's DEFAULTS say of models. If the
    DEFAULTS name it themselves, they come before the architecture's.
    """
    named = [layer["architecture"] for layer in layers if layer.get("architecture") is not None]
    name = named[0] if named else dataset.defaults.get("architecture", FILE)
    own = {} if name == FILE else architecture(name).defaults
    if not named:
        return merged([dataset.defaults, own], registry.declared_settings().values())
    replaced = ModelSettings.names() if name == FILE else _OF_MODELS | registry.settings_of_models()
    return {**{n: v for n, v in dataset.defaults.items() if n not in replaced}, **own}


def models_of(settings: RunSettings, dataset: DatasetFile) -> Models:
    """What makes the models of a run."""
    models = _chosen(settings, dataset)
    if settings.models.norm == "group":
        models = replace(models, discriminator=partial(with_group_norm, models.discriminator))
    if those := make_regularizers(settings.training.regularizers).all:
        built = partial(regularized, models.discriminator, those, models.source)
        models = replace(models, discriminator=built)
    return models


def _chosen(settings: RunSettings, dataset: DatasetFile) -> Models:
    if settings.models.architecture == FILE:
        if settings.models.width is not None:
            raise BadInput(
                f"--width {settings.models.width}: the models of {dataset.path} have their own; "
                "leave it out, or name an --architecture"
            )
        return dataset.models
    entry = architecture(settings.models.architecture)
    if entry.conditional and dataset.num_classes is None:
        others = [other.name for other in architectures() if not other.conditional]
        raise BadInput(
            f"--architecture {entry.name}: its models are told the class of each sample, but "
            f"{dataset.path} does not say how many classes there are; add NUM_CLASSES to it, or "
            f"use {' or '.join(others)}"
        )
    is_told = entry.conditional or entry.fits == "kinds"
    num_classes = (dataset.num_classes or 0) if is_told else 0
    width = settings.models.width or entry.width
    try:
        return entry.make(dataset.shape, num_classes, width, dataset.kind)
    except ValueError as error:
        raise BadInput(
            f"--architecture {entry.name}: {error}, as --dataset {dataset.name} has them; use "
            f"another one, or {FILE}"
        ) from error


def tried_models(settings: RunSettings, dataset: DatasetFile) -> Models:
    """The models of a run, after trying that they work."""
    chosen = _chosen(settings, dataset)
    registry.algorithm(settings.algorithm).build().check_kind(settings, dataset.kind)
    # Those are tested, and the large take minutes.
    if settings.models.architecture not in ARCHITECTURES:
        check_models(chosen, dataset.num_classes)
    if not dataset.kind.num_counts:  # else all sites count their classes before training
        _check_labels(settings, chosen)
    for regularizer in make_regularizers(settings.training.regularizers).all:
        regularizer.check_shape(dataset.shape, dataset.name)
    models = models_of(settings, dataset)
    build_model(models.discriminator, 0)
    _check_exact_layers(settings, models)
    check_discriminator(settings, models)
    if settings.training.arithmetic.merge_halves and compares_samples(models):
        raise BadInput(
            f"--merge-halves: the discriminator of {models.source} judges a sample by the others "
            "in its batch (BatchNorm, mini-batch discrimination), which must be real alone or "
            "generated alone; leave it out"
        )
    return models


def _check_exact_layers(settings: RunSettings, models: Models) -> None:
    """Checks that every pattern names a layer."""
    patterns = settings.training.arithmetic.exact_patterns()
    if not patterns:
        return
    names = {
        network: list(layers_of(build_model(build, 0)))
        for network, build in (("G", models.generator), ("D", models.discriminator))
    }
    for pattern in patterns:
        if not any(filter_names(of, pattern) for of in names.values()):
            known = "; ".join(f"{network} has {', '.join(of)}" for network, of in names.items())
            raise BadInput(
                f"--set exact_layers={pattern}: no layer of {models.source} is called so; {known}"
            )


def _check_labels(settings: RunSettings, models: Models) -> None:
    """Checks that nothing is asked of classes that the models do not know."""
    if settings.training.class_weight is not None and not tells_classes(models):
        raise BadInput(
            f"--set class_weight={settings.training.class_weight:g}: the discriminator of "
            f"{models.source} tells no classes; leave it out, or return (logits, logits of classes)"
        )
    if settings.training.label_prior != "data":
        return
    if settings.privacy.keeps_classes:
        raise BadInput(
            f"--set label_prior=data: with {settings.privacy.dp_flag} workers keep their classes; "
            "add --dp-disclose classes; or leave it out"
        )
    if num_classes_of(build_model(models.generator, 0)) is None:
        raise BadInput(
            f"--set label_prior=data: the models of {models.source} are not conditional; leave it "
            "out, or give both num_classes"
        )


_MIXING: dict[type[nn.Module], str] = {
    nn.modules.batchnorm._BatchNorm: "give --norm group",
    MinibatchDiscrimination: "use an architecture without, such as acgan",
}
"""Layers that judge a sample by the others of its batch, and the way out."""
_NUM_TRIED = 3
_CLOSE = 1e-4


def check_discriminator(settings: RunSettings, models: Models) -> None:
    """Checks that D judges each sample by itself, and that its gradient can be taken alone."""
    if not settings.privacy.draws_poisson or settings.tells_once:  # then no D is trained
        return
    asked = settings.privacy.poisson_flag
    model, source = build_model(models.discriminator, 0), models.source
    for name, layer in model.named_modules():
        for kind, way_out in _MIXING.items():
            if isinstance(layer, kind):
                raise BadInput(
                    f"{asked}: layer {name} ({type(layer).__name__}) of the discriminator of "
                    f"{source} judges a sample by the others of its batch; {way_out}"
                )
    if compares_samples(models):
        raise BadInput(
            f"{asked}: the discriminator of {source} judges a sample by the others of its batch; "
            "replace the layer that does"
        )
    _check_gradients(asked, settings, model, models)
    most = most_canaries(num_weights := num_parameters(model))
    if settings.privacy.audit_canaries > most:
        raise BadInput(
            f"--audit-canaries {settings.privacy.audit_canaries}: the discriminator of {source} "
            f"has {num_weights:,} weights, enough for {most:,}; give at most that"
        )


def _check_gradients(asked: str, settings: RunSettings, model: nn.Module, models: Models) -> None:
    """Takes gradients of single samples: their mean must be that of the batch."""
    rules = LearningRules(
        _NUM_TRIED,
        1,
        DISCRIMINATOR_LOSSES[settings.training.discriminator_loss],
        GENERATOR_LOSSES[settings.training.generator_loss],
    )
    penalties = make_regularizers(settings.training.regularizers).at(REAL)
    num_classes = num_classes_of(model)
    labels = None if num_classes is None else torch.arange(_NUM_TRIED) % num_classes
    with RandomState(0, torch.device("cpu")).in_place():
        real = Samples(torch.rand(_NUM_TRIED, *models.shape) * 2 - 1, labels)
        what = f"the discriminator of {models.source} has no gradients of single samples"
        with users_code(f"{asked}: {what} by torch.func"), still(model):
            before = {name: buffer.clone() for name, buffer in model.named_buffers()}
            per_sample_gradients(model, rules, real, penalties)
            model(real.images, *(() if labels is None else (labels,)))
    for name, buffer in model.named_buffers():
        if not torch.equal(buffer, before[name]):
            raise BadInput(
                f"{asked}: buffer {name} of the discriminator of {models.source} changes with the "
                "samples that it sees, and would travel without noise; replace the layer"
            )
    _check_mean(asked, settings)


def _check_mean(asked: str, settings: RunSettings) -> None:
    """The loss of real samples must be a mean over them; a comparing one has no single terms."""
    term = DISCRIMINATOR_LOSSES[settings.training.discriminator_loss].real
    logits = torch.tensor([-1.0, 0.5, 2.0])
    alone = torch.stack([term(logit.view(1)) for logit in logits]).mean()
    if not torch.allclose(term(logits), alone, atol=_CLOSE):
        raise BadInput(
            f"{asked}: --discriminator-loss {settings.training.discriminator_loss} compares the "
            "samples of a batch; use one that is a mean over them, such as bce"
        )
