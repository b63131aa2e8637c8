"""Chooses a run's models, from the dataset file or an architecture, and tries that they work."""

from dataclasses import replace
from fnmatch import filter as filter_names
from functools import partial

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
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from mdgan.gan.randomness import RandomState
from mdgan.gan.regularizers.contract import REAL, regularized
from mdgan.gan.regularizers.registry import make_regularizers
from mdgan.models.blocks import MinibatchDiscrimination, with_group_norm
from mdgan.models.check import check_models, compares_samples, tells_classes
from mdgan.models.registry import architecture, architectures
from mdgan.models.settings import ARCHITECTURES, FILE
from mdgan.privacy.canaries import most_canaries
from mdgan.privacy.per_sample import per_sample_gradients, still
from mdgan.spelling import flag, key


def models_of(settings: RunSettings, dataset: DatasetFile) -> Models:
    """Makes the functions that build G and D of a run, with its normalisation and regularisers."""
    builder = registry.algorithm(settings.algorithm).build()
    models = builder.models(settings, _choose_models(settings, dataset), dataset.kind)
    if settings.models.norm == "group":
        models = replace(models, discriminator=partial(with_group_norm, models.discriminator))
    if regularizers := make_regularizers(settings.training.regularizers).all:
        built = partial(regularized, models.discriminator, regularizers, models.source)
        models = replace(models, discriminator=built)
    return models


def _choose_models(settings: RunSettings, dataset: DatasetFile) -> Models:
    """Takes the dataset file's models or those of the named architecture; BadInput if none fit."""
    if settings.models.architecture == FILE:
        if settings.models.width is not None:
            why = f"the models of {dataset.path} have their own"
            way_out = f"leave it out, or name an {flag('architecture')}"
            raise BadInput(flag("width", settings.models.width), why, way_out)
        return dataset.models
    entry = architecture(settings.models.architecture)
    if entry.conditional and dataset.num_classes is None:
        others = [other.name for other in architectures() if not other.conditional]
        why = f"its models are told the class of each sample, but {dataset.path} does not say how "
        why += "many classes there are"
        way_out = f"add NUM_CLASSES to it, or use {' or '.join(others)}"
        raise BadInput(flag("architecture", entry.name), why, way_out)
    takes_classes = entry.conditional or entry.fits == "kinds"
    num_classes = (dataset.num_classes or 0) if takes_classes else 0
    width = settings.models.width or entry.width
    try:
        return entry.make(dataset.shape, num_classes, width, dataset.kind)
    except ValueError as error:
        why = f"{error}, as {flag('dataset', dataset.name)} has them"
        way_out = f"use another one, or {FILE}"
        raise BadInput(flag("architecture", entry.name), why, way_out) from error


def tried_models(settings: RunSettings, dataset: DatasetFile) -> Models:
    """The same as `models_of`, but builds the models once and refuses those that do not work."""
    chosen = _choose_models(settings, dataset)
    registry.algorithm(settings.algorithm).build().check_kind(settings, dataset.kind)
    # mdgan's own architectures are tested, and trying the large ones would take minutes.
    if settings.models.architecture not in ARCHITECTURES:
        check_models(chosen, dataset.num_classes)
    if not dataset.kind.num_counts:  # otherwise all sites count their classes before training
        _check_labels(settings, chosen)
    for regularizer in make_regularizers(settings.training.regularizers).all:
        regularizer.check_shape(dataset.shape, dataset.name)
    models = models_of(settings, dataset)
    build_model(models.discriminator, 0)
    _check_exact_layers(settings, models)
    check_discriminator(settings, models)
    if settings.training.arithmetic.merge_halves and compares_samples(models):
        why = f"the discriminator of {models.source} judges a sample by the others in its batch "
        why += "(BatchNorm, mini-batch discrimination), which must be real alone or generated alone"
        raise BadInput(flag("merge_halves"), why, "leave it out")
    return models


def _check_exact_layers(settings: RunSettings, models: Models) -> None:
    """Checks that every pattern of `exact_layers` names a layer of G or D."""
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
            why = f"no layer of {models.source} is called so"
            raise BadInput(key("exact_layers", pattern), why, known)


