"""Each run at a glance."""

from collections.abc import Sequence
from statistics import fmean

from mdgan.observe.progress import duration
from mdgan.records.happenings import LOST, SHUT_OUT
from mdgan.records.values import (
    count,
    number_in,
    said,
    said_list,
    said_seconds,
)
from mdgan.report.numbers.attendance import said_in_all
from mdgan.report.numbers.scores import (
    extractor,
    last_score,
    reference,
    remarks,
    sample_counts,
)
from mdgan.report.numbers.subject import Subject, shown
from mdgan.report.numbers.swaps import exactness, swaps_of
from mdgan.report.numbers.units import a
from mdgan.report.page.html import bullets, tag, text
from mdgan.report.page.swatch import swatch

_MOST_LOSSES = 3
_STATES = {
    "running": "running",
    "finished": "finished",
    "stopped": "stopped when asked to",
    "failed": "failed",
}


def headline(subjects: Sequence[Subject]) -> str:
    """A card for every run."""
    cards = [_card(subject, several=len(subjects) > 1) for subject in subjects]
    return tag("div", *cards, class_="cards" + (" single" if len(cards) == 1 else ""))


def _card(subject: Subject, several: bool) -> str:
    run = subject.run
    state = shown(run.status.get("state"))
    title = tag("h3", swatch(subject) if several else "", text(subject.label))
    badge = tag("span", text(_STATES.get(state, state)), class_="badge", data_state=state)
    facts = [*_progress(subject), *_quality(subject)]
    items = [
        tag("div", tag("dt", text(name)), tag("dd", text(value), tag("small", text(more))))
        for name, value, more in facts
    ]
    where = tag("p", text(run.path), class_="path")
    return tag(
        "article",
        tag("header", title, badge),
        where,
        tag("dl", *items, class_="facts"),
        _measured(subject),
        bullets(_notices(subject), class_="notices"),
        class_="card run",
    )


def _progress(subject: Subject) -> list[tuple[str, str, str]]:
    run = subject.run
    done, total = subject.done, number_in(run.config, "iterations")
    seconds = max(
        [
            number_in(run.status, "seconds") or 0.0,
            *(number_in(record, "seconds") or 0.0 for record in run.iterations[-1:]),
        ]
    )
    facts = [
        ("iterations", f"{done:,}", f"of {total:,.0f}" if total else ""),
        ("time", duration(seconds) if seconds >= 10 else said_seconds(seconds), ""),
        ("speed", said(done / seconds) if seconds else "–", "it/s"),
    ]
    if subject.durations:
        mean = fmean(subject.durations[i] for i in subject.ordinary)
        facts.append((a(subject.unit), said_seconds(mean), "without outliers"))
    return facts


def _quality(subject: Subject) -> list[tuple[str, str, str]]:
    run = subject.run
    facts = []
    floor = reference(run, "floor", "fid")
    real = reference(run, "real", "inception_score")
    for metric, name, more in (
        ("fid", "FID", f"real data {said(floor)}" if floor is not None else ""),
        ("inception_score", "inception score", f"real data {said(real)}" if real else ""),
        ("coverage", "coverage", ""),
        ("classes_covered", "classes covered", _of_classes(subject)),
    ):
        score = last_score(run, metric)
        if score is not None:
            facts.append((name, said(score.value), more))
    return facts


def _of_classes(subject: Subject) -> str:
    classes = reference(subject.run, "real", "classes")
    return f"of {classes:.0f}" if classes else ""


def _measured(subject: Subject) -> str:
    found, counts = extractor(subject.run), sample_counts(subject.run)
    if not found and not counts:
        return tag("p", "Not scored.", class_="note")
    parts = []
    if "n" in counts:
        against = f" against {counts['n_real']:,} real" if "n_real" in counts else ""
        parts.append(f"{counts['n']:,} samples{against}")
    if found:
        digest = str(found.get("sha256", ""))[:12]
        parts.append(f"features of {shown(found.get('name'))}" + (f" {digest}" if digest else ""))
    accuracy = number_in(found, "accuracy")
    if accuracy is not None:
        parts.append(f"which classifies {100 * accuracy:.1f} % of held-out data rightly")
    return tag("p", text(f"Scored with {', '.join(parts)}."), class_="note")


def _notices(subject: Subject) -> list[str]:
    notices = []
    state = subject.run.status.get("state")
    if state == "running":
        notices.append("It was not finished when this page was written; write it again for more.")
    notices += _faults(subject)
    swaps = swaps_of(subject.run)
    if swaps:
        told = exactness(swaps)
        notices.append(f"{told[0].upper()}{told[1:]}.")
    unfinite = [
        str(record.get("iteration"))
        for record in subject.run.iterations
        if "generator_loss" in record and record["generator_loss"] is None
    ]
    if unfinite:
        notices.append(f"The generator's loss was not finite in iteration {said_list(unfinite)}.")
    notices += remarks(subject.run)
    notices += [f"Damaged: {line}" for line in subject.run.damage]
    return notices


def _faults(subject: Subject) -> list[str]:
    """The first workers that were lost, everything that happened to workers, and to the disk."""
    gone = sorted(
        (mark.iteration, worker.worker, mark)
        for worker in subject.attendance
        for mark in worker.marks
        if mark.kind in (LOST, SHUT_OUT)
    )
    when = "the round that ends at iteration" if subject.in_rounds else "iteration"
    notices = [
        f"Worker {worker} was {mark.kind} in {when} {iteration:,}: {mark.reason}"
        for iteration, worker, mark in gone[:_MOST_LOSSES]
    ]
    said = said_in_all(subject.run, subject.attendance)
    if said:
        notices.append(f"Workers: {said}.")
    unsaved = subject.run.named("unsaved")
    if unsaved:
        times = count(len(unsaved), "time")
        notices.append(f"Checkpoints went wrong {times}, the last: {unsaved[-1].get('reason')}")
    return notices
