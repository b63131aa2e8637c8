"""The settings of MD-GAN, and its entry in the registry."""

from dataclasses import dataclass, replace
from math import inf

from mdgan.engine.settings import RunSettings
from mdgan.engine.stages.suspect_settings import SUSPICIONS, SuspectSettings
from mdgan.families.contract import Algorithm, updates_setting
from mdgan.families.mdgan.batches import BatchRule
from mdgan.gan.aggregation_form import AggregationRule, parse_aggregation
from mdgan.gan.codec_form import CODEC_FORMS, IMAGE_FORMS, WireForm, wire_kind
from mdgan.privacy.secure_settings import SecureSumSettings, summed
from mdgan.privacy.settings import PrivacySettings
from mdgan.records.rows import WorkerNumbers
from mdgan.settings import declare
from mdgan.settings.excludes import Condition, table
from mdgan.spelling import flag

NAME = "mdgan"
MEANS = "means"
"""The form of swaps after which both workers of a pair hold the mean of their discriminators."""


class SwapSettings(declare.Settings):
    """When workers exchange discriminators, and how."""

    swap_interval: int | None = declare.setting(
        None,
        "Iterations between two swaps; 0 for never.",
        declare.whole(0, otherwise="must be 0 (never) or more"),
        metavar="S",
        default_text="see --swap-epochs",
        instead_of="swap_epochs",
    )
    swap_epochs: float | None = declare.setting(
        None,
        "Swap every mE/b iterations, m being the mean shard size.",
        declare.number(
            lambda epochs: 0 < epochs < inf, f"must be above 0 (never: {flag('swap_interval', 0)})"
        ),
        symbol="E",
        default_text="1, or less if workers hold different classes or take means (--swap means); "
        "see --swap-interval",
    )
    swap: str = declare.setting(
        "pairs",
        "What a swap is: the two workers of a pair that the server draws exchange discriminators; "
        "or all exchange along a permutation (derangement); or both of a pair go on with the mean "
        "of theirs, as in no paper: with pictures in colour samples are more various, but "
        "discriminators become alike, and move at least every 25 iterations.",
        declare.one_of("pairs", MEANS, "derangement"),
        is_usual=True,
    )
    swap_state: str = declare.key_setting(
        "all",
        "What moves in a swap: all of a discriminator, with its optimizer's state, or weights and "
        "buffers alone, so that each worker keeps its own moments.",
        declare.one_of("all", "weights"),
    )


