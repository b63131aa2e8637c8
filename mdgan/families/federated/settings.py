"""The settings of FL-GAN and FeGAN."""

from dataclasses import dataclass
from math import inf

from mdgan.engine.settings import RunSettings
from mdgan.errors import BadInput
from mdgan.families.federated.load_form import (
    CLUSTER_FORMS,
    LOAD_FORMS,
    ClusterForm,
    LoadForm,
    parse_clusters,
    parse_load,
)
from mdgan.gan.codec_form import CODEC_FORMS, CodecForm, codec_kind
from mdgan.settings.declare import number, one_of, own_setting, parsed, setting, text, whole

FL_GAN, FEGAN = "fl-gan", "fegan"


@dataclass(frozen=True)
class FederatedSettings(RunSettings):
    """The settings of the federated algorithms, and those that every algorithm has."""

    algorithm: str = setting(FL_GAN, "What trains.", text())
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
    )
    on_deadline: str = own_setting(
        "complete",
        "What becomes of a round past --deadline: it is completed with the answers that came, or "
        "aborted and another begun.",
        one_of("complete", "abort"),
    )

    def check(self) -> None:
        """Checks that a round can be aborted only where there is a deadline."""
        super().check()
        if self.on_deadline == "abort" and self.deadline is None:
            raise BadInput("--on-deadline abort: needs --deadline beside it")

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
