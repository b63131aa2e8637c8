"""The settings of training that every algorithm has."""

from math import floor, inf, log2

from mdgan.gan import optimizer_settings
from mdgan.gan.regularizers.registry import REGULARIZERS, RegularizerSettings
from mdgan.settings import declare
from mdgan.settings.excludes import table
from mdgan.settings.names import Names

GENERATOR_LOSS_NAMES = Names(
    "generator loss", "non-saturating", "saturating", "least-squares", "hinge", "wasserstein"
)
DISCRIMINATOR_LOSS_NAMES = Names(
    "discriminator loss", "bce", "least-squares", "hinge", "wasserstein"
)


def resolve_kappa(kappa: int | str, num_workers: int) -> int:
    """κ for N live workers: the set number, or max(2, ⌊log2 N⌋) (Darmanger and Gombas, 5.2)."""
    return kappa if isinstance(kappa, int) else max(2, floor(log2(num_workers)))


class ArithmeticSettings(declare.Settings, group="speed"):
    """Precision, layout and compilation of models."""

    precision: str = declare.setting(
        "fp32",
        "What layers compute in; weights, losses and last layers stay in fp32.",
        declare.one_of("fp32", "bf16", "fp16"),
    )
    exact_layers: str | None = declare.key_setting(
        None,
        "Layers of either model that compute in fp32 beside the last one, by name: 0,attention.*.",
        declare.text(),
        metavar="PATTERN[,PATTERN…]",
    )
    channels_last: bool = declare.key_setting(
        False, "Images lie in memory pixel by pixel.", declare.switch()
    )
    merge_halves: bool = declare.setting(
        False,
        "A discriminator judges real and generated samples in one pass, not in two. Results differ "
        "in the last bits, more with dropout or spectral norm, and its work on real samples no "
        "longer begins before the generated ones are there.",
        declare.switch(),
    )
    compile: bool = declare.own_key_setting(
        False,
        "Compile the models with torch.compile. Each machine decides for itself.",
        declare.switch(),
    )

    excludes = table(
        """
        precision=fp32 | exact_layers |
            all layers compute in fp32; leave it out, or add {precision=bf16}
        """
    )

    def exact_patterns(self) -> list[str]:
        """The `fnmatch` patterns of names of layers that stay in fp32."""
        patterns = (self.exact_layers or "").split(",")
        return [pattern.strip() for pattern in patterns if pattern.strip()]


class TrainingSettings(declare.Settings, group="models"):
    """Losses, optimizers and arithmetic, and how long to train."""

    iterations: int = declare.setting(
        3000,
        "Number of global learning iterations.",
        declare.whole(1),
        symbol="I",
        group="algorithm",
        other_names=("--epochs", "--steps", "--num-iterations"),
        is_usual=True,
    )
    batch_size: int = declare.setting(
        10, "Samples in a batch.", declare.whole(1), symbol="b", is_usual=True
    )
    local_steps: int = declare.setting(
        1, "Discriminator updates within an iteration.", declare.whole(1), symbol="L"
    )
    seed: int = declare.setting(
        0,
        "Everything random is derived from it.",
        declare.whole(0, 2**63 - 1, otherwise="must be in [0, 2^63)"),
        group="algorithm",
        is_usual=True,
    )
    generator_loss: str = declare.setting(
        "non-saturating",
        "Generator loss on logits: "
        f"{', '.join(GENERATOR_LOSS_NAMES.all)}; `saturating` is J_gen as Hardy et al. write it.",
        GENERATOR_LOSS_NAMES.setting(),
        metavar="LOSS",
        symbol="J_gen",
        other_names=("--loss",),
        is_usual=True,
    )
    discriminator_loss: str = declare.setting(
        "bce",
        f"Discriminator loss on logits: {', '.join(DISCRIMINATOR_LOSS_NAMES.all)}.",
        DISCRIMINATOR_LOSS_NAMES.setting(),
        metavar="LOSS",
        symbol="J_disc",
        other_names=("--loss",),
        is_usual=True,
    )
    generator_optimizer: optimizer_settings.OptimizerForm = declare.setting(
        "adam",
        f"Optimizer of the generator: {', '.join(optimizer_settings.OPTIMIZERS)}, or "
        f"lookahead:NAME with one of them; of keys {optimizer_settings.OPTIMIZER_KEYS}.",
        optimizer_settings.OPTIMIZER,
        metavar="NAME:KEY=VALUE,…",
        other_names=("--optimizer", "--optim", "--learning-rate", "--lr"),
        is_usual=True,
    )
    discriminator_optimizer: optimizer_settings.OptimizerForm = declare.setting(
        "adam",
        "Optimizer of discriminators, in the same form.",
        optimizer_settings.OPTIMIZER,
        metavar="NAME:KEY=VALUE,…",
        other_names=("--optimizer", "--optim", "--learning-rate", "--lr"),
        is_usual=True,
    )
    label_prior: str = declare.key_setting(
        "uniform",
        "How often conditional models generate each class: equally often, or as often as the data "
        "have it.",
        declare.one_of("uniform", "data"),
    )
    class_weight: float | None = declare.key_setting(
        None,
        "Weight of the cross-entropy of a discriminator that tells classes, on real and generated "
        "samples.",
        declare.number(lambda weight: 0 <= weight < inf, "must be 0 or more"),
        metavar="W",
        default_text="1",
        other_names=("--auxiliary-weight",),
    )
    ema: float | None = declare.setting(
        None,
        "Half-life, in iterations, of a moving average of the generator, which is then sampled and "
        "scored; the generator itself stays beside it. 0 for none.",
        declare.number(
            lambda halflife: 0 <= halflife < inf, "must be above 0, or 0 for no average"
        ),
        metavar="HALFLIFE",
        default_text="no average",
        other_names=("--ema-halflife", "--ema-decay"),
        is_usual=True,
    )
    init_from: str | None = declare.own_setting(
        None,
        "Begin with the generator of another run, or of a safetensors file, and with that run's "
        "discriminators where they fit. Rank 0 alone reads it.",
        declare.text(),
        metavar="RUN|FILE",
        default_text="weights drawn from --seed",
    )
    regularizers = declare.section(RegularizerSettings)
    arithmetic = declare.section(ArithmeticSettings)

    excludes = table(
        """
        generator_loss!=wasserstein     | discriminator_loss=wasserstein |
            with {when} there is no Wasserstein distance, which needs both; give wasserstein twice
        discriminator_loss!=wasserstein | generator_loss=wasserstein |
            with {when} there is no Wasserstein distance, which needs both; give wasserstein twice
        """
    ) + tuple(row for kind in REGULARIZERS for row in kind.excludes)

    def policy(self, network: str) -> optimizer_settings.Policy:
        """The optimization policy of the `generator` or the `discriminator`."""
        form: optimizer_settings.OptimizerForm = getattr(self, f"{network}_optimizer")
        return form.policy(self.iterations)

    def iterations_of(self, epochs: float, mean_shard_size: float) -> int:
        """E epochs in iterations: mE/b, at least 1 (Hardy et al. 2019, Algorithm 1, line 11)."""
        return max(1, round(min(mean_shard_size * epochs / self.batch_size, 2.0**63)))
