"""The settings of FL-GAN and FeGAN, and their entries in the registry.

It is one implementation with different defaults. With `--sampling random --weighting uniform` FeGAN
is FL-GAN bit for bit (Guerraoui et al. 2020, section 4).
"""

import re
from dataclasses import dataclass
from math import inf

from mdgan.engine.settings import RunSettings, num_participants
from mdgan.errors import BadInput
from mdgan.families.contract import Algorithm
from mdgan.gan.aggregation_form import ROBUST_FORMS, RobustRule, parse_robust_rule
from mdgan.gan.codec_form import CODEC_FORMS, CodecForm, codec_kind
from mdgan.settings.declare import (
    number,
    one_of,
    own_setting,
    parsed,
    setting,
    shortest,
    text,
    whole,
)

LOAD_FORMS = "equal, measured, weak:FRACTION,memory, weak:FRACTION,speed"
_LOAD = re.compile(r"equal|measured|weak:([0-9.eE+-]+),(memory|speed)")
CLUSTER_FORMS = "none, kmeans:K, gmm:K"
_CLUSTERS = re.compile(r"none|(?:kmeans|gmm):\d{1,9}")
_MOST_CLUSTERS = 1000


@dataclass(frozen=True)
class LoadForm:
    """How the server decides how much each client trains in a round.

    Attributes:
        name: equal, measured, or weak.
        fraction: of the clients, how many are weak; 0 for none.
        what: memory or speed: the weak clients have half of it; empty unless some are weak.
    """

    name: str
    fraction: float = 0.0
    what: str = ""

    def __str__(self) -> str:
        """As the command line has it."""
        return f"weak:{shortest(self.fraction)},{self.what}" if self.what else self.name


def parse_load(text: str) -> LoadForm:
    """Reads a `--training-load` value.

    Raises:
        ValueError: not one of the forms, or a fraction out of range.
    """
    match = _LOAD.fullmatch(text)
    if match is None:
        raise ValueError(f"not one of {LOAD_FORMS}")
    if match[2] is None:
        return LoadForm(text)
    try:
        fraction = float(match[1])
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise ValueError("FRACTION must be above 0 and at most 1")
    return LoadForm("weak", fraction, match[2])


@dataclass(frozen=True)
class ClusterForm:
    """How clients group samples that have no labels.

    Attributes:
        method: none, kmeans or gmm.
        number: K, how many groups; 0 with none.
    """

    method: str = "none"
    number: int = 0

    def __str__(self) -> str:
        """As the command line has it."""
        return f"{self.method}:{self.number}" if self.number else self.method


def parse_clusters(text: str) -> ClusterForm:
    """Reads a `--clusters` value.

    Raises:
        ValueError: not one of the forms, or K out of range.
    """
    if not _CLUSTERS.fullmatch(text):
        raise ValueError(f"not one of {CLUSTER_FORMS}")
    method, _, number = text.partition(":")
    if number and not 2 <= int(number) <= _MOST_CLUSTERS:
        raise ValueError(f"K must be from 2 to {_MOST_CLUSTERS}")
    return ClusterForm(method, int(number or 0))


