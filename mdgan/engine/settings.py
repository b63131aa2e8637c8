"""The settings that every algorithm has; each algorithm derives a class and adds its own."""

import re
from typing import ClassVar, Literal, NamedTuple

from mdgan.data.settings import DataSettings
from mdgan.errors import BadInput
from mdgan.gan.settings import TrainingSettings
from mdgan.metrics.settings import ScoreSettings
from mdgan.models.settings import ModelSettings
from mdgan.observe.settings import RecordSettings
from mdgan.privacy.secure_settings import LEAST_PARTIES, SecureSumSettings, summed
from mdgan.privacy.settings import BESIDE_PRIVACY, PrivacySettings
from mdgan.privacy.shared_noise import NoiseSharing, SharedNoiseSettings
from mdgan.settings import declare
from mdgan.spelling import flag

_MOST_RANKS = 100_000
_DEADLINE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(x?)")


class DeadlineRule(NamedTuple):
    """When the server goes on without missing answers; one of the two numbers is 0."""

    seconds: float
    factor: float  # of the median time of an answer

    def __str__(self) -> str:
        return (
            f"{declare.shortest(self.factor)}x" if self.factor else declare.shortest(self.seconds)
        )


def parse_deadline(text: str) -> DeadlineRule:
    """Reads `--deadline`.

    Raises:
        ValueError: neither seconds nor a factor.
    """
    match = _DEADLINE.fullmatch(text)
    if match is None or not 0 < (number := float(match[1])) < 1e7:
        raise ValueError("must be seconds, or a factor of the median answer time such as 3x")
    return DeadlineRule(0.0, number) if match[2] else DeadlineRule(number, 0.0)


def num_participants(fraction: float, num_workers: int) -> int:
    """C·N, rounded to the nearest whole number (a half to the even one), but at least one."""
    return min(num_workers, max(1, round(fraction * num_workers)))


class FaultSettings(declare.Settings, group="faults"):
    """What the server does about workers that are late, or answer nonsense."""

    deadline: DeadlineRule | None = declare.own_setting(
        None,
        "When to go on without the answers that are missing: seconds, or times the median answer "
        "time, such as 3x.",
        declare.parsed(parse_deadline),
        metavar="SECONDS|FACTORx",
        default_text="wait for every worker that lives",
        is_usual=True,
    )
    quorum: float = declare.own_key_setting(
        0.5,
        "Least fraction of the workers to wait for, past --deadline too.",
        declare.number(lambda fraction: 0 < fraction <= 1, "must be above 0 and at most 1"),
        metavar="FRACTION",
    )
    strikes: int = declare.own_key_setting(
        3,
        "Unusable answers, or messages without sense, after which a worker is shut out.",
        declare.whole(1),
    )


class CheckpointSettings(declare.Settings, group="faults"):
    """How often the state of a run is saved, and where."""

    checkpoint_interval: int = declare.own_setting(
        500,
        "Iterations between two checkpoints; there is one at the end, too. 0 for none at all.",
        declare.whole(0, otherwise="must be 0 or more"),
    )
    checkpoint_keep: int = declare.own_key_setting(
        2, "Number of checkpoints to keep.", declare.whole(1), metavar="K"
    )
    checkpoint_to_server: bool = declare.key_setting(
        False,
        "Workers send their state to rank 0 instead of writing it themselves.",
        declare.switch(),
    )