class MDGANSettings(RunSettings):
    """The settings of MD-GAN, beside those that every algorithm has."""

    swaps = declare.section(SwapSettings)
    privacy = declare.section(PrivacySettings)
    secure = declare.section(SecureSumSettings)

    algorithm: str = declare.setting(NAME, "What trains.", declare.text(), is_usual=True)
    aggregation: AggregationRule = declare.setting(
        "mean",
        "How the workers' feedback, or their models, are combined: mean, or, where up to F of them "
        "may lie, median, trimmed-mean:F, krum:F, clip:C; or feedback, sample by sample, of the "
        "most forgiving discriminator alone (f2u) or weighed by softmax(LAMBDA × logit) (f2a, "
        "f2a:LAMBDA), which a single liar can take over.",
        declare.parsed(parse_aggregation),
        metavar="RULE",
        symbol="C",
        is_usual=True,
    )
    stale: int = declare.setting(
        0,
        "1: the next batches leave before the feedback is in, so that no worker waits for the "
        "server.",
        declare.whole(0, 1, otherwise="must be 0 or 1"),
        metavar="0|1",
        group="speed",
    )
    updates: str = updates_setting(
        arrival="the server steps with each worker's answer as soon as it comes, so that no worker "
        "waits for another one, and no two runs with several workers give the same bits"
    )
    wire: WireForm = declare.setting(
        "fp32",
        f"How generated images travel ({IMAGE_FORMS}), and feedback ({CODEC_FORMS}): "
        "images=CODEC,feedback=CODEC.",
        wire_kind({"images": IMAGE_FORMS, "feedback": CODEC_FORMS}),
        metavar="WHAT=CODEC,…",
        group="speed",
    )
    step_samples: int = declare.setting(
        0,
        "Samples of its own that a worker learns from in a step, at least; 0: b, as in the paper. "
        "Where b is smaller, it also learns from all generated batches instead of one: as many as "
        "workers, but no more than ten, nor than it takes to have 100 samples. They travel as "
        "int8: with ten batches 14 bytes a value instead of the paper's 12, with four 8. With 48 "
        "samples are more various where b is 10, and a step takes several times the work.",
        declare.whole(0, otherwise="must be 0 (as in the paper) or more"),
        is_usual=True,
    )
    suspects = declare.section(SuspectSettings)
    vectorize: bool = declare.own_setting(
        False,
        "Compute all workers of a process at once, or the clients of a slot, not one after "
        "another; pays with small models. Results differ in the last bits, those of clients also "
        "by where they are trained.",
        declare.switch(),
        group="speed",
    )

    excludes = (
        *table(
            """
        updates=async           | vectorize |
            workers learn after their answer, one by one
        updates=async vectorize | merge_halves |
            a worker learns from real samples by themselves
        updates=arrival         | aggregation stale deadline quorum vectorize shut_out_free_riders |
            the server takes answers one by one, as they come
        swap=means              | shut_out_free_riders |
            what a worker gives must not depend on what another one gave
        """
        ),
        summed("aggregation updates=arrival stale shut_out_free_riders"),
        summed(
            Condition(
                flag("wire", "feedback=…"),
                lambda settings: not settings.wire.feedback.is_exact,
                lambda settings: flag("wire", settings.wire),
            )
        ),
    )

    def check(self) -> None:
        """Checks that there are enough workers for what the settings promise."""
        super().check()
        if self.kappa != "auto":
            self.batches.check_kappa(self.kappa)
        self.aggregation.check_enough(self.num_workers)
        self.suspects.check_enough(self.batches.num_judges, self.training.batch_size)

    @property
    def by_arrival(self) -> bool:
        """Whether the server steps with each answer as soon as it arrives."""
        return self.updates == "arrival"

    @property
    def batches(self) -> BatchRule:
        """How these settings make the batches of an iteration."""
        return BatchRule(self)

    @property
    def num_reals(self) -> int:
        return self.batches.own_samples

    @property
    def num_fakes(self) -> int:
        return self.batches.num_fakes(self.batches.kappa_for())


@dataclass(frozen=True)
class _MDGAN(Algorithm[MDGANSettings]):
    def phases(self, settings: MDGANSettings) -> tuple[tuple[str, ...], tuple[str, ...]]:
        swaps = settings.num_workers > 1 and settings.swaps.swap_interval != 0
        # These come before those of checkpoints: what `mdgan chaos` draws depends on the order.
        extended = replace(
            self,
            server_phases=self.server_phases + ("swap",) * swaps,
            host_phases=self.host_phases + ("swap", "swapped") * swaps,
        )
        return Algorithm.phases(extended, settings)


_STALENESS = WorkerNumbers(
    key="staleness",
    title="How old answers were",
    label="steps old",
    caption="How many steps the generator took between making a worker's batches and using "
    "its answer (--updates arrival): the means over logged iterations.",
)
MDGAN = _MDGAN(
    NAME,
    "one generator at the server, a discriminator at every worker",
    MDGANSettings,
    "mdgan.families.mdgan.build:BUILDER",
    of_models=frozenset(("swap", "swap_interval", "swap_epochs")),
    server_phases=("generate", "send", "wait", "aggregate", "step"),
    host_phases=("receive", "real-half", "fake-half", "local-step", "feedback", "send"),
    shown=(_STALENESS, *SUSPICIONS),
)
