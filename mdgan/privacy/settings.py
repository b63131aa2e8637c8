"""The settings of differential privacy, and the settings that they exclude."""

from dataclasses import dataclass
from math import inf
from typing import Protocol

from mdgan.errors import BadInput
from mdgan.gan.regularizers.registry import REGULARIZERS
from mdgan.gan.settings import TrainingSettings
from mdgan.privacy.accountant import MOST_NOISE
from mdgan.settings import declare
from mdgan.settings.excludes import Condition, Excludes, table
from mdgan.spelling import flag

FEATURES = "features"  # statistics that hosts send for scores
DISCLOSABLE = ("classes", FEATURES, "losses")
_PLAIN_CLIP = 1.0


@dataclass(frozen=True)
class Disclosed:
    """Facts about their data that workers tell without noise: some of `DISCLOSABLE`."""

    names: tuple[str, ...]

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __str__(self) -> str:
        return ",".join(self.names)

    @classmethod
    def parse(cls, text: str) -> "Disclosed":
        """Reads `--dp-disclose`; raises ValueError for an unknown name."""
        names = [name.strip() for name in text.split(",")]
        if not set(names) <= set(DISCLOSABLE):
            raise ValueError(f"must be some of {', '.join(DISCLOSABLE)}")
        return cls(tuple(name for name in DISCLOSABLE if name in names))


_EITHER = f"{flag('dp_epsilon')} or {flag('dp_noise')}"
_NOT_PRIVATE = Condition(f"no {_EITHER}", lambda privacy: not privacy.has_dp)
_TOLD = Condition(
    f"{flag('dp_unit', 'client')} or {flag('dp_disclose', 'classes')}",
    lambda privacy: privacy.hides_clients or privacy.discloses("classes"),
    lambda privacy: (
        flag("dp_unit", "client")
        if privacy.hides_clients
        else flag("dp_disclose", privacy.dp_disclose)
    ),
)
_NO_NOISE = Condition(
    "no noise that hides a worker's samples", lambda privacy: not privacy.covers_samples
)


