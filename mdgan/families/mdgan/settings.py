"""The settings of MD-GAN."""

from dataclasses import dataclass
from math import inf

from mdgan.engine.settings import RunSettings, num_participants
from mdgan.errors import BadInput
from mdgan.families.mdgan.aggregation_rule import AggregationRule, parse_aggregation
from mdgan.gan.codec_form import CODEC_FORMS, IMAGE_FORMS, CodecForm, codec_kind
from mdgan.settings.declare import number, one_of, own_setting, parsed, setting, switch, text, whole

NAME = "mdgan"


@dataclass(frozen=True)
class MDGANSettings(RunSettings):
    """The settings of MD-GAN, and those that every algorithm has."""

    algorithm: str = setting(NAME, "What trains.", text())
    swap_interval: int | None = setting(
        None,
        "Iterations between two swaps; 0 for never.",
        whole(0, otherwise="must be 0 (never) or more"),
        metavar="S",
        default_text="see --swap-epochs",
        instead_of="swap_epochs",
    )
    swap_epochs: float | None = setting(
        None,
        "Swap every mE/b iterations, m being the mean shard size.",
        number(lambda epochs: 0 < epochs < inf, "must be above 0 (never: --swap-interval 0)"),
        metavar="E",
        symbol="E",
        default_text="1, unless --swap-interval is given",
    )
    swap: str = setting(
        "pairs",
        "Who gets whose discriminator: pairs that the server draws, or a permutation without "
        "fixed points.",
        one_of("pairs", "derangement"),
    )
    aggregation: AggregationRule = setting(
        "mean",
        "How the workers' feedback is combined: mean, or, where up to F of them may lie, "
        "median, trimmed-mean:F, krum:F, clip:C; or, sample by sample, of the most forgiving "
        "discriminator alone (f2u) or weighed by softmax(LAMBDA × logit) (f2a, f2a:LAMBDA), which "
        "a single liar can take over.",
        parsed(parse_aggregation),
        metavar="RULE",
        symbol="C",
    )
    stale: int = setting(
        0,
        "1: the next batches leave before the feedback is in, so that no worker waits for the "
        "server.",
        whole(0, 1, otherwise="must be 0 or 1"),
        metavar="0|1",
    )
    wire_images: CodecForm = setting(
        "fp32",
        f"How generated images travel: {IMAGE_FORMS}.",
        codec_kind(IMAGE_FORMS),
        metavar="CODEC",
    )
    wire_feedback: CodecForm = setting(
        "fp32", f"How feedback travels: {CODEC_FORMS}.", codec_kind(CODEC_FORMS), metavar="CODEC"
    )
    vectorize: bool = own_setting(
        False,
        "Compute all workers of a process at once, not one after another; pays with "
        "small models. Results differ in the last bits.",
        switch(),
    )
    tune: bool = own_setting(
        False,
        "Measure in the first iterations what is fastest for the workers of a process, one after "
        "another or at once and with how many threads, and keep that. The last bits of the results "
        "then depend on the machine.",
        switch(),
    )

    def check(self) -> None:
        """Checks that there are enough workers for what the aggregation rule promises."""
        super().check()
        rule, needed = self.aggregation, self.aggregation.needs_workers
        if self.num_workers < needed:
            hostile = int(rule.parameter) if rule.name in ("trimmed-mean", "krum") else 1
            raise BadInput(
                f"--aggregation {rule}: needs at least {needed} workers to outvote {hostile}, not "
                f"{self.num_workers}; use more, a smaller F, or mean"
            )

    @property
    def num_judges(self) -> int:
        """How many workers hold a discriminator."""
        return num_participants(self.participation, self.num_workers)

    def swap_every(self, mean_shard_size: float) -> int:
        """The number of iterations between two swaps.

        Args:
            mean_shard_size: m, in samples.

        Returns:
            `--swap-interval`, or mE/b rounded, at least 1; 0 for never
            (Hardy et al. 2019, Algorithm 1, line 11).
        """
        if self.swap_interval is not None:
            return self.swap_interval
        epochs = 1.0 if self.swap_epochs is None else self.swap_epochs
        return self.iterations_of(epochs, mean_shard_size)
