"""What `mdgan audit` found: ROC curves, samples that look copied, single answers, a bound on ε."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from mdgan.records.audit import (
    FOUND_AT,
    NEIGHBOURS,
    PICTURES,
    Audit,
    Bound,
    Copying,
    Inversion,
    Judged,
    Separation,
)
from mdgan.records.values import said
from mdgan.report.figures.charts import bar_chart, legend, new_axes
from mdgan.report.figures.picture import Picture, PictureFile, Row, Table, one_each, one_strip_each
from mdgan.report.figures.samples import draw_files, read_picture
from mdgan.report.figures.style import COLOURS, DASHED, SOFT
from mdgan.report.numbers.subject import Subject

_HEADER = ("run", "attack", "against samples of", "trained on", "others", "AUC", "±",
           *FOUND_AT)  # fmt: skip
_INCHES = 3.2
_LEAST, _STATED = "at least, by canaries", "at most, stated"

Curves = Sequence[tuple[str, Separation]]
"""Attacks by name."""


def found_out(name: str) -> Callable[[Subject], Any]:
    """Finds a part of a run's audit, `discriminators`, `generator` or `bound`; None without one."""
    return lambda subject: getattr(subject.run.audit, name, None)


def roc_of_discriminators(found: Sequence[tuple[Subject, list[Judged]]]) -> Picture:
    """The ROC curves of all discriminators, a drawing each run."""
    rows: list[Row] = []
    curves: list[tuple[Subject, Curves]] = []
    for subject, all_judged in found:
        named = [(f"at worker {n}" if (n := one.worker) else "the server's", one)
                 for one in all_judged]  # fmt: skip
        curves.append((subject, [(name, judged.of_last) for name, judged in named]))
        for name, judged in named:
            last = f"worker {judged.last}" if judged.last else "all workers"
            rows.append(_row(subject, name, last, judged.of_last))
            if judged.last and len(judged.iterations) > 1:
                rows.append(_row(subject, name, "all that trained it", judged.of_all))
    return one_each(curves, _roc, _said_auc, Table(_HEADER, rows))


def roc_of_generator(found: Sequence[tuple[Subject, list[Copying]]]) -> Picture:
    """The ROC curves by distances to generated samples, a drawing each run."""
    curves = [(s, [(f"by {one.space}", one.membership) for one in each]) for s, each in found]
    rows = [
        _row(subject, name, "all workers", separation)
        for subject, each in curves
        for name, separation in each
    ]
    return one_each(curves, _roc, _said_auc, Table(_HEADER, rows))


def _row(subject: Subject, attack: str, against: str, found: Separation) -> Row:
    return (
        *(subject.label, attack, against, f"{found.members:,}", f"{found.others:,}"),
        *(f"{found.auc:.3f}", f"{found.error:.3f}", *found.found_in_words()),
    )


def _said_auc(subject: Subject, curves: Curves) -> str:
    """How well the attacks work, and what the run promises of its own."""
    areas = [separation.auc for _, separation in curves]
    low, high = f"{min(areas):.2f}", f"{max(areas):.2f}"
    told = f"AUC {low}" if low == high else f"AUC {low} to {high}"
    audit = subject.run.audit
    if audit is None or not audit.epsilon:
        return told
    spent = said(max(audit.epsilon.values()))
    return f"{told}; of differential privacy at most ε = {spent} is spent"


def _roc(_subject: Subject, curves: Curves) -> Figure:
    figure, axes = new_axes(_INCHES)
    few = len(curves) <= len(COLOURS)
    for place, (name, found) in enumerate(curves):
        label, alpha = (name, 1.0) if few else (None, 0.5)
        colour = COLOURS[place % len(COLOURS)]
        x, y = zip(*found.curve, strict=True)
        axes.plot(x, y, color=colour, label=label, alpha=alpha, linewidth=1)
    axes.plot((0, 1), (0, 1), color=SOFT, linestyle=DASHED, linewidth=0.8)
    axes.set(
        xlim=(0, 1), ylim=(0, 1), xlabel="held-out samples taken for members",
        ylabel="members found",
    )  # fmt: skip
    legend(figure)
    return figure


class Copied(NamedTuple):
    """The picture of what looks copied, and the audit that made it."""

    file: PictureFile
    audit: Audit


def of_copies(subject: Subject) -> Copied | None:
    """The picture of what looks copied."""
    audit = subject.run.audit
    file = _picture(subject, NEIGHBOURS, audit) if audit and audit.generator else None
    return Copied(file, audit) if file and audit else None


