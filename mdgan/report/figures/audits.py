"""What `mdgan audit` found: ROC curves, samples that look copied, batches behind single answers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from matplotlib.figure import Figure

from mdgan.records.audit import (
    FOUND_AT,
    NEIGHBOURS,
    PICTURES,
    Audit,
    Copying,
    Inversion,
    Judged,
    Separation,
)
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.values import said
from mdgan.report.figures.charts import legend, new_axes
from mdgan.report.figures.picture import Frame, Picture, Row, Strip, Table, one_each
from mdgan.report.figures.samples import draw_frames, read_frame
from mdgan.report.figures.style import COLOURS, DASHED, SOFT
from mdgan.report.numbers.subject import Subject

_HEADER = ("run", "attack", "against samples of", "trained on", "others", "AUC", "±",
           *FOUND_AT)  # fmt: skip
_INCHES = 3.2


def of_discriminators(subject: Subject) -> list[Judged] | None:
    """The attacks against discriminators."""
    return subject.run.audit.discriminators if subject.run.audit else None


def of_generator(subject: Subject) -> list[Copying] | None:
    """The attacks against the generator."""
    return subject.run.audit.generator if subject.run.audit else None


def roc_of_discriminators(found: Sequence[tuple[Subject, list[Judged]]]) -> Picture:
    """The ROC curves of all discriminators, a drawing each run."""
    rows: list[Row] = []
    for subject, all_judged in found:
        for judged in all_judged:
            last = f"worker {judged.last}" if judged.last else "all workers"
            rows.append(_row(subject, _name(judged), last, judged.of_last))
            if judged.last and len(judged.iterations) > 1:
                rows.append(_row(subject, _name(judged), "all that trained it", judged.of_all))

    def draw(_subject: Subject, all_judged: list[Judged]) -> Figure:
        return _roc([(_name(judged), judged.of_last) for judged in all_judged])

    def told(subject: Subject, all_judged: list[Judged]) -> str:
        areas = [judged.of_last.auc for judged in all_judged]
        return _said("AUC", areas) + _promised(subject.run.audit)

    return one_each(found, draw, told, Table(_HEADER, rows))


def roc_of_generator(found: Sequence[tuple[Subject, list[Copying]]]) -> Picture:
    """The ROC curves by distances to generated samples, a drawing each run."""
    rows = [
        _row(subject, f"by {copy.space}", "all workers", copy.membership)
        for subject, all_copies in found
        for copy in all_copies
    ]

    def draw(_subject: Subject, all_copies: list[Copying]) -> Figure:
        return _roc([(f"by {copy.space}", copy.membership) for copy in all_copies])

    def told(subject: Subject, all_copies: list[Copying]) -> str:
        return _said("AUC", [copy.membership.auc for copy in all_copies]) + _promised(
            subject.run.audit
        )

    return one_each(found, draw, told, Table(_HEADER, rows))


def _name(judged: Judged) -> str:
    return f"at worker {judged.worker}" if judged.worker else "the server's"


def _row(subject: Subject, attack: str, against: str, found: Separation) -> Row:
    return (
        *(subject.label, attack, against, f"{found.members:,}", f"{found.others:,}"),
        *(f"{found.auc:.3f}", f"{found.error:.3f}", *found.found_in_words()),
    )


def _said(what: str, values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return f"{what} {low}" if low == high else f"{what} {low} to {high}"


def _promised(audit: Audit | None) -> str:
    """What the run promises of its own."""
    if audit is None or not audit.epsilon:
        return ""
    return f"; of differential privacy at most ε = {said(max(audit.epsilon.values()))} is spent"


def _roc(curves: Sequence[tuple[str, Separation]]) -> Figure:
    figure, axes = new_axes(_INCHES)
    few = len(curves) <= len(COLOURS)
    for place, (name, found) in enumerate(curves):
        axes.plot(
            *zip(*found.curve, strict=True),
            color=COLOURS[place % len(COLOURS)],
            label=name if few else None,
            alpha=1.0 if few else 0.5,
            linewidth=1,
        )
    axes.plot((0, 1), (0, 1), color=SOFT, linestyle=DASHED, linewidth=0.8)
    axes.set(
        xlim=(0, 1), ylim=(0, 1), xlabel="held-out samples taken for members",
        ylabel="members found",
    )  # fmt: skip
    legend(figure)
    return figure


def of_copies(subject: Subject) -> tuple[Frame, Audit] | None:
    """The picture of what looks copied."""
    audit = subject.run.audit
    frame = _frame(subject.run, NEIGHBOURS, audit) if audit and audit.generator else None
    return (frame, audit) if frame and audit else None


def copies(found: Sequence[tuple[Subject, tuple[Frame, Audit]]]) -> Picture:
    """Generated samples, and beneath each the nearest one trained on and the nearest held out."""
    rows = [
        (subject.label, copy.space, said(copy.ratio), copy.nearer_in_words())
        for subject, (_, audit) in found
        for copy in audit.generator
    ]
    header = ("run", "distances in", "to trained on by to held out", "nearer to one trained on")

    def told(_subject: Subject, frame_and_audit: tuple[Frame, Audit]) -> str:
        audit = frame_and_audit[1]
        ratios = [f"{said(copy.ratio)} in {copy.space}" for copy in audit.generator]
        return (
            "The distance of a generated sample to the nearest sample trained on, by that to the "
            f"nearest of as many held-out ones, is {' and '.join(ratios)} (medians; 1 copies "
            "nothing)"
        )

    def draw(_subject: Subject, frame_and_audit: tuple[Frame, Audit]) -> Figure:
        return draw_frames([("generated, trained on, held out", frame_and_audit[0])], 1)

    strips = [
        Strip(
            f"Samples of {subject.label} that look copied",
            [(frame, subject.label, f"iteration {frame.iteration:,}")],
            subject,
        )
        for subject, (frame, _) in found
    ]
    return replace(one_each(found, draw, told, Table(header, rows)), strips=strips)


class Answers(NamedTuple):
    """The attacks on one kind of answer.

    Attributes:
        inversions: one for each batch size.
        frames: their pictures.
    """

    inversions: list[Inversion]
    frames: list[Frame]


def of_answers(kind: str) -> Callable[[Subject], Answers | None]:
    """Finds the attacks on answers of a kind, `update` or `feedback`."""

    def find(subject: Subject) -> Answers | None:
        audit = subject.run.audit
        tried = [each for each in audit.inversions if each.answer == kind] if audit else []
        frames = [(each, _frame(subject.run, each.picture, audit)) for each in tried]
        shown = [(each, frame) for each, frame in frames if frame is not None]
        return Answers([each for each, _ in shown], [frame for _, frame in shown]) or None

    return lambda subject: (found := find(subject)) and (found if found.frames else None)


def answers(found: Sequence[tuple[Subject, Answers]]) -> Picture:
    """Samples of batches, and what was made of answers, a strip each run."""
    rows = [
        (
            *(subject.label, f"{each.batch_size:,}", f"{each.found.auc:.3f}"),
            "–" if each.blind is None else f"{each.blind.auc:.3f}",
            *(said(each.psnr), said(each.control_psnr), said(each.ssim), said(each.best_psnr)),
        )
        for subject, (inversions, _) in found
        for each in inversions
    ]
    header = ("run", "batch of", "AUC of its samples", "AUC of the shard, blind", "PSNR [dB]",
              "PSNR of others [dB]", "SSIM", "best PSNR [dB]")  # fmt: skip

    def told(_subject: Subject, tried: Answers) -> str:
        each = [f"{said(one.psnr)} dB of a batch of {one.batch_size:,}" for one in tried.inversions]
        return f"PSNR {', '.join(each)}"

    def draw(_subject: Subject, tried: Answers) -> Figure:
        titled = [
            (f"batch of {one.batch_size:,}", frame)
            for one, frame in zip(tried.inversions, tried.frames, strict=True)
        ]
        return draw_frames(titled, len(titled))

    strips = [
        Strip(
            f"Real samples of {subject.label}, and what was made of answers",
            [
                (frame, subject.label, f"batch of {one.batch_size:,}")
                for one, frame in zip(tried.inversions, tried.frames, strict=True)
            ],
            subject,
        )
        for subject, tried in found
    ]
    return replace(one_each(found, draw, told, Table(header, rows)), strips=strips)


def _frame(run: RecordedRun, name: str, audit: Audit | None) -> Frame | None:
    return None if audit is None else read_frame(run.path / PICTURES / name, audit.iteration)
