"""Checks that a discriminator judges each sample by itself, as differential privacy needs it."""

import torch
from torch import nn

from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput, reason_of
from mdgan.gan.build import Models, build_model, num_parameters
from mdgan.gan.discriminator_learner import LearningRules
from mdgan.gan.labels import Samples, num_classes_of
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from mdgan.gan.randomness import RandomState
from mdgan.gan.regularizers.contract import REAL
from mdgan.gan.regularizers.registry import make_regularizers
from mdgan.models.blocks import MinibatchDiscrimination
from mdgan.models.check import compares_samples
from mdgan.privacy.canaries import most_canaries
from mdgan.privacy.per_sample import per_sample_gradients, still

_MIXING: dict[type[nn.Module], str] = {
    nn.modules.batchnorm._BatchNorm: "give --norm group",
    MinibatchDiscrimination: "use an architecture without, such as acgan",
}
"""Layers that judge a sample by the others of its batch, and the way out."""
_NUM_TRIED = 3
_CLOSE = 1e-4


def check_discriminator(settings: RunSettings, models: Models) -> None:
    """Checks that D judges each sample by itself, and that its gradient can be taken alone."""
    if not settings.privacy.draws_poisson:
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
        try:
            with still(model):
                before = {name: buffer.clone() for name, buffer in model.named_buffers()}
                per_sample_gradients(model, rules, real, penalties)
                model(real.images, *(() if labels is None else (labels,)))
        except Exception as error:  # the user's own code may raise anything
            raise BadInput(
                f"{asked}: the discriminator of {models.source} has no gradients of single "
                f"samples by torch.func: {type(error).__name__}: {reason_of(error)}"
            ) from error
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