@dataclass(frozen=True)
class FederatedSettings(RunSettings):
    """The settings of the federated algorithms, and those that every algorithm has."""

    algorithm: str = setting("fl-gan", "What trains.", text())
    round_iterations: int | None = setting(
        None,
        "Iterations that a worker trains in a round.",
        whole(1),
        metavar="E",
        symbol="E",
        default_text="see --round-epochs",
        instead_of="round_epochs",
    )
    round_epochs: float | None = setting(
        None,
        "Train for mE/b iterations in a round, m being the mean shard size.",
        number(lambda epochs: 0 < epochs < inf, "must be above 0"),
        metavar="E",
        symbol="E",
        default_text="1, unless --round-iterations is given",
    )
    sampling: str = setting(
        "random",
        "Which workers are drawn for a round: any, or those that bring the classes that were seen "
        "least.",
        one_of("random", "balanced"),
        symbol="s",
        is_choice=True,
    )
    weighting: str = setting(
        "uniform",
        "What a worker's models weigh: the same, by samples, or by how near its classes are to "
        "those of all workers.",
        one_of("uniform", "samples", "kl"),
        symbol="w",
        is_choice=True,
    )
    aggregation: RobustRule = setting(
        "mean",
        "How the workers' models are combined: mean, or, where up to F of a round's workers may "
        f"lie: {ROBUST_FORMS}.",
        parsed(parse_robust_rule),
        metavar="RULE",
    )
    training_load: LoadForm = setting(
        "equal",
        "How much a worker trains in a round: all the same; less if it measures that it is "
        f"slow or short of memory; or half for a FRACTION of the workers: {LOAD_FORMS}.",
        parsed(parse_load),
        metavar="LOAD",
    )
    clusters: ClusterForm = setting(
        "none",
        "Workers without labels group their samples and tell how many are in each group: "
        f"{CLUSTER_FORMS}.",
        parsed(parse_clusters),
        metavar="METHOD",
    )
    wire_models: CodecForm = setting(
        "fp32",
        f"How workers' models travel to the server: {CODEC_FORMS}; all but fp32 as differences.",
        codec_kind(CODEC_FORMS),
        metavar="CODEC",
        group="speed",
    )
    on_deadline: str = own_setting(
        "complete",
        "What becomes of a round past --deadline: it is completed with the answers that came, or "
        "aborted and another begun.",
        one_of("complete", "abort"),
        group="faults",
    )

    def check(self) -> None:
        """Checks that a round can be aborted only where there is a deadline."""
        super().check()
        if self.on_deadline == "abort" and self.deadline is None:
            raise BadInput("--on-deadline abort: needs --deadline beside it")
        if self.label_prior == "data" and self.clusters.number:
            raise BadInput(
                "--label-prior data: with --clusters workers tell groups, not classes; leave one "
                "of the two out"
            )
        if self.aggregation.outvotes:
            self._check_votes()

    def _check_votes(self) -> None:
        """Checks that workers have equal votes, and that a round has enough of them."""
        if self.weighting != "uniform":
            raise BadInput(
                f"--aggregation {self.aggregation}: every worker has one vote, and --weighting "
                f"{self.weighting} follows what workers say that they hold; add --weighting uniform"
            )
        in_a_round = num_participants(self.participation, self.num_workers)
        more = "more (--world-size, --participation)"
        self.aggregation.check_enough(in_a_round, of="workers a round", more=more)

    def round_length(self, mean_shard_size: float) -> int:
        """The number of iterations in a round.

        Args:
            mean_shard_size: m, in samples.

        Returns:
            `--round-iterations`, or mE/b rounded, at least 1 (Hardy et al. 2019, section III-c).
        """
        if self.round_iterations is not None:
            return self.round_iterations
        return self.iterations_of(self.round_epochs or 1.0, mean_shard_size)


_BUILDER = "mdgan.families.federated.build:BUILDER"
_PHASES = ("receive", "train", "send")

FL_GAN = Algorithm(
    "fl-gan",
    "workers train both models, and the server averages them",
    FederatedSettings,
    _BUILDER,
    unit="round",
    lets_batches_repeat=False,
    host_phases=_PHASES,
)
"""Hardy et al. 2019, section V-A."""

FEGAN = Algorithm(
    "fegan",
    "the same, with workers and weights chosen by their classes",
    FederatedSettings,
    _BUILDER,
    {
        "participation": 0.025,
        "round_iterations": 30,
        "batch_size": 50,
        "sampling": "balanced",
        "weighting": "kl",
    },
    unit="round",
    lets_batches_repeat=False,
    host_phases=_PHASES,
)
"""Guerraoui et al. 2020, section 4 (hyper-parameters)."""