def copies(found: Sequence[tuple[Subject, Copied]]) -> Picture:
    """Generated samples, and beneath each the nearest one trained on and the nearest held out."""
    rows = [
        (subject.label, copy.space, said(copy.ratio), copy.nearer_in_words())
        for subject, copied in found
        for copy in copied.audit.generator
    ]
    header = ("run", "distances in", "to trained on by to held out", "nearer to one trained on")

    def told(_subject: Subject, copied: Copied) -> str:
        ratios = [f"{said(copy.ratio)} in {copy.space}" for copy in copied.audit.generator]
        return (
            "The distance of a generated sample to the nearest sample trained on, by that to the "
            f"nearest of as many held-out ones, is {' and '.join(ratios)} (medians; 1 copies "
            "nothing)"
        )

    def draw(_subject: Subject, copied: Copied) -> Figure:
        return draw_files([("generated, trained on, held out", copied.file)], 1)

    def strip(subject: Subject, copied: Copied) -> tuple[str, list[tuple[PictureFile, str, str]]]:
        still = (copied.file, subject.label, f"iteration {copied.file.iteration:,}")
        return f"Samples of {subject.label} that look copied", [still]

    return one_strip_each(found, draw, told, Table(header, rows), strip)


Inverted = Sequence[tuple[Inversion, PictureFile]]
"""The attacks on one kind of answer, one for each batch size, and their pictures."""


def of_answers(kind: str) -> Callable[[Subject], Inverted]:
    """Finds the attacks on answers of a kind, `update` or `feedback`."""

    def find(subject: Subject) -> Inverted:
        audit = subject.run.audit
        tried = [each for each in audit.inversions if each.answer == kind] if audit else []
        return [(one, file) for one in tried if (file := _picture(subject, one.picture, audit))]

    return find


def answers(found: Sequence[tuple[Subject, Inverted]]) -> Picture:
    """Samples of batches, and what was made of answers, a strip each run."""
    rows = [
        (
            *(subject.label, f"{each.batch_size:,}", f"{each.found.auc:.3f}"),
            "–" if each.blind is None else f"{each.blind.auc:.3f}",
            *(said(each.psnr), said(each.control_psnr), said(each.ssim), said(each.best_psnr)),
        )
        for subject, inverted in found
        for each, _ in inverted
    ]
    header = ("run", "batch of", "AUC of its samples", "AUC of the shard, blind", "PSNR [dB]",
              "PSNR of others [dB]", "SSIM", "best PSNR [dB]")  # fmt: skip

    def told(_subject: Subject, inverted: Inverted) -> str:
        each = [f"{said(one.psnr)} dB of a batch of {one.batch_size:,}" for one, _ in inverted]
        return f"PSNR {', '.join(each)}"

    def draw(_subject: Subject, inverted: Inverted) -> Figure:
        titled = [(f"batch of {one.batch_size:,}", file) for one, file in inverted]
        return draw_files(titled, len(titled))

    def strip(
        subject: Subject, inverted: Inverted
    ) -> tuple[str, list[tuple[PictureFile, str, str]]]:
        stills = [(file, subject.label, f"batch of {one.batch_size:,}") for one, file in inverted]
        return f"Real samples of {subject.label}, and what was made of answers", stills

    return one_strip_each(found, draw, told, Table(header, rows), strip)


def _picture(subject: Subject, name: str, audit: Audit | None) -> PictureFile | None:
    path = subject.run.path / PICTURES / name
    return None if audit is None else read_picture(path, audit.iteration)


def from_below(found: Sequence[tuple[Subject, Bound]]) -> Picture:
    """Two bars each run: what its ε is at least, and at most."""
    rows: list[Row] = [
        (
            *(subject.label, f"{bound.canaries:,}", bound.kind),
            *(f"{bound.guesses:,}", f"{bound.right:,}"),
            *(f"{bound.epsilon:.2f}", f"{100 * bound.confidence:.0f} %", f"{bound.stated:.3g}"),
        )
        for subject, bound in found
    ]
    header = ("run", "canaries", "kind", "guesses", "right", "ε at least", "with confidence",
              "ε stated")  # fmt: skip

    def draw(_subject: Subject, bound: Bound) -> Figure:
        bars = [(_LEAST, {_LEAST: bound.epsilon}), (_STATED, {_STATED: bound.stated})]
        colours = {_LEAST: COLOURS[0], _STATED: SOFT}
        return bar_chart([("", bars)], list(colours), lambda part: {"color": colours[part]}, "ε")

    def told(_subject: Subject, bound: Bound) -> str:
        return f"lower bound: {bound}{'; the stated ε is wrong' if bound.contradicts else ''}"

    return one_each(found, draw, told, Table(header, rows))
