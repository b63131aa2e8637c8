"""What is computed: equal on every rank, and enough to decide every bit of the result."""

import math
import re
from dataclasses import asdict, dataclass, fields
from typing import Literal

from mdgan.errors import BadInput
from mdgan.families import algorithms as families
from mdgan.settings.declare import check_types, flag, setting

PARTITION_FORMS = (
    "iid, sorted, dirichlet:ALPHA, shards:K, classes:K, fegan:MAX_CLASSES,MAX_SAMPLES, none"
)
_PARTITION = re.compile(
    r"iid|sorted|none|dirichlet:[0-9.eE+-]+|shards:\d{1,9}|classes:\d{1,9}|"
    r"fegan:\d{1,9},\d{1,9}"
)
AGGREGATION_FORMS = "mean, median, trimmed-mean:F, krum:F, clip:C, f2u, f2a, f2a:LAMBDA"
_AGGREGATION = re.compile(
    r"mean|median|(?:trimmed-mean|krum):[0-9]{1,9}|clip:[0-9.eE+-]+|f2u|f2a(?::[0-9.eE+-]+)?"
)
IMAGE_FORMS = "fp32, bf16, int8"
CODEC_FORMS = f"{IMAGE_FORMS}, topk:F"
MOST_TOPK = 0.5
"""The largest F of topk: beyond it, values and places take more than all values would."""
_CODEC = re.compile(r"fp32|bf16|int8|topk:[0-9.eE+-]+")

_MOST_RANKS = 100_000