class PrivacySettings(declare.Settings, group="privacy"):
    """How private each worker's data stay; equal on all ranks, except `own_` settings."""

    dp_epsilon: float | None = declare.setting(
        None,
        "Differential privacy of each worker's samples: noise such that what leaves the worker "
        "tells of none of them more than epsilon allows. A worker that has spent it leaves. See "
        "--dp-unit for clients as wholes.",
        declare.number(lambda e: 0 < e < inf, "must be above 0; leave it out for no privacy"),
        metavar="E",
        symbol="ε",
        default_text="no differential privacy",
        other_names=("--epsilon", "--target-epsilon", "--dp"),
        is_usual=True,
    )
    dp_delta: float | None = declare.setting(
        None,
        "The probability with which epsilon may not hold; below 1 / a worker's number of samples, "
        "or 1 / the number of clients.",
        declare.number(lambda d: 0 < d < 1, "must be above 0 and below 1, such as 0.00001"),
        metavar="D",
        symbol="δ",
        other_names=("--delta", "--target-delta"),
        is_usual=True,
    )
    dp_noise: float | None = declare.setting(
        None,
        "Standard deviation of the noise, in units of --dp-clip; 0 for none, which protects "
        "nothing.",
        declare.number(
            lambda sigma: sigma == 0 or 1e-3 <= sigma <= MOST_NOISE, "must be 0, or 0.001 to 1e5"
        ),
        metavar="SIGMA",
        symbol="σ",
        default_text="what --dp-epsilon takes",
        other_names=("--noise-multiplier",),
    )
    dp_clip: float | None = declare.setting(
        None,
        "The norm to which the gradient of each real sample is cut, or each client's update; inf "
        "for none.",
        declare.number(
            lambda clip: 1e-9 <= clip <= 1e9 or clip == inf, "must be 1e-9 to 1e9; inf cuts nothing"
        ),
        symbol="C",
        default_text="1",
        other_names=("--max-grad-norm", "--clip-norm"),
    )
    dp_public_samples: int | None = declare.own_key_setting(
        None,
        "The number of samples that each worker here states instead of its true number, and not "
        "less than it. Noisy sums still tell about how many there are. Batches, noise and what "
        "the server is told follow from it.",
        declare.whole(1),
        metavar="N",
        symbol="n̂",
        default_text="the true number",
    )
    dp_accountant: str = declare.key_setting(
        "rdp",
        "Which of Opacus's accountants says what epsilon is: rdp, or prv, which needs up to a "
        "tenth less noise and some seconds at the start.",
        declare.one_of("rdp", "prv"),
    )
    dp_encoding_share: float = declare.key_setting(
        0.2,
        "The share of epsilon that each kind of counts takes before training: those of a table, by "
        "which all sites learn how values spread; those of classes, where clients are drawn or "
        "weighed by theirs. With --algorithm moments the share of 1/sigma^2, 0.5 at most.",
        declare.number(lambda share: 0 < share < 1, "must be above 0 and below 1"),
        metavar="SHARE",
    )
    dp_disclose: Disclosed | None = declare.setting(
        None,
        "What workers under differential privacy tell of their data although epsilon does not "
        f"cover it: {', '.join(DISCLOSABLE)}.",
        declare.parsed(Disclosed.parse, several=True),
        metavar="WHAT[,WHAT…]",
        default_text="nothing but their number of samples",
    )
    dp_ledger: str | None = declare.own_setting(
        None,
        "Folder on this machine that remembers what its samples have spent, in all runs; keep it.",
        declare.text(),
        metavar="DIR",
        default_text="~/.local/state/mdgan/privacy",
    )
    audit_canaries: int = declare.own_setting(
        0,
        "Test records of each worker here, of which a secret random half is used: from them mdgan "
        "audit computes a lower bound on the run's own epsilon. The worker's samples stay as they "
        "are, and each step takes longer.",
        declare.whole(0),
        metavar="M",
        default_text="none",
    )
    batch_sampling: str = declare.setting(
        "shuffled",
        "How batches of real samples are drawn: shuffled, each sample once before any comes again; "
        "or poisson, each sample with the same probability, so that a batch may be of any size. "
        "Differential privacy draws by poisson.",
        declare.one_of("shuffled", "poisson"),
        group="data",
    )

    @property
    def has_dp(self) -> bool:
        """Whether the user asked for differential privacy, even if without noise."""
        return self.dp_epsilon is not None or self.dp_noise is not None

    excludes = table(
        """
        @not_private | dp_delta dp_clip dp_disclose dp_public_samples dp_ledger |
            is for {dp_epsilon} or {dp_noise}
        dp_epsilon    | dp_noise=0.0 |
            there must be noise, for without it there is no epsilon
        @told        | dp_public_samples                        | the true number is told
        @no_noise    | audit_canaries |
            is for noise that hides a worker's samples; add {dp_epsilon} or {dp_noise} without
            {dp_unit=client}, or leave it out
        """,
        not_private=_NOT_PRIVATE,
        told=_TOLD,
        no_noise=_NO_NOISE,
    )

    @property
    def hides_clients(self) -> bool:
        """Whether noise hides each client as a whole."""
        return False

    @property
    def hides_samples(self) -> bool:
        """Whether workers add the noise, to hide each of their samples."""
        return self.has_dp and not self.hides_clients

    @property
    def covers_samples(self) -> bool:
        """Whether workers' noise covers what they tell about their samples."""
        return self.hides_samples and self.dp_noise != 0

    @property
    def keeps_ledger(self) -> bool:
        """Whether a ledger is needed: there is noise, and its numbers must never repeat."""
        return self.has_dp and self.dp_noise != 0

    @property
    def draws_poisson(self) -> bool:
        """Whether real batches are drawn by Poisson sampling."""
        return self.hides_samples or self.batch_sampling == "poisson"

    @property
    def poisson_flag(self) -> str:
        """The flag by which the user asked for Poisson sampling."""
        return self.dp_flag if self.hides_samples else flag("batch_sampling", "poisson")

    @property
    def clip(self) -> float:
        """C; infinite if nothing is cut."""
        if not self.has_dp:
            return inf
        return _PLAIN_CLIP if self.dp_clip is None else self.dp_clip

    def public_samples(self, num_samples: int) -> int:
        """n̂, the number of samples that a worker with n samples states."""
        return num_samples if self.dp_public_samples is None else self.dp_public_samples

    @property
    def keeps_classes(self) -> bool:
        """Whether the numbers of samples by class are secret, so that only noisy ones count."""
        return self.draws_poisson and not self.discloses("classes")

    def discloses(self, what: str) -> bool:
        """Whether workers may tell `what`, one of `DISCLOSABLE`, without noise."""
        return not self.has_dp or (self.dp_disclose is not None and what in self.dp_disclose)

    @property
    def dp_flag(self) -> str:
        """The flag by which the user asked for differential privacy; empty without it."""
        name = "dp_noise" if self.dp_epsilon is None else "dp_epsilon"
        return flag(name, declare.shortest(getattr(self, name))) if self.has_dp else ""

    def check(self) -> None:
        """Raises BadInput if the settings give no guarantee."""
        if not self.keeps_ledger:
            return
        if self.clip == inf:
            raise BadInput(
                flag("dp_clip", "inf"),
                f"{self.dp_flag} needs a bound for what each "
                f"{'client' if self.hides_clients else 'sample'} adds",
                "give one, such as 1",
            )
        if self.dp_delta is None:
            raise BadInput(
                self.dp_flag,
                "holds but for a probability delta",
                f"add {flag('dp_delta')}, below 1 / the number of "
                f"{'clients' if self.hides_clients else 'samples of a worker'}",
            )


