"""The scores of a run over time."""

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import ScoresRow
from mdgan.records.run_state import UNSCORED
from mdgan.records.score_names import SCORE_NAMES, main_score
from mdgan.records.values import number, said, said_left_out, shown


class Score(NamedTuple):
    """One score; `seconds` since training began, None if not recorded."""

    iteration: int
    seconds: float | None
    value: float
    deviation: float | None


def score_events(run: RecordedRun) -> list[ScoresRow]:
    """The newest scores of each iteration that compare with one another.

    They share the extractor and the number of samples that most scores have; if several are equally
    frequent, the newest.
    """
    groups: dict[tuple[str | None, int | None], dict[int, ScoresRow]] = {}
    for event in run.of(ScoresRow):
        method = event.extractor.sha256 if event.extractor else None, event.n
        groups[method] = {**groups.pop(method, {}), event.iteration: event}
    chosen = max(reversed(groups.values()), key=len, default={})
    return [event for _, event in sorted(chosen.items())]


def scores_of(run: RecordedRun, metric: str) -> list[Score]:
    """The scores of one metric, in the order of iterations."""
    values = [(event, number(event.scores.get(metric))) for event in score_events(run)]
    name = f"{metric}_std"
    return [
        Score(event.iteration, event.seconds, value, deviation=number(event.scores.get(name)))
        for event, value in values
        if value is not None
    ]


def last_score(run: RecordedRun, metric: str) -> Score | None:
    """The newest score of one metric."""
    return next(reversed(scores_of(run, metric)), None)


def reference(run: RecordedRun, metric: str) -> float | None:
    """The newest recorded score of real data in a metric, such as "fid"."""
    values = [event.real.get(metric) for event in score_events(run)]
    return next((x for value in reversed(values) if (x := number(value)) is not None), None)


def histograms(run: RecordedRun) -> tuple[int, list[float], list[float]] | None:
    """The newest iteration with class histograms, generated and real, each as shares of 1."""
    for event in reversed(score_events(run)):
        if generated := _shares(event.class_histogram):
            return event.iteration, generated, _shares(event.real_class_histogram)
    return None


def classwise(run: RecordedRun) -> tuple[int, list[float | None], list[float | None]] | None:
    """The newest iteration with scores by class: shares of the right class, and FIDs."""
    for event in reversed(score_events(run)):
        scores = event.by_class
        if scores and any(value is not None for value in (*scores.right, *scores.fid)):
            return event.iteration, scores.right, scores.fid
    return None


def remarks(run: RecordedRun) -> list[str]:
    """The scorer's warnings and the scores that it left out, each once."""
    lines: dict[str, None] = {}
    scores = run.of(ScoresRow)
    for event in scores:
        left_out = said_left_out(event.left_out, SCORE_NAMES)
        lines.update(dict.fromkeys([*event.warnings, *left_out]))
    lines.update(dict.fromkeys(f"Not scored: {why}" for why in run.state.reasons(UNSCORED)))
    drawn = score_events(run)
    apart = [event for event in scores if not any(event is other for other in drawn)]
    return [*lines, *(_said_apart(event, drawn[-1]) for event in apart)]


def _said_apart(event: ScoresRow, newest: ScoresRow) -> str:
    """Which score is not drawn beside the newest one, and why."""
    if _extractor_of(event) != _extractor_of(newest):
        mine, theirs = _extractor_of(event), _extractor_of(newest)
        why = f"its extractor was {mine}, that of the others {theirs}"
    elif event.n != newest.n:
        why = f"it is from {event.n or 0:,} samples, the others from {newest.n or 0:,}"
    else:
        why = "that iteration was scored again"
    main = main_score(event.scores)
    value = number(event.scores.get(main))
    what = "A score" if value is None else f"{SCORE_NAMES[main]} {said(value)}"
    return f"{what} of iteration {event.iteration:,} is not drawn: {why}."


def yardstick(run: RecordedRun) -> tuple[str, str]:
    """The method of a run's scores in words, and a digest of its real samples' classes."""
    events = score_events(run)
    if not events:
        return "not scored", ""
    newest = events[-1]
    counts = [f"{n:,} " if n else "" for n in (newest.n, newest.n_real)]
    words = f"{counts[0]}samples against {counts[1]}real ones of {shown(run.config.get('dataset'))}"
    by = "by their columns" if "column_shapes" in newest.scores else _extractor_of(newest)
    return f"{words}, {by}", sha256(f"{newest.real_class_histogram}".encode()).hexdigest()[:6]


def _extractor_of(event: ScoresRow) -> str:
    one = event.extractor
    return f"{one.name} {(one.sha256 or '')[:6]}".strip() if one else "an unknown extractor"


def _shares(counts: Sequence[float]) -> list[float]:
    total = sum(counts)
    return [value / total for value in counts] if total > 0 else []