@dataclass(frozen=True)
class Experiment:
    """What is computed. Equal on every rank; ranks that differ are refused at joining."""

    algorithm: str = setting(
        "mdgan",
        "What trains: MD-GAN; FL-GAN and FeGAN, where workers train both models and the server "
        "averages them; or one process that holds all data.",
        choices=families.ALGORITHMS,
    )
    dataset: str = setting("digits", "Dataset file to train on, by name.", metavar="NAME")
    world_size: int = setting(
        5, "Number of ranks: the server and the workers.", metavar="N", symbol="N + 1"
    )
    iterations: int = setting(
        3000, "Number of global learning iterations.", metavar="I", symbol="I"
    )
    batch_size: int = setting(10, "Samples in a batch.", metavar="b", symbol="b")
    kappa: int | Literal["auto"] = setting(
        "auto",
        "Batches generated per iteration.",
        metavar="K|auto",
        symbol="κ",
        default_text="auto: max(2, ⌊log2 N⌋)",
    )
    participation: float | None = setting(
        None,
        "Fraction of the workers that train at a time: with mdgan those that hold a discriminator, "
        "else those drawn for a round.",
        metavar="C",
        symbol="C",
        default_text="1; fegan: 0.025, but one worker",
    )
    round_iterations: int | None = setting(
        None,
        "Iterations that a worker trains in a round (fl-gan, fegan).",
        metavar="E",
        symbol="E",
        default_text="fegan: 30; fl-gan: see --round-epochs",
    )
    round_epochs: float | None = setting(
        None,
        "Train for mE/b iterations in a round, m being the mean shard size (fl-gan, fegan).",
        metavar="E",
        symbol="E",
        default_text="fl-gan: 1",
    )
    sampling: str | None = setting(
        None,
        "Who is drawn for a round: anybody, or workers that bring the classes that were seen "
        "least (fl-gan, fegan).",
        choices=("random", "balanced"),
        symbol="s",
        default_text="fl-gan: random; fegan: balanced",
    )
    weighting: str | None = setting(
        None,
        "What a worker's models weigh: the same, by samples, or by how near its classes are to "
        "those of all (fl-gan, fegan).",
        choices=("uniform", "samples", "kl"),
        symbol="w",
        default_text="fl-gan: uniform; fegan: kl",
    )
    training_load: str = setting(
        "equal",
        "Who trains how much in a round (fl-gan, fegan): all the same; less where workers measure "
        "that they are slow or short of memory; or half for a FRACTION of them: "
        f"{families.LOAD_FORMS}.",
        metavar="LOAD",
    )
    clusters: str = setting(
        "none",
        "Workers without labels group their samples and tell how many are in each group (fl-gan, "
        f"fegan): {families.CLUSTER_FORMS}.",
        metavar="METHOD",
    )
    local_steps: int = setting(
        1, "Discriminator updates within an iteration.", metavar="L", symbol="L"
    )
    swap_interval: int | None = setting(
        None,
        "Iterations between two swaps; 0 for never.",
        metavar="S",
        default_text="see --swap-epochs",
    )
    swap_epochs: float | None = setting(
        None,
        "Swap every mE/b iterations, m being the mean shard size.",
        metavar="E",
        symbol="E",
        default_text="1, unless --swap-interval is given",
    )
    swap: str = setting(
        "pairs",
        "Who receives whose discriminator: server-drawn pairs, or a permutation without fixed "
        "points.",
        choices=("pairs", "derangement"),
    )
    aggregation: str = setting(
        "mean",
        "How the workers' feedback is put together: mean, or, where up to F of them may lie, "
        "median, trimmed-mean:F, krum:F, clip:C; or, sample by sample, of the most forgiving "
        "discriminator alone (f2u) or weighed by softmax(LAMBDA × logit) (f2a, f2a:LAMBDA), which "
        "a single liar can take over.",
        metavar="RULE",
        symbol="C",
    )
    generator_loss: str = setting(
        "non-saturating",
        "Generator loss on logits; `saturating` is the paper's.",
        choices=("non-saturating", "saturating", "least-squares", "hinge"),
        symbol="J_gen",
    )
    discriminator_loss: str = setting(
        "bce",
        "Discriminator loss on logits.",
        choices=("bce", "least-squares", "hinge"),
        symbol="J_disc",
    )
    generator_lr: float = setting(2e-4, "Adam's step size for the generator.", metavar="LR")
    discriminator_lr: float = setting(2e-4, "Adam's step size for discriminators.", metavar="LR")
    beta1: float = setting(0.5, "Adam's first decay rate.", metavar="B", symbol="β1")
    beta2: float = setting(0.999, "Adam's second decay rate.", metavar="B", symbol="β2")
    partition: str = setting(
        "iid",
        f"Who holds what: {PARTITION_FORMS} (every worker holds all of its --data-dir).",
        metavar="SCHEME",
    )
    precision: str = setting(
        "fp32",
        "What layers compute in; weights, losses and last layers stay in fp32.",
        choices=("fp32", "bf16", "fp16"),
    )
    channels_last: bool = setting(False, "Images lie in memory pixel by pixel.")
    compile: bool = setting(False, "Compile the models with torch.compile.")
    stale: int = setting(
        0,
        "1: the next batches leave before the feedback is in, so that nobody waits for the server.",
        metavar="0|1",
    )
    wire_images: str = setting(
        "fp32", f"How generated images travel: {IMAGE_FORMS}.", metavar="CODEC"
    )
    wire_feedback: str = setting("fp32", f"How feedback travels: {CODEC_FORMS}.", metavar="CODEC")
    wire_models: str = setting(
        "fp32",
        f"How workers' models travel to the server (fl-gan, fegan): {CODEC_FORMS}; all but fp32 as "
        "differences.",
        metavar="CODEC",
    )
    seed: int = setting(0, "Everything random is derived from it.", metavar="N")

    def __post_init__(self) -> None:
        """Checks every value and every pair of values.

        Raises:
            BadInput: a value is out of range; the text names the flag and what to do.
        """
        check_types(self)
        self._fill_in()
        if self.world_size < 2:
            raise BadInput(
                f"--world-size {self.world_size}: needs at least 2, one server and one worker"
            )
        if self.world_size > _MOST_RANKS:
            raise BadInput(f"--world-size {self.world_size}: at most {_MOST_RANKS:,}")
        for name in ("iterations", "batch_size", "local_steps"):
            if getattr(self, name) < 1:
                raise BadInput(f"{flag(name)} {getattr(self, name)}: must be at least 1")
        for name in ("generator_lr", "discriminator_lr"):
            if not 0 < getattr(self, name) < math.inf:
                raise BadInput(f"{flag(name)} {getattr(self, name)}: must be above 0")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise BadInput(f"{flag(name)} {getattr(self, name)}: must be in [0, 1)")
        if not 0 <= self.seed < 2**63:
            raise BadInput(f"--seed {self.seed}: must be in [0, 2^63)")
        if self.stale not in (0, 1):
            raise BadInput(f"--stale {self.stale}: must be 0 or 1")
        self._check_swap()
        check_partition(self.partition)
        check_aggregation(self.aggregation, self.num_workers)
        check_codec(self.wire_images, "--wire-images", IMAGE_FORMS)
        check_codec(self.wire_feedback, "--wire-feedback", CODEC_FORMS)
        check_codec(self.wire_models, "--wire-models", CODEC_FORMS)
        self._check_family()
        self._check_kappa()

    def _fill_in(self) -> None:
        """Gives settings that nobody has given what their algorithm has for them."""
        defaults = families.DEFAULTS.get(self.algorithm, {})
        rounds = {"round_iterations", "round_epochs"}
        chosen = any(getattr(self, name) is not None for name in rounds)
        for name, value in defaults.items():
            if getattr(self, name) is None and not (name in rounds and chosen):
                object.__setattr__(self, name, value)

    def _check_family(self) -> None:
        assert self.participation is not None
        families.check_participation(self.participation)
        families.check_rounds(self.round_iterations, self.round_epochs)
        families.check_load(self.training_load)
        families.check_clusters(self.clusters)
        defaults = {item.name: item.default for item in fields(self)}
        families.check_use(self.algorithm, asdict(self), defaults)

    def _check_kappa(self) -> None:
        if self.kappa == "auto":
            return
        if self.kappa < 1:
            raise BadInput(f"--kappa {self.kappa}: must be at least 1, or auto")
        fraction = self.participation if self.algorithm == "mdgan" else 1.0
        assert fraction is not None
        judges = families.num_participants(fraction, self.num_workers)
        if self.kappa > max(2, judges):
            raise BadInput(
                f"--kappa {self.kappa}: more batches than {judges} worker(s) at a time can judge; "
                f"at most {max(2, judges)}"
            )

    def _check_swap(self) -> None:
        if self.swap_interval is not None and self.swap_epochs is not None:
            raise BadInput(
                f"--swap-interval {self.swap_interval} and --swap-epochs {self.swap_epochs}: "
                "give one of them"
            )
        if self.swap_interval is not None and self.swap_interval < 0:
            raise BadInput(f"--swap-interval {self.swap_interval}: must be 0 (never) or more")
        if self.swap_epochs is not None and not 0 < self.swap_epochs < math.inf:
            raise BadInput(
                f"--swap-epochs {self.swap_epochs}: must be above 0 (never: --swap-interval 0)"
            )

    @property
    def num_workers(self) -> int:
        """N, the number of workers at the start."""
        return self.world_size - 1

    def swap_every(self, mean_shard_size: float) -> int:
        """The number of iterations between two swaps.

        Args:
            mean_shard_size: m, in samples.

        Returns:
            `--swap-interval`, or mE/b rounded, at least 1; 0 for never
            (Hardy et al., Algorithm 1, line 11).
        """
        if self.swap_interval is not None:
            return self.swap_interval
        epochs = 1.0 if self.swap_epochs is None else self.swap_epochs
        return self._iterations_of(epochs, mean_shard_size)

    def round_length(self, mean_shard_size: float) -> int:
        """The number of iterations in a round.

        Args:
            mean_shard_size: m, in samples.

        Returns:
            `--round-iterations`, or mE/b rounded, at least 1 (Hardy et al., section III-c).
        """
        if self.round_iterations is not None:
            return self.round_iterations
        return self._iterations_of(self.round_epochs or 1.0, mean_shard_size)

    def _iterations_of(self, epochs: float, mean_shard_size: float) -> int:
        return max(1, round(min(mean_shard_size * epochs / self.batch_size, 2.0**63)))


