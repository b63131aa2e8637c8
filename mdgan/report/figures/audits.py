"""Figures of `mdgan audit`: ROC curves, samples that look copied, single answers, a bound on ε."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mdgan.records.audit import FOUND_AT, NEIGHBOURS, PICTURES, Inversion, Separation
from mdgan.records.values import said
from mdgan.report.figures.charts import DASHED, SOFT, legend, new_axes, style_of_one
from mdgan.report.figures.picture import OfRun, PictureFile, Row
from mdgan.report.figures.samples import read_picture
from mdgan.report.numbers.subject import Subject

_INCHES = 3.2
_OF_ATTACKS = ("attack", "against samples of", "trained on", "others", "AUC", "±", *FOUND_AT)
_OF_COPIES = ("distances in", "to trained on by to held out", "nearer to one trained on")
_OF_ANSWERS = (
    *("batch of", "AUC of its samples", "AUC of the shard, blind", "PSNR [dB]"),
    *("PSNR of others [dB]", "SSIM", "best PSNR [dB]"),
)
_OF_BOUND = (
    *("canaries", "kind", "guesses", "right", "ε at least", "with confidence", "could be shown"),
    *("ε stated", "noise by what is stated", "a sample adds [C]"),
)


class Attack(NamedTuple):
    """An attack that tells members from others, and the workers whose samples it attacks."""

    name: str
    against: str
    found: Separation
    drawn: bool = True


def by_discriminators(subject: Subject) -> OfRun | None:
    """The attacks with all discriminators: on their last worker's samples, and on all others'."""
    attacks = []
    for one in subject.run.audit.discriminators if subject.run.audit else ():
        name = f"at worker {one.worker}" if one.worker else "the server's"
        last = f"worker {one.last}" if one.last else "all workers"
        attacks.append(Attack(name, last, one.of_last))
        if one.last and len(one.iterations) > 1:
            attacks.append(Attack(name, "all that trained it", one.of_all, drawn=False))
    return _roc(subject, attacks)


def by_generator(subject: Subject) -> OfRun | None:
    """The attacks by distances to generated samples."""
    copying = subject.run.audit.generator if subject.run.audit else ()
    attacks = [Attack(f"by {one.space}", "all workers", one.membership) for one in copying]
    return _roc(subject, attacks)


def _roc(subject: Subject, attacks: Sequence[Attack]) -> OfRun | None:
    """The ROC curves of attacks, with the ε that the run has spent."""
    if not attacks:
        return None
    rows = [
        (*(name, against, f"{found.members:,}", f"{found.others:,}"),
         *(f"{found.auc:.3f}", f"{found.error:.3f}", *found.found_in_words()))
        for name, against, found, _ in attacks
    ]  # fmt: skip
    drawn = [attack for attack in attacks if attack.drawn]
    areas = [attack.found.auc for attack in drawn]
    low, high = f"{min(areas):.2f}", f"{max(areas):.2f}"
    summary = f"AUC {low}" if low == high else f"AUC {low} to {high}"
    if (audit := subject.run.audit) is not None and audit.epsilon:
        spent = said(max(audit.epsilon.values()))
        summary += f"; of differential privacy at most ε = {spent} is spent"
    figure, axes = new_axes(_INCHES)
    for place, attack in enumerate(drawn):
        x, y = zip(*attack.found.curve, strict=True)
        axes.plot(x, y, **style_of_one(attack.name, place, len(drawn)))
    axes.plot((0, 1), (0, 1), color=SOFT, linestyle=DASHED, linewidth=0.8)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set(xlabel="held-out samples taken for members", ylabel="members found")
    legend(figure)
    return OfRun(rows, summary, figure, header=_OF_ATTACKS)


def copies(subject: Subject) -> OfRun | None:
    """The generated samples that look most like copies."""
    found = subject.run.audit.generator if subject.run.audit else ()
    file = _picture(subject, NEIGHBOURS)
    if not found or file is None:
        return None
    rows = [(one.space, said(one.ratio), one.nearer_in_words()) for one in found]
    ratios = [f"{said(one.ratio)} in {one.space}" for one in found]
    summary = (
        "The distance of a generated sample to the nearest sample trained on, by that to the "
        f"nearest of as many held-out ones, is {' and '.join(ratios)} (medians; 1 copies "
        "nothing)"
    )
    what = f"Samples of {subject.label} that look copied"
    still = (file, subject.label, f"iteration {file.iteration:,}")
    return OfRun(rows, summary, pictures=(what, [still]), header=_OF_COPIES)


def of_answers(kind: str) -> Callable[[Subject], OfRun | None]:
    """What attacks learnt about batches from single answers of a kind, `update` or `feedback`."""

    def draw(subject: Subject) -> OfRun | None:
        audit = subject.run.audit
        tried = [each for each in audit.inversions if each.answer == kind] if audit else []
        inverted = [(one, file) for one in tried if (file := _picture(subject, one.picture))]
        if not inverted:
            return None
        summary = [f"{said(one.psnr)} dB of a batch of {one.batch_size:,}" for one, _ in inverted]
        stills = [(file, subject.label, f"batch of {one.batch_size:,}") for one, file in inverted]
        what = f"Real samples of {subject.label}, and what was made of answers"
        rows = [_row(one) for one, _ in inverted]
        return OfRun(
            rows, f"PSNR {', '.join(summary)}", pictures=(what, stills), header=_OF_ANSWERS
        )

    return draw


def _row(each: Inversion) -> Row:
    return (
        *(f"{each.batch_size:,}", f"{each.found.auc:.3f}"),
        "–" if each.blind is None else f"{each.blind.auc:.3f}",
        *(said(each.psnr), said(each.control_psnr), said(each.ssim), said(each.best_psnr)),
    )


def _picture(subject: Subject, name: str) -> PictureFile | None:
    audit = subject.run.audit
    path = subject.run.path / PICTURES / name
    return None if audit is None else read_picture(path, audit.iteration)


def from_below(subject: Subject) -> OfRun | None:
    """The lower bound on a run's ε by canaries, if it has some."""
    bound = subject.run.audit.bound if subject.run.audit else None
    if bound is None:
        return None
    counts = (f"{bound.canaries:,}", bound.kind, f"{bound.guesses:,}", f"{bound.right:,}")
    confidence = f"{100 * bound.confidence:.0f} %"
    bounds = (f"{bound.epsilon:.2f}", confidence, said(bound.ceiling), f"{bound.stated:.3g}")
    row = (*counts, *bounds, said(bound.noise), said(bound.longest))
    wrong = "; the stated ε is wrong" if bound.contradicts else ""
    return OfRun([row], f"lower bound: {bound}{wrong}", header=_OF_BOUND)
