"""`mdgan.register`: decorators that name losses, optimizers, architectures and scaling rules.

If a dataset file uses them, every command that loads the file finds the names, for example by
`--generator-loss NAME`. If a program uses them, `mdgan.train` writes the objects into its run.
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

_Made = TypeVar("_Made", bound=Callable[..., Any])


def generator_loss(name: str) -> Callable[[_Made], _Made]:
    """Names a function from logits, of any shape, to J_gen, the scalar mean over the batch."""

    def register(term: _Made) -> _Made:
        GENERATOR_LOSSES[name] = _add_name(GENERATOR_LOSS_NAMES, name, term)
        return term

    return register


def discriminator_loss(name: str) -> Callable[[_Made], _Made]:
    """Names a class whose static methods `real` and `fake` are the two terms of J_disc."""

    def register(terms: _Made) -> _Made:
        functions: dict[str, Term] = {}
        for term in ("real", "fake"):
            functions[term] = getattr(terms, term, None)  # type: ignore[assignment] # checked next
            if not callable(functions[term]):
                way_out = "give a class with the static methods real(logits) and fake(logits)"
                raise BadInput(f"discriminator loss {name!r}", f"has no term {term!r}", way_out)
        _add_name(DISCRIMINATOR_LOSS_NAMES, name, terms)
        DISCRIMINATOR_LOSSES[name] = DiscriminatorLoss(**functions)
        return terms

    return register


def optimizer(name: str) -> Callable[[_Made], _Made]:
    """Names a class, or a function, that makes a `torch.optim.Optimizer`.

    mdgan calls it with the parameters, `lr`, `betas`, `weight_decay`, and with `eps` if the user
    gives one. Its `state` by parameter moves in swaps and is saved if it is floating-point tensors
    of one number or of the parameter's shape. `step` in `param_groups` moves and is saved as well.
    """
    return lambda make: _add_name(OPTIMIZER_NAMES, name, make)


def architecture(
    name: str, *, width: int, defaults: Mapping[str, Any] | None = None, conditional: bool = False
) -> Callable[[_Made], _Made]:
    """Names a function that makes the models for a shape of samples.

    mdgan calls it with (C, H, W), the number of classes (0 if not conditional) and the width. It
    returns a function that makes G, one that makes D, and the length of G's input. If it has no
    models for the shape, it raises ValueError with the reason.

    Args:
        width: the width if the user gives no `--width`.
        defaults: settings that suit the models. Those that the user gives override them.
        conditional: whether the models get the class of each sample.
    """

    def register(make: _Made) -> _Made:
        _add_name(ARCHITECTURE_NAMES, name, make)
        suited = modern(defaults or {}, f"architecture {name!r}")
        registry.register(Architecture(name, make, width, defaults=suited, conditional=conditional))
        return make

    return register


def scaling_rule(name: str) -> Callable[[_Made], _Made]:
    """Names a function that computes the factor of learning rates, for `--lr-scaling`.

    mdgan calls it with k, if an iteration has k times the samples that the rates are meant for. It
    returns a finite number above 0, always the same one for the same k.
    """
    return lambda rule: _add_name(SCALING_RULE_NAMES, name, rule)


def registered_objects(settings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Finds the registered objects that settings name, by the names in the program's code."""
    objects = {}
    for layer in settings:
        for setting, names in NAMES_BY_SETTING.items():
            value = parts_of(str(layer.get(setting)))[0].removeprefix(LOOKAHEAD)
            if value in names.registered:
                registered = names.registered[value]
                objects[registered.__name__] = registered
    return objects


NAMES_BY_SETTING = {
    "generator_loss": GENERATOR_LOSS_NAMES,
    "discriminator_loss": DISCRIMINATOR_LOSS_NAMES,
    "generator_optimizer": OPTIMIZER_NAMES,
    "discriminator_optimizer": OPTIMIZER_NAMES,
    "architecture": ARCHITECTURE_NAMES,
    "lr_scaling": SCALING_RULE_NAMES,
}


def _add_name(names: Names, name: str, thing: _Made) -> _Made:
    if not callable(thing):
        raise BadInput(f"{names.kind} {name!r}", f"{type(thing).__name__} cannot be called")
    names.add(name, thing)
    return thing
