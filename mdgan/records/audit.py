"""What `mdgan audit` found out about a run: `audit.json`, and the pictures in `audit/`."""

import contextlib
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from mdgan.records.rows import Count, Rank, Seconds, json_object, typed
from mdgan.storage.foreign_file import read_whole

AUDIT_FILE = "audit.json"
PICTURES = "audit"  # the folder of the pictures in a run's folder

NEIGHBOURS = "neighbours.png"
"""There: generated samples, under each the nearest one trained on, and the nearest held-out one."""

FALSE_ALARMS = (0.01, 0.001)  # at which shares of false alarms the share of members found is told

TOO_FEW = "too few others"  # stands for a share of members found that so few others cannot tell

FOUND_AT = tuple(f"found at {100 * alarms:g} % false alarms" for alarms in FALSE_ALARMS)
"""What these shares are called."""

_Share = Annotated[float, Meta(ge=0, le=1)]
_Finite = Annotated[float, Meta(ge=-1e9, le=1e9)]


class MembersFound(Struct, frozen=True, kw_only=True):
    """The share of members that an attack finds with few false alarms, at most `alarms`.

    The threshold was chosen by half of the others, and its false alarms counted among the rest.
    Intervals are those of Clopper and Pearson 1934, with 95 % confidence.
    """

    alarms: _Share
    share: _Share
    interval: tuple[_Share, _Share]
    real_alarms: tuple[_Share, _Share]

    def __str__(self) -> str:
        """In percent: 3.2 % (1.9–5.0)."""
        low, high = (100 * end for end in self.interval)
        return f"{100 * self.share:.1f} % ({low:.1f}–{high:.1f})"


class Separation(Struct, frozen=True, kw_only=True):
    """How well an attack's score tells members, which were trained on, from others."""

    members: Count
    others: Count
    auc: _Share  # the chance that a member scores higher than another sample; 0.5 is guessing
    # The standard error of `auc`; where classes are known, how far it scatters when members and
    # others change places at random within their classes.
    error: _Share
    chance: _Share | None = None  # the mean AUC then; None where classes are not known
    # The share of these AUCs that are as high as `auc`; it is small if the attack works.
    place: _Share | None = None
    found: list[MembersFound] = []
    # Points (false positive rate, true positive rate) of the ROC curve, in order.
    curve: list[tuple[_Share, _Share]] = []

    def found_in_words(self) -> list[str]:
        """The share of members found at each of `FALSE_ALARMS`."""
        told = {found.alarms: str(found) for found in self.found}
        return [told.get(alarms, TOO_FEW) for alarms in FALSE_ALARMS]


class Judged(Struct, frozen=True, kw_only=True):
    """Membership inference against one discriminator."""

    # Where it was at the end; 0 for the one that is the server's.
    worker: Annotated[int, Meta(ge=0)]
    last: Annotated[int, Meta(ge=0)]  # the worker that it was trained by last; 0 for all
    iterations: dict[Rank, Count] = {}
    of_last: Separation
    of_all: Separation  # the samples of all workers that it was trained by against others


class Copying(Struct, frozen=True, kw_only=True):
    """Attacks against the generator by distances between samples, in `features` or `pixels`."""

    space: str
    # Samples trained on against others, by their distance to what is generated.
    membership: Separation
    # The median over generated samples of the distance to the nearest sample trained on, by that to
    # the nearest of as many held-out ones; 1 if it copies nothing, 0 if all.
    ratio: Seconds
    # The share of generated samples that lie nearer to one trained on; 0.5 is chance.
    nearer: _Share
    error: _Share  # how far that scatters when both change place at random within their classes
    # The share of generated samples that are copies of any sample trained on, more than held-out
    # samples are by chance; None where it was not measured.
    copied: _Share | None = None

    def nearer_in_words(self) -> str:
        """`nearer` in percent."""
        return f"{100 * self.nearer:.0f} ± {100 * self.error:.0f} %"


class Inversion(Struct, frozen=True, kw_only=True):
    """What an `update` or a `feedback` of a worker tells of the real batch that it learnt from."""

    answer: str
    batch_size: Count
    # The samples of batches against others of the shard, by how well each explains it.
    found: Separation
    # Of feedback, without knowing the discriminator: a shard's samples against others.
    blind: Separation | None = None
    # How like the samples of a batch are the nearest that explain the answer, in dB; a mean.
    psnr: _Finite
    # The same as structural similarity; None where pictures are too small.
    ssim: _Finite | None = None
    best_psnr: _Finite
    control_psnr: _Finite  # as `psnr`, of samples of the shard that were in no batch

    @property
    def picture(self) -> str:
        """The file that shows samples of a batch above what was made of the answer."""
        return f"{self.answer}-{self.batch_size}.png"


class Bound(Struct, frozen=True, kw_only=True):
    """What canaries, `gradients` or planted `samples`, and direct tests say of a run's own ε."""

    kind: str
    canaries: Count
    guesses: Count  # r, of how many the attacker guessed whether they were among the samples
    right: Count
    delta: _Share
    confidence: _Share  # with which the run is not (ε, δ)-private for any ε below `epsilon`
    epsilon: Seconds
    stated: Seconds
    surely: Seconds | None = None  # the same with more confidence, by which a run is contradicted
    ceiling: Seconds | None = None  # what `epsilon` would be if all guesses were right
    method: str = "any mechanism"  # what the bound takes for granted of the mechanism
    # How large the noise of some worker is, at least, by what is stated.
    noise: Seconds | None = None
    # What a sample adds, at most, in C, of those that were tried.
    longest: Annotated[float, Meta(ge=0)] | None = None
    flaws: list[str] = []  # what direct tests found that cannot be if the run does as it says

    @property
    def contradicts(self) -> bool:
        """Whether the run cannot be as private as it states."""
        return self.at_least > self.stated

    @property
    def at_least(self) -> float:
        """A bound on ε that policies may decide by; above all that can be stated with flaws."""
        surely = self.epsilon if self.surely is None else self.surely
        return 1e9 if self.flaws else surely

    def __str__(self) -> str:
        could = "" if self.ceiling is None else f", at most {self.ceiling:.3g} could be shown"
        share = f"{100 * self.confidence:.0f} %"
        told = f"ε ≥ {self.epsilon:.2f} ({share}){could}, stated ≤ {self.stated:.3g}"
        return "; ".join([told, *self.flaws])


class Audit(Struct, frozen=True, kw_only=True):
    """All that was found out; `checkpoint` is the iteration of the discriminators."""

    iteration: Count
    checkpoint: Count | None = None
    seed: int
    num_generated: Count
    extractor: str
    discriminators: list[Judged] = []
    generator: list[Copying] = []
    inversions: list[Inversion] = []
    epsilon: dict[Count, Seconds] = {}
    bound: Bound | None = None
    left_out: dict[str, str] = {}
    # Whether held-out samples were compared with those trained on; else an older version audited.
    compared: bool = False


def read_audit(run: Path) -> Audit | None:
    """What the last audit of a run wrote; None if there is none, or it is damaged."""
    with contextlib.suppress(OSError, ValueError):
        return typed(json_object(read_whole(run / AUDIT_FILE)), Audit)
    return None
