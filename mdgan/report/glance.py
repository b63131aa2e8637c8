"""The card of a run at the top of the report: key figures, and notices in one line each."""

from datetime import datetime
from statistics import fmean

from mdgan.observe.progress import duration
from mdgan.records.happenings import LOST, SHUT_OUT
from mdgan.records.release_figures import attestations
from mdgan.records.rows import Losses, Swap
from mdgan.records.run_state import UNSAVED
from mdgan.records.score_names import OF_ROWS, SCORE_NAMES
from mdgan.records.values import a, number_in, said, said_list, said_seconds, shown
from mdgan.report.figures.workers import exactness
from mdgan.report.numbers.attendance import said_in_all
from mdgan.report.numbers.scores import last_score, reference, remarks, score_events
from mdgan.report.numbers.subject import Subject
from mdgan.spelling import count, spelled

_MOST_LOSSES = 3

Fact = tuple[str, str, str]  # a name, a value, and a note beside it


def facts(subject: Subject) -> list[Fact]:
    """The key figures of a run: scores, spent ε and progress."""
    state = subject.run.state
    delta = number_in(subject.run.config, "dp_delta")
    spent = [("ε", *state.spent_in_words(delta))] if state.epsilon else []
    return [*_quality(subject), *spent, *_progress(subject)]


def _progress(subject: Subject) -> list[Fact]:
    done, total = subject.done, number_in(subject.run.config, "iterations")
    newest = [row.seconds or 0.0 for row in subject.run.of(Losses)[-1:]]
    seconds = max([subject.run.status.get("seconds", 0.0), *newest])
    facts = [
        ("iterations", f"{done:,}", f"of {total:,.0f}" if total else ""),
        ("time", duration(seconds) if seconds >= 10 else said_seconds(seconds), ""),
        ("speed", said(done / seconds) if seconds else "–", "it/s"),
    ]
    if subject.durations:
        mean = fmean(subject.durations[i] for i in subject.ordinary)
        facts.append((a(subject.unit), said_seconds(mean), "without outliers"))
    return facts


def _quality(subject: Subject) -> list[Fact]:
    run = subject.run
    fid, real = reference(run, "fid"), reference(run, "inception_score")
    classes = reference(run, "classes")
    named = (
        ("fid", "FID", f"real data {said(fid)}" if fid is not None else ""),
        ("inception_score", "inception score", f"real data {said(real)}" if real else ""),
        ("coverage", "coverage", ""),
        ("classes_covered", "classes covered", f"of {classes:.0f}" if classes else ""),
        *(
            (name, SCORE_NAMES[name], "" if value is None else f"real rows {said(value)}")
            for name, value in ((name, reference(run, name)) for name in OF_ROWS)
        ),
    )
    last = [(last_score(run, metric), name, more) for metric, name, more in named]
    return [(name, said(score.value), more) for score, name, more in last if score is not None]


def _disclosed(subject: Subject) -> str:
    """The facts that workers told without noise; older runs call the setting `dp_tell`."""
    config = subject.run.config
    return str(config.get("dp_disclose") or config.get("dp_tell") or "")


def _disclosures(subject: Subject) -> list[str]:
    """Sentences about what workers under differential privacy told without noise."""
    config = subject.run.config
    if config.get("dp_epsilon") is None and config.get("dp_noise") is None:
        return []
    at_server = ["The server added the noise, to sums of what clients sent."]
    by_server = at_server if config.get("dp_unit") == "client" else []
    if disclosed := _disclosed(subject):
        return [
            *by_server,
            f"Workers told their stated number of samples, and without noise also: {disclosed}.",
        ]
    nothing = (
        "Without noise, workers told their stated number of samples, and nothing else about their "
        "data; nor did they tell the times that timelines are made of."
    )
    return [*by_server, nothing]


def measured(subject: Subject) -> str:
    """A sentence about the samples and the extractor of a run's scores."""
    events = score_events(subject.run)
    if not events:
        return "Not scored."
    newest, parts = events[-1], []
    if newest.n is not None:
        against = "" if newest.n_real is None else f" against {newest.n_real:,} real"
        parts.append(f"{newest.n:,} samples{against}")
    if extractor := newest.extractor:
        parts.append(f"features of {shown(extractor.name)} {(extractor.sha256 or '')[:12]}".strip())
        if extractor.accuracy is not None:
            rightly = f"{100 * extractor.accuracy:.1f} % of held-out data rightly"
            parts.append(f"which classifies {rightly}")
    return f"Scored with {', '.join(parts)}."


def notices(subject: Subject) -> list[str]:
    """What a reader should know about a run, one line each."""
    run = subject.run
    lines = [spelled(f"It looks as if {run.finding}.")] if run.finding else []
    if run.audit and run.audit.bound and run.audit.bound.contradicts:
        lines.append(f"The stated ε is wrong, by the audit's canaries: {run.audit.bound}.")
    if run.under_way:
        files = (run.path / name for name in ("run.json", "metrics.jsonl"))
        at = datetime.fromtimestamp(max(one.stat().st_mtime for one in files if one.exists()))
        lines.append(f"It was not finished; its newest record was of {at.day} {at:%B %Y, %H:%M}.")
    lines += _faults(subject)
    lines += _disclosures(subject)
    if swaps := run.of(Swap):
        arrived = exactness(swaps)
        lines.append(f"{arrived[0].upper()}{arrived[1:]}.")
    infinite = [f"{row.iteration:,}" for row in run.of(Losses) if row.generator_loss is None]
    discloses_losses = "losses" in _disclosed(subject)
    hidden = run.config.get("dp_unit") == "client" and not discloses_losses
    if infinite and not hidden:
        lines.append(f"The generator's loss was not finite in iteration {said_list(infinite)}.")
    return [*lines, *remarks(run), *(f"Damaged: {line}" for line in run.damage)]


def _faults(subject: Subject) -> list[str]:
    """Lines about the first lost workers, all events of workers in sum, and failed checkpoints."""
    losses = sorted(
        (mark.iteration, worker.worker, mark)
        for worker in subject.presences
        for mark in worker.marks
        if mark.kind in (LOST, SHUT_OUT)
    )
    when = "the round that ends at iteration" if subject.has_rounds() else "iteration"
    lines = [
        f"Worker {worker} was {mark.kind} in {when} {iteration:,}: {mark.reason}"
        for iteration, worker, mark in losses[:_MOST_LOSSES]
    ]
    if events := said_in_all(subject.run, subject.presences):
        lines.append(f"Workers: {events}.")
    lines += [
        f"Rank(s) {said_list(answer.workers)} did not sign the run: {answer.refusal}."
        for answer in attestations(subject.run)
        if answer.refusal
    ]
    if unsaved := subject.run.state.reasons(UNSAVED):
        times = count(len(unsaved), "time")
        lines.append(f"Checkpoints went wrong {times}, the last: {unsaved[-1]}")
    return lines
