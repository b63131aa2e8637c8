"""What `mdgan audit` found out about a run: `audit.json`, and the pictures in `audit/`."""

import contextlib
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from mdgan.records.rows import Count, Rank, Seconds, json_object, typed

AUDIT_FILE = "audit.json"
PICTURES = "audit"
"""The folder of the pictures in a run's folder."""

NEIGHBOURS = "neighbours.png"
"""There: generated samples, under each the nearest one trained on, and the nearest held-out one."""

FALSE_POSITIVES = 0.01
"""At which share of false alarms the share of members found is told."""

_Share = Annotated[float, Meta(ge=0, le=1)]
_Finite = Annotated[float, Meta(ge=-1e9, le=1e9)]


class Separation(Struct, frozen=True, kw_only=True):
    """How well an attack's score tells members from others.

    Attributes:
        members: how many samples it was told that were trained on.
        others: how many that were not.
        auc: area under the ROC curve, the chance that a member scores higher than another sample;
            0.5 is guessing.
        error: the standard error of `auc`.
        tpr: the share of members that are found while at most 1 % of the others are taken for some.
        curve: points (false positive rate, true positive rate) of the ROC curve, in order.
    """

    members: Count
    others: Count
    auc: _Share
    error: _Share
    tpr: _Share
    curve: list[tuple[_Share, _Share]] = []


class Judged(Struct, frozen=True, kw_only=True):
    """Membership inference against one discriminator.

    Attributes:
        worker: where it was at the end; 0 for the one that is the server's.
        last: the worker that it was trained by last; 0 for all.
        iterations: worker → the iterations that it was trained by that one.
        of_last: its last worker's samples against others.
        of_all: the samples of all workers that it was trained by against others.
    """

    worker: Annotated[int, Meta(ge=0)]
    last: Annotated[int, Meta(ge=0)]
    iterations: dict[Rank, Count] = {}
    of_last: Separation
    of_all: Separation


class Copying(Struct, frozen=True, kw_only=True):
    """Attacks against the generator by distances between samples.

    Attributes:
        space: where distances are measured: `features` or `pixels`.
        membership: samples trained on against others, by their distance to what is generated.
        ratio: the median over generated samples of the distance to the nearest sample trained on,
            by that to the nearest of as many held-out ones; 1 if it copies nothing, 0 if all.
        nearer: the share of generated samples that lie nearer to one trained on; 0.5 is chance.
    """

    space: str
    membership: Separation
    ratio: Seconds
    nearer: _Share


class Inversion(Struct, frozen=True, kw_only=True):
    """What a single answer of a worker tells of the real batch that it learnt from.

    Attributes:
        answer: `update`, the gradient of its discriminator; or `feedback`.
        batch_size: of the real batch.
        found: the samples of batches against others of the shard, by how well each explains the
            answer.
        blind: of feedback, without knowing the discriminator: a shard's samples against others.
        psnr: how like the samples of a batch are the nearest of those that explain the answer,
            in dB; the mean over the samples.
        ssim: the same as structural similarity; None where pictures are too small.
        best_psnr: of the sample that came out best.
        control_psnr: as `psnr`, of samples of the shard that were in no batch.
    """

    answer: str
    batch_size: Count
    found: Separation
    blind: Separation | None = None
    psnr: _Finite
    ssim: _Finite | None = None
    best_psnr: _Finite
    control_psnr: _Finite

    @property
    def picture(self) -> str:
        """The file that shows samples of a batch above what was made of the answer."""
        return f"{self.answer}-{self.batch_size}.png"


class Audit(Struct, frozen=True, kw_only=True):
    """All that was found out.

    Attributes:
        iteration: of the generator that was attacked.
        checkpoint: the iteration of the discriminators; None without any.
        seed: of all draws.
        num_generated: n, the samples drawn from the generator.
        extractor: the network that features are of; empty if there was none.
        discriminators: one each.
        generator: one for each space.
        inversions: one for each kind of answer and batch size.
        epsilon: worker → ε that its samples have spent; empty without differential privacy.
        left_out: attack → why it was not tried.
    """

    iteration: Count
    checkpoint: Count | None = None
    seed: int
    num_generated: Count
    extractor: str
    discriminators: list[Judged] = []
    generator: list[Copying] = []
    inversions: list[Inversion] = []
    epsilon: dict[Count, Seconds] = {}
    left_out: dict[str, str] = {}


def read_audit(run: Path) -> Audit | None:
    """What the last audit of a run wrote; None if there is none, or it is damaged.

    Args:
        run: its folder.
    """
    with contextlib.suppress(OSError, ValueError):
        return typed(json_object((run / AUDIT_FILE).read_bytes()), Audit)
    return None
