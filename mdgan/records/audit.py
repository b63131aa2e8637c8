"""The results of `mdgan audit` as typed values: the fields of `audit.json`, and its pictures."""

import contextlib
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from mdgan.records.rows import Count, Rank, Seconds, json_object, typed
from mdgan.storage.foreign_file import read_whole

AUDIT_FILE = "audit.json"
PICTURES = "audit"  # the folder of the pictures in a run's folder

NEIGHBOURS = "neighbours.png"
"""A picture there: generated samples, under each the nearest sample trained on and held out."""

FALSE_ALARMS = (
    0.01,
    0.001,
)  # the shares of false alarms for which an audit measures `MembersFound`

TOO_FEW = "too few others"  # the text instead of a share that too few others cannot determine

FOUND_AT = tuple(f"found at {100 * alarms:g} % false alarms" for alarms in FALSE_ALARMS)
"""The headings of these shares."""

_Share = Annotated[float, Meta(ge=0, le=1)]
_Finite = Annotated[float, Meta(ge=-1e9, le=1e9)]


class MembersFound(Struct, frozen=True, kw_only=True):
    """The share of members that an attack finds, if the share of false alarms is at most `alarms`.

    Half of the non-members decide the threshold, and the other half count its false alarms.
    Intervals are those of Clopper and Pearson 1934, with 95 % confidence.
    """

    alarms: _Share
    share: _Share
    interval: tuple[_Share, _Share]
    real_alarms: tuple[_Share, _Share]

    def __str__(self) -> str:
        """The share in percent with its interval, such as 3.2 % (1.9–5.0)."""
        low, high = (100 * end for end in self.interval)
        return f"{100 * self.share:.1f} % ({low:.1f}–{high:.1f})"


class Separation(Struct, frozen=True, kw_only=True):
    """How well an attack's score separates members, the samples trained on, from other samples."""

    members: Count
    others: Count
    auc: _Share  # the chance that a member scores higher than another sample; 0.5 is guessing
    # The standard error of `auc`; if classes are known, the scatter of `auc` when members and
    # others are exchanged at random within their classes.
    error: _Share
    chance: _Share | None = None  # the mean AUC of these exchanges; None without classes
    # The share of these AUCs that are as high as `auc`; small if the attack works.
    place: _Share | None = None
    found: list[MembersFound] = []
    # Points (false positive rate, true positive rate) of the ROC curve, in order.
    curve: list[tuple[_Share, _Share]] = []

    def found_in_words(self) -> list[str]:
        """The share of members found at each of `FALSE_ALARMS`, as texts."""
        shares = {found.alarms: str(found) for found in self.found}
        return [shares.get(alarms, TOO_FEW) for alarms in FALSE_ALARMS]


class Judged(Struct, frozen=True, kw_only=True):
    """Membership inference against one discriminator."""

    # The worker that had it at the end; 0 for a discriminator of the server's.
    worker: Annotated[int, Meta(ge=0)]
    last: Annotated[int, Meta(ge=0)]  # the last worker that trained it; 0 for all
    iterations: dict[Rank, Count] = {}
    of_last: Separation
    of_all: Separation  # samples of all workers that trained it, against others


class Copying(Struct, frozen=True, kw_only=True):
    """Attacks against the generator by distances between samples, in one `space`."""

    space: str  # `features` or `pixels`
    # Samples trained on against others, by their distance to generated samples.
    membership: Separation
    # The median, over generated samples, of the distance to the nearest sample trained on, divided
    # by that to the nearest of as many held-out samples; 1 without copies, 0 with copies alone.
    ratio: Seconds
    # The share of generated samples that are nearer to a sample trained on; 0.5 is chance.
    nearer: _Share
    error: _Share  # the scatter of `nearer` when both are exchanged at random within their classes
    # The share of generated samples that are copies of samples trained on, beyond the share that
    # held-out samples have by chance; None if it was not measured.
    copied: _Share | None = None

    def nearer_in_words(self) -> str:
        """`nearer` in percent."""
        return f"{100 * self.nearer:.0f} ± {100 * self.error:.0f} %"


class Inversion(Struct, frozen=True, kw_only=True):
    """What an answer of a worker reveals of the real batch from which it was computed."""

    answer: str  # `update` or `feedback`
    batch_size: Count
    # The samples of batches against others of the shard, by how well each explains the answer.
    found: Separation
    # For feedback, if the discriminator is not known: a shard's samples against others.
    blind: Separation | None = None
    # The likeness of a batch's samples to the nearest pictures that explain the answer: mean dB.
    psnr: _Finite
    # The same as structural similarity; None if pictures are too small.
    ssim: _Finite | None = None
    best_psnr: _Finite
    control_psnr: _Finite  # as `psnr`, for samples of the shard that were in no batch

    @property
    def picture(self) -> str:
        """The file that shows samples of a batch above the pictures made from the answer."""
        return f"{self.answer}-{self.batch_size}.png"


class Bound(Struct, frozen=True, kw_only=True):
    """A lower bound on a run's ε, measured by canaries, and flaws that direct tests have found."""

    kind: str  # of canaries: `gradients`, or planted `samples`
    canaries: Count
    guesses: Count  # r, for how many canaries the attacker guessed whether they were trained on
    right: Count  # how many guesses were right
    delta: _Share
    confidence: _Share  # that the run is not (ε, δ)-private for any ε below `epsilon`
    epsilon: Seconds
    stated: Seconds  # the ε that the run states
    surely: Seconds | None = None  # as `epsilon`, with the confidence that `contradicts` needs
    ceiling: Seconds | None = None  # the value of `epsilon` if all guesses were right
    method: str = "any mechanism"  # what the bound assumes of the mechanism
    # The measured noise, divided by the noise that the run states; of all workers the least.
    noise: Seconds | None = None
    # The most, in units of C, that any tested sample adds.
    longest: Annotated[float, Meta(ge=0)] | None = None
    flaws: list[str] = []  # results of direct tests that contradict the run's statements

    @property
    def contradicts(self) -> bool:
        """Whether the run is surely less private than it states."""
        return self.at_least > self.stated

    @property
    def at_least(self) -> float:
        """The bound on ε by which policies decide; with flaws, larger than any ε."""
        surely = self.epsilon if self.surely is None else self.surely
        return 1e9 if self.flaws else surely

    def __str__(self) -> str:
        most = "" if self.ceiling is None else f", at most {self.ceiling:.3g} could be shown"
        share = f"{100 * self.confidence:.0f} %"
        bound = f"ε ≥ {self.epsilon:.2f} ({share}){most}, stated ≤ {self.stated:.3g}"
        return "; ".join([bound, *self.flaws])


class Audit(Struct, frozen=True, kw_only=True):
    """All results of one audit."""

    iteration: Count  # of the generator
    checkpoint: Count | None = None  # the iteration of the discriminators
    seed: int
    num_generated: Count
    extractor: str
    discriminators: list[Judged] = []
    generator: list[Copying] = []
    inversions: list[Inversion] = []
    epsilon: dict[Count, Seconds] = {}
    bound: Bound | None = None
    left_out: dict[str, str] = {}
    compared: bool = False  # whether it compared held-out samples with those trained on


def read_audit(run: Path) -> Audit | None:
    """Reads the last audit of a run; None if there is none, or if its file is damaged."""
    with contextlib.suppress(OSError, ValueError):
        return typed(json_object(read_whole(run / AUDIT_FILE)), Audit)
    return None