class RunSettings(declare.Settings):
    """The settings that every algorithm has.

    Together with the dataset file, the shared settings decide every bit of the result.
    """

    tells_once: ClassVar[bool] = False
    """Whether each worker sends one sum over all its samples before training, and nothing else."""

    data = declare.section(DataSettings)
    models = declare.section(ModelSettings)
    training = declare.section(TrainingSettings)
    scores = declare.section(ScoreSettings)
    records = declare.section(RecordSettings)
    faults = declare.section(FaultSettings)
    checkpoints = declare.section(CheckpointSettings)
    privacy = declare.section(PrivacySettings, is_offered=False)
    """Offered by algorithms whose workers can keep samples private."""
    secure = declare.section(SecureSumSettings, is_offered=False)
    """Offered by algorithms that need only sums of answers."""
    noise = declare.section(SharedNoiseSettings, is_offered=False)
    """Offered by algorithms whose workers may share the noise of their sum."""

    algorithm: str = declare.setting("", "What trains.", declare.text(), is_usual=True)
    world_size: int = declare.setting(
        5,
        "Number of ranks: the server and the workers.",
        declare.whole(2, _MOST_RANKS, below="needs at least 2, one server and one worker"),
        metavar="N",
        symbol="N + 1",
        other_names=("--workers", "--num-workers"),
        is_usual=True,
    )
    kappa: int | Literal["auto"] = declare.setting(
        "auto",
        "Generated batches that are judged in an iteration.",
        declare.whole(1, word="auto"),
        metavar="K|auto",
        symbol="κ",
        default_text="auto: max(2, ⌊log2 N⌋), or more with --step-samples",
        is_usual=True,
    )
    participation: float = declare.setting(
        1.0,
        "Fraction of the workers that train at a time.",
        declare.number(lambda fraction: 0 < fraction <= 1, "must be above 0 and at most 1"),
        symbol="C",
    )

    excludes = (*BESIDE_PRIVACY, summed("deadline checkpoint_to_server"))

    def check(self) -> None:
        """Refuses a profile of iterations after the last, and sums of too few answers."""
        profile, iterations = self.records.profile, self.training.iterations
        if profile is not None and profile.first > iterations:
            why = f"training ends with iteration {iterations}"
            raise BadInput(flag("profile", profile), why, "give earlier ones")
        self.noise.check_enough(self.num_workers)
        at_a_time = num_participants(self.participation, self.num_workers)
        if self.secure.secure_aggregation and at_a_time < LEAST_PARTIES:
            raise BadInput(
                flag("secure_aggregation"),
                f"a sum of {at_a_time} worker(s) at a time would tell what each has answered",
                f"use at least {LEAST_PARTIES} ({flag('world_size')}, {flag('participation')})",
            )

    @property
    def num_workers(self) -> int:
        """N, the number of workers at the start."""
        return self.world_size - 1

    @property
    def shares_noise(self) -> bool:
        """Whether each worker adds only a part of the noise, as the server sees sums alone."""
        return False

    @property
    def shares_counts(self) -> bool:
        """Whether each worker adds only a part of the noise to its counts of a table."""
        return self.secure.secure_aggregation and self.privacy.covers_samples

    @property
    def goes_by_classes(self) -> bool:
        """Whether training follows how many samples of each class each worker holds."""
        return False

    @property
    def hides_classes(self) -> bool:
        """Whether workers add noise to these counts; its ε is charged before training."""
        privacy = self.privacy
        return self.goes_by_classes and privacy.covers_samples and not privacy.discloses("classes")

    @property
    def tells_classes(self) -> bool:
        """Whether workers send the server these counts."""
        return self.goes_by_classes or self.privacy.discloses("classes")

    def noise_sharing(self, least: int = 1) -> NoiseSharing | None:
        """How a sum shares noise, for a host that wants `least` sharers; None if it shares none."""
        if not (self.shares_noise or self.shares_counts):
            return None
        sharers, alone = self.noise.noise_sharers, not self.shares_noise
        return NoiseSharing(self.num_workers, sharers, least, counts_alone=alone)

    @property
    def num_placed(self) -> int | None:
        """How many clients are placed on any host; None if each client is a worker with a rank."""
        return None

    @property
    def num_reals(self) -> int:
        """From how many real samples a discriminator learns in a local step."""
        return self.training.batch_size

    @property
    def num_fakes(self) -> int:
        """From how many generated samples a discriminator learns in a local step."""
        return self.training.batch_size

    def holds_data(self, _worker: int) -> bool:
        """Whether a worker, of the start or a later one, trains on real samples."""
        return True

    @property
    def makes_checkpoints(self) -> bool:
        """Whether the run is long enough for a checkpoint."""
        return 0 < self.checkpoints.checkpoint_interval <= self.training.iterations
