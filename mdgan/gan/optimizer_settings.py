"""How each of the two networks is optimized: its own optimizer, schedule and clipping."""

from dataclasses import dataclass, field
from math import inf

from mdgan.errors import BadInput
from mdgan.gan.schedules import SCHEDULES, Schedule
from mdgan.settings.declare import Settings, flag, number, one_of, setting, whole
from mdgan.settings.names import Names

OPTIMIZERS = ("adam", "radam", "adabelief", "lars", "lamb", "sgd")
LOOKAHEAD = "lookahead:"
"""Before the name of another optimizer, which then takes the steps within a window."""

_WITH_MOMENTUM_ALONE = ("lars", "sgd")
OPTIMIZER_NAMES = Names("optimizer", *OPTIMIZERS, prefix=LOOKAHEAD)


@dataclass(frozen=True)
class Policy:
    """The optimization policy of one network (ParaGAN, section 5.2).

    Attributes:
        optimizer: one of `OPTIMIZER_NAMES`, or `lookahead:` and one of them.
        learning_rate: before the schedule.
        betas: β1, which is the momentum of `lars` and `sgd`, and β2.
        epsilon: ε; None for the optimizer's own.
        weight_decay: λ, as the optimizer's paper uses it.
        clip_norm: the largest L2 norm of the gradient of all weights; None for any.
        schedule: what part of the learning rate an iteration has.
    """

    optimizer: str = "adam"
    learning_rate: float = 2e-4
    betas: tuple[float, float] = (0.5, 0.999)
    epsilon: float | None = None
    weight_decay: float = 0.0
    clip_norm: float | None = None
    schedule: Schedule = field(default_factory=Schedule)

    @property
    def inner(self) -> str:
        """The optimizer that takes single steps, one of `OPTIMIZER_NAMES`."""
        return self.optimizer.removeprefix(LOOKAHEAD)

    @property
    def looks_ahead(self) -> bool:
        """Whether the steps are those of a Lookahead window."""
        return self.optimizer.startswith(LOOKAHEAD)


_OPTIMIZER = OPTIMIZER_NAMES.setting()
_STEP_SIZE = number(lambda lr: 0 < lr < inf, "must be above 0")
_STEP_SIZE_NAMES = ("--learning-rate", "--lr")
_DECAY = number(lambda beta: 0 <= beta < 1, "must be in [0, 1)")
_EPSILON = number(lambda epsilon: 0 < epsilon < inf, "must be above 0, or steps divide by 0")
_WEIGHT_DECAY = number(lambda decay: 0 <= decay < inf, "must be 0 or more")
_CLIP = number(lambda norm: 0 < norm < inf, "must be above 0; leave it out to clip nothing")
_OPTIMIZER_HELP = "adam, radam, adabelief, lars, lamb, sgd, or lookahead:NAME with one of them"
_EPSILON_TEXT = "the optimizer's own"


class OptimizerSettings(Settings, group="models"):
    """Optimizers, learning rates and clipping; None means what the default text says."""

    generator_lr: float = setting(
        2e-4,
        "Learning rate of the generator.",
        _STEP_SIZE,
        metavar="LR",
        other_names=_STEP_SIZE_NAMES,
    )
    discriminator_lr: float = setting(
        2e-4,
        "Learning rate of discriminators.",
        _STEP_SIZE,
        metavar="LR",
        other_names=_STEP_SIZE_NAMES,
    )
    beta1: float = setting(
        0.5,
        "Decay rate of first moments; the momentum of sgd and lars.",
        _DECAY,
        metavar="B",
        symbol="β1",
    )
    beta2: float = setting(0.999, "Decay rate of second moments.", _DECAY, metavar="B", symbol="β2")
    generator_optimizer: str | None = setting(
        None,
        f"Optimizer of the generator: {_OPTIMIZER_HELP}.",
        _OPTIMIZER,
        metavar="NAME",
        default_text="adam",
        other_names=("--optimizer", "--optim"),
    )
    discriminator_optimizer: str | None = setting(
        None,
        "Optimizer of discriminators: one of the same names.",
        _OPTIMIZER,
        metavar="NAME",
        default_text="adam",
        other_names=("--optimizer", "--optim"),
    )
    generator_beta1: float | None = setting(
        None, "β1 of the generator alone.", _DECAY, metavar="B", default_text="--beta1"
    )
    discriminator_beta1: float | None = setting(
        None, "β1 of discriminators alone.", _DECAY, metavar="B", default_text="--beta1"
    )
    generator_beta2: float | None = setting(
        None, "β2 of the generator alone.", _DECAY, metavar="B", default_text="--beta2"
    )
    discriminator_beta2: float | None = setting(
        None, "β2 of discriminators alone.", _DECAY, metavar="B", default_text="--beta2"
    )
    generator_epsilon: float | None = setting(
        None, "ε of the generator.", _EPSILON, metavar="E", default_text=_EPSILON_TEXT
    )
    discriminator_epsilon: float | None = setting(
        None, "ε of discriminators.", _EPSILON, metavar="E", default_text=_EPSILON_TEXT
    )
    generator_weight_decay: float | None = setting(
        None, "Weight decay of the generator.", _WEIGHT_DECAY, metavar="D", default_text="0"
    )
    discriminator_weight_decay: float | None = setting(
        None, "Weight decay of discriminators.", _WEIGHT_DECAY, metavar="D", default_text="0"
    )
    generator_schedule: str | None = setting(
        None,
        "How the generator's learning rate falls until the last iteration.",
        one_of(*SCHEDULES),
        default_text="constant",
    )
    discriminator_schedule: str | None = setting(
        None,
        "How the discriminators' learning rate falls until the last iteration.",
        one_of(*SCHEDULES),
        default_text="constant",
    )
    generator_warmup_iterations: int | None = setting(
        None,
        "First iterations, in which the generator's learning rate rises.",
        whole(0),
        metavar="N",
        default_text="0",
    )
    discriminator_warmup_iterations: int | None = setting(
        None,
        "First iterations, in which the discriminators' learning rate rises.",
        whole(0),
        metavar="N",
        default_text="0",
    )
    generator_clip_norm: float | None = setting(
        None,
        "Largest norm of the generator's gradient; a larger one is scaled down.",
        _CLIP,
        metavar="C",
        default_text="any",
    )
    discriminator_clip_norm: float | None = setting(
        None,
        "Largest norm of a discriminator's gradient; a larger one is scaled down.",
        _CLIP,
        metavar="C",
        default_text="any",
    )

    def check(self) -> None:
        """Checks that no number is given to an optimizer that has no use for it."""
        for network in ("generator", "discriminator"):
            optimizer = getattr(self, f"{network}_optimizer") or OPTIMIZERS[0]
            if optimizer.removeprefix(LOOKAHEAD) not in _WITH_MOMENTUM_ALONE:
                continue
            for name in (f"{network}_epsilon", f"{network}_beta2"):
                if (value := getattr(self, name)) is not None:
                    raise BadInput(
                        f"{flag(name)} {value}: {optimizer} has no use for it; leave it out, or "
                        f"choose another {flag(network + '_optimizer')}"
                    )