def _check_labels(settings: RunSettings, models: Models) -> None:
    """Refuses settings about classes that the models do not know or the workers keep secret."""
    if settings.training.class_weight is not None and not tells_classes(models):
        why = f"the discriminator of {models.source} tells no classes"
        way_out = "leave it out, or return (logits, logits of classes)"
        raise BadInput(key("class_weight", f"{settings.training.class_weight:g}"), why, way_out)
    if settings.training.label_prior != "data":
        return
    if settings.privacy.keeps_classes:
        why = f"with {settings.privacy.dp_flag} workers keep their classes"
        way_out = f"add {flag('dp_disclose', 'classes')}; or leave it out"
        raise BadInput(key("label_prior", "data"), why, way_out)
    if num_classes_of(build_model(models.generator, 0)) is None:
        why = f"the models of {models.source} are not conditional"
        raise BadInput(key("label_prior", "data"), why, "leave it out, or give both num_classes")


_MIXING: dict[type[nn.Module], str] = {
    nn.modules.batchnorm._BatchNorm: f"give {flag('norm', 'group')}",
    MinibatchDiscrimination: "use an architecture without, such as acgan",
}
"""Layers that judge a sample by the others of its batch, each with the way out."""
_NUM_TRIED = 3
_CLOSE = 1e-4


def check_discriminator(settings: RunSettings, models: Models) -> None:
    """With noise in every step, checks that D judges and learns from each sample by itself."""
    if not settings.privacy.draws_poisson or settings.tells_once:  # the latter trains no D
        return
    dp_flag = settings.privacy.poisson_flag
    model, source = build_model(models.discriminator, 0), models.source
    for name, layer in model.named_modules():
        for kind, way_out in _MIXING.items():
            if isinstance(layer, kind):
                judges = f"layer {name} ({type(layer).__name__}) of the discriminator of {source}"
                why = f"{judges} judges a sample by the others of its batch"
                raise BadInput(dp_flag, why, way_out)
    if compares_samples(models):
        why = f"the discriminator of {source} judges a sample by the others of its batch"
        raise BadInput(dp_flag, why, "replace the layer that does")
    _check_gradients(dp_flag, settings, model, models)
    most = most_canaries(num_weights := num_parameters(model))
    if (canaries := settings.privacy.audit_canaries) > most:
        why = f"the discriminator of {source} has {num_weights:,} weights, enough for {most:,}"
        raise BadInput(flag("audit_canaries", canaries), why, "give at most that")


def _check_gradients(dp_flag: str, settings: RunSettings, model: nn.Module, models: Models) -> None:
    """Checks that torch.func can take gradients of single samples, without changing buffers."""
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
        with users_code(f"{dp_flag}: {what} by torch.func"), still(model):
            before = {name: buffer.clone() for name, buffer in model.named_buffers()}
            per_sample_gradients(model, rules, real, penalties)
            model(real.images, *(() if labels is None else (labels,)))
    for name, buffer in model.named_buffers():
        if not torch.equal(buffer, before[name]):
            why = f"buffer {name} of the discriminator of {models.source} changes with the samples "
            why += "that it sees, and would travel without noise"
            raise BadInput(dp_flag, why, "replace the layer")
    _check_mean(dp_flag, settings)


def _check_mean(dp_flag: str, settings: RunSettings) -> None:
    """Checks that the loss of real samples is a mean over them, with one term for each."""
    term = DISCRIMINATOR_LOSSES[settings.training.discriminator_loss].real
    logits = torch.tensor([-1.0, 0.5, 2.0])
    alone = torch.stack([term(logit.view(1)) for logit in logits]).mean()
    if not torch.allclose(term(logits), alone, atol=_CLOSE):
        loss = flag("discriminator_loss", settings.training.discriminator_loss)
        why = f"{loss} compares the samples of a batch"
        raise BadInput(dp_flag, why, "use one that is a mean over them, such as bce")
