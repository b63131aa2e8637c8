"""The settings of training that every algorithm has."""

from dataclasses import dataclass
from math import inf

from mdgan.settings.declare import (
    Settings,
    number,
    one_of,
    own_setting,
    setting,
    switch,
    text,
    whole,
)

_STEP_SIZE = number(lambda lr: 0 < lr < inf, "must be above 0")
_STEP_SIZE_NAMES = ("--learning-rate", "--lr")
_DECAY = number(lambda beta: 0 <= beta < 1, "must be in [0, 1)")


@dataclass(frozen=True)
class TrainingSettings(Settings, group="models"):
    """Losses, optimizers and arithmetic."""

    batch_size: int = setting(10, "Samples in a batch.", whole(1), metavar="b", symbol="b")
    local_steps: int = setting(
        1, "Discriminator updates within an iteration.", whole(1), metavar="L", symbol="L"
    )
    generator_loss: str = setting(
        "non-saturating",
        "Generator loss on logits; `saturating` is the paper's.",
        one_of("non-saturating", "saturating", "least-squares", "hinge"),
        metavar="LOSS",
        symbol="J_gen",
    )
    discriminator_loss: str = setting(
        "bce",
        "Discriminator loss on logits.",
        one_of("bce", "least-squares", "hinge"),
        metavar="LOSS",
        symbol="J_disc",
    )
    generator_lr: float = setting(
        2e-4,
        "Adam's step size for the generator.",
        _STEP_SIZE,
        metavar="LR",
        other_names=_STEP_SIZE_NAMES,
    )
    discriminator_lr: float = setting(
        2e-4,
        "Adam's step size for discriminators.",
        _STEP_SIZE,
        metavar="LR",
        other_names=_STEP_SIZE_NAMES,
    )
    beta1: float = setting(0.5, "Adam's first decay rate.", _DECAY, metavar="B", symbol="β1")
    beta2: float = setting(0.999, "Adam's second decay rate.", _DECAY, metavar="B", symbol="β2")
    precision: str = setting(
        "fp32",
        "What layers compute in; weights, losses and last layers stay in fp32.",
        one_of("fp32", "bf16", "fp16"),
        group="speed",
    )
    channels_last: bool = setting(
        False, "Images lie in memory pixel by pixel.", switch(), group="speed"
    )
    compile: bool = setting(
        False, "Compile the models with torch.compile.", switch(), group="speed"
    )
    seed: int = setting(
        0,
        "Everything random is derived from it.",
        whole(0, 2**63 - 1, otherwise="must be in [0, 2^63)"),
        metavar="N",
        group="algorithm",
    )

    init_from: str | None = own_setting(
        None,
        "Begin with the generator of another run, or of a safetensors file, and with that run's "
        "discriminators where they fit. Rank 0 alone reads it.",
        text(),
        metavar="RUN|FILE",
        default_text="weights drawn from --seed",
    )

    def iterations_of(self, epochs: float, mean_shard_size: float) -> int:
        """mE/b iterations, rounded, at least 1 (Hardy et al. 2019, Algorithm 1, line 11).

        Args:
            epochs: E.
            mean_shard_size: m, in samples.
        """
        return max(1, round(min(mean_shard_size * epochs / self.batch_size, 2.0**63)))