class ClientPrivacySettings(PrivacySettings):
    """Settings of algorithms whose noise may also hide clients as wholes."""

    dp_unit: str = declare.setting(
        "sample",
        "What differential privacy hides: a sample, by noise of the workers; or a client as a "
        "whole, by noise of the server, which is trusted with what clients send, or with "
        "--secure-aggregation by noise that all clients share. Clients' updates are cut to "
        "--dp-clip, and clients drawn by --sampling poisson.",
        declare.one_of("sample", "client"),
        group="privacy",
    )

    @property
    def hides_clients(self) -> bool:
        return self.has_dp and self.dp_unit == "client"

    @property
    def update_clip(self) -> float:
        """C of a client's update; infinite if updates are not cut."""
        return self.clip if self.hides_clients else inf

    @property
    def discloses_losses(self) -> bool:
        """Whether clients may tell their losses."""
        return not self.hides_clients or self.discloses("losses")

    @property
    def names_clients(self) -> bool:
        """Whether records may name the clients that took part in a round."""
        return not (self.hides_clients and self.keeps_ledger)


class Private(Protocol):
    """Settings of a run, as far as privacy depends on them."""

    @property
    def tells_once(self) -> bool:
        """Whether each worker tells one sum over all its samples, before training."""

    @property
    def training(self) -> TrainingSettings:
        """The number of iterations and local steps, and the batch size."""

    @property
    def privacy(self) -> PrivacySettings:
        """The settings of differential privacy."""


POISSON = Condition(
    f"{flag('batch_sampling', 'poisson')}, {_EITHER}",
    lambda settings: settings.privacy.draws_poisson,
    lambda settings: settings.privacy.poisson_flag,
)
_SAMPLES = Condition(_EITHER, lambda settings: settings.privacy.hides_samples, POISSON.shown)
UNTOLD = Condition(
    f"{_EITHER} without {flag('dp_disclose', 'classes')}",
    lambda settings: settings.privacy.keeps_classes,
    POISSON.shown,
)
BESIDE_PRIVACY = table(
    """
    @poisson  | merge_halves  | with {when} real samples are judged by themselves; or leave it out
    @poisson  | r1+augment    |
        with {when} the penalty is taken at samples as they are, and augmentation changes them;
        leave out one of the two
    @poisson  | precision     |
        with {when} gradients of single samples are computed in fp32; or leave it out
    @poisson  | compile       |
        with {when} gradients of single samples are computed uncompiled; or leave it out
    @poisson  | channels_last |
        with {when} gradients of single samples are computed plane by plane; or leave it out
    @poisson  | vectorize     |
        with {when} each worker draws batches of a size of their own; or leave it out
    @samples  | profile       |
        with {when} it tells how long real samples take, and with that of which samples; or leave it
        out
    """,
    poisson=POISSON,
    samples=_SAMPLES,
) + tuple(
    Excludes(POISSON, what, f"with {{when}} {why}; or leave it out")
    for what, why in (kind.reads_real_samples for kind in REGULARIZERS)
    if what
)
"""Settings of a run that exclude privacy: they read real samples elsewhere, or not one by one."""
