"""Losses, optimizers, architectures and scaling rules of your own: decorators that name them.

Where the dataset file has them, `--generator-loss NAME` and the other flags find them, for every
command that loads it. Where a program has them, `mdgan.train` writes them into its run.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from mdgan.errors import BadInput
from mdgan.gan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES, DiscriminatorLoss, Term
from mdgan.gan.optimizer_settings import LOOKAHEAD, OPTIMIZER_NAMES, SCALING_RULE_NAMES
from mdgan.gan.settings import DISCRIMINATOR_LOSS_NAMES, GENERATOR_LOSS_NAMES
from mdgan.models import registry
from mdgan.models.registry import Architecture
from mdgan.models.settings import ARCHITECTURE_NAMES
from mdgan.settings.layers import parts_of
from mdgan.settings.names import Names
from mdgan.settings.retired import modern

Made = TypeVar("Made", bound=Callable[..., Any])


def generator_loss(name: str) -> Callable[[Made], Made]:
    """Names a function from logits, any shape, to J_gen, a scalar: the mean over the batch."""

    def register(term: Made) -> Made:
        GENERATOR_LOSSES[name] = _add(GENERATOR_LOSS_NAMES, name, term)
        return term

    return register


def discriminator_loss(name: str) -> Callable[[Made], Made]:
    """Names a class whose static methods `real` and `fake` are the two terms of J_disc."""

    def register(terms: Made) -> Made:
        found: dict[str, Term] = {}
        for which in ("real", "fake"):
            found[which] = getattr(terms, which, None)  # type: ignore[assignment] # checked next
            if not callable(found[which]):
                way_out = "give a class with the static methods real(logits) and fake(logits)"
                raise BadInput(f"discriminator loss {name!r}", f"has no term {which!r}", way_out)
        _add(DISCRIMINATOR_LOSS_NAMES, name, terms)
        DISCRIMINATOR_LOSSES[name] = DiscriminatorLoss(**found)
        return terms

    return register


def optimizer(name: str) -> Callable[[Made], Made]:
    """Names a class, or a function, that makes a `torch.optim.Optimizer`.

    It is called with the parameters, `lr`, `betas`, `weight_decay`, and with `eps` if the user
    gives one. What it keeps in `state` by parameter, as floating-point tensors of one number or of
    the parameter's shape, moves in swaps and is saved, and so does `step` in `param_groups`.
    """
    return lambda make: _add(OPTIMIZER_NAMES, name, make)


def architecture(
    name: str, *, width: int, defaults: Mapping[str, Any] | None = None, conditional: bool = False
) -> Callable[[Made], Made]:
    """Names a function that makes the models for a shape of samples.

    It is called with (C, H, W), the number of classes (0 if not conditional) and the width,
    and returns three things: what makes G, what makes D, and the length of G's input. It raises
    ValueError with the reason where it cannot.

    Args:
        width: without `--width`.
        defaults: settings that suit the models, where the user gives none.
        conditional: whether the models are told the class of each sample.
    """

    def register(make: Made) -> Made:
        _add(ARCHITECTURE_NAMES, name, make)
        suited = modern(defaults or {}, f"architecture {name!r}")
        registry.register(Architecture(name, make, width, defaults=suited, conditional=conditional))
        return make

    return register


def scaling_rule(name: str) -> Callable[[Made], Made]:
    """Names a function that says what learning rates are multiplied by, for `--lr-scaling`.

    It is called with k, for k times the samples that rates are given for, and returns a finite
    number above 0: always the same one for the same k.
    """
    return lambda rule: _add(SCALING_RULE_NAMES, name, rule)


def things_named(settings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What this program has registered and settings name, by the names in its code."""
    found = {}
    for layer in settings:
        for setting, names in ALL_NAMES.items():
            value = parts_of(str(layer.get(setting)))[0].removeprefix(LOOKAHEAD)
            if value in names.registered:
                thing = names.registered[value]
                found[thing.__name__] = thing
    return found


ALL_NAMES = {
    "generator_loss": GENERATOR_LOSS_NAMES,
    "discriminator_loss": DISCRIMINATOR_LOSS_NAMES,
    "generator_optimizer": OPTIMIZER_NAMES,
    "discriminator_optimizer": OPTIMIZER_NAMES,
    "architecture": ARCHITECTURE_NAMES,
    "lr_scaling": SCALING_RULE_NAMES,
}


def _add(names: Names, name: str, thing: Made) -> Made:
    if not callable(thing):
        raise BadInput(f"{names.kind} {name!r}", f"{type(thing).__name__} cannot be called")
    names.add(name, thing)
    return thing