def check_partition(scheme: str) -> None:
    """Checks the spelling and the numbers of a `--partition` value.

    Raises:
        BadInput: not one of the known forms, or a number out of range.
    """
    name, _, parameters = scheme.partition(":")
    try:
        numbers = [float(number) for number in parameters.split(",")] if parameters else []
    except ValueError:
        numbers = [0.0]
    if not _PARTITION.fullmatch(scheme):
        raise BadInput(f"--partition {scheme}: not one of {PARTITION_FORMS}")
    if not all(0 < number < math.inf for number in numbers):
        raise BadInput(f"--partition {scheme}: the number(s) after {name}: must be above 0")


def check_aggregation(rule: str, num_workers: int) -> None:
    """Checks the spelling of an `--aggregation` value, and whether it can keep its promise.

    Args:
        rule: the value.
        num_workers: N; F hostile workers must leave enough others to outvote them.

    Raises:
        BadInput: not one of the known forms, a number out of range, or too few workers.
    """
    if not _AGGREGATION.fullmatch(rule):
        raise BadInput(f"--aggregation {rule}: not one of {AGGREGATION_FORMS}")
    name, _, parameter = rule.partition(":")
    if name == "clip":
        _check_above_0(rule, parameter, "C must be a number above 0")
    if name in ("f2u", "f2a"):
        if parameter:
            _check_above_0(rule, parameter, "LAMBDA must be a number above 0; at 0 it is mean")
        return
    num_hostile = int(parameter) if name in ("trimmed-mean", "krum") else int(name != "mean")
    if parameter and num_hostile < 1:
        raise BadInput(f"--aggregation {rule}: F must be at least 1; if nobody lies, use mean")
    needed = 2 * num_hostile + (3 if name == "krum" else 1)
    if num_workers < needed:
        raise BadInput(
            f"--aggregation {rule}: needs at least {needed} workers to outvote {num_hostile}, not "
            f"{num_workers}; use more, a smaller F, or mean"
        )


def _check_above_0(rule: str, parameter: str, otherwise: str) -> None:
    try:
        fits = 0 < float(parameter) < math.inf
    except ValueError:
        fits = False
    if not fits:
        raise BadInput(f"--aggregation {rule}: {otherwise}")


def check_codec(codec: str, name: str, forms: str) -> None:
    """Checks the spelling and the number of a `--wire-images` or `--wire-feedback` value.

    Args:
        codec: the value.
        name: of the flag.
        forms: those that it may have.

    Raises:
        BadInput: not one of them, or F out of range.
    """
    kind, _, parameter = codec.partition(":")
    if not _CODEC.fullmatch(codec) or kind not in forms.replace(":F", "").split(", "):
        raise BadInput(f"{name} {codec}: not one of {forms}")
    try:
        fits = not parameter or 0 < float(parameter) <= MOST_TOPK
    except ValueError:
        fits = False
    if not fits:
        raise BadInput(f"{name} {codec}: F must be above 0 and at most {MOST_TOPK}")
