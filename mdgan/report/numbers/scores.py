"""The scores of a run over time."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import asdict

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.rows import Scores, Unscored
from mdgan.records.values import count, number

METRICS = {
    "fid": "FID",
    "kid": "KID",
    "inception_score": "inception score",
    "precision": "precision",
    "recall": "recall",
    "density": "density",
    "coverage": "coverage",
    "classes_covered": "classes covered",
    "class_kl": "class KL",
}


class Score(NamedTuple):
    """One score at one time.

    Attributes:
        iteration: of the generator that was scored.
        seconds: since training began; None if it was not recorded.
        value: the score.
        deviation: its standard deviation, where there is one.
    """

    iteration: int
    seconds: float | None
    value: float
    deviation: float | None


def score_events(run: RecordedRun) -> list[Scores]:
    """The scores that may be compared with one another, by iteration.

    Returns:
        Of each iteration the newest, from the extractor and number of samples that most of them
        have (the newest of those with equally many).
    """
    groups: dict[tuple[str | None, int | None], dict[int, Scores]] = {}
    for event in run.of(Scores):
        how = event.extractor.sha256 if event.extractor else None, event.n
        groups[how] = {**groups.pop(how, {}), event.iteration: event}
    chosen = max(reversed(groups.values()), key=len, default={})
    return [event for _, event in sorted(chosen.items())]


def scores_of(run: RecordedRun, metric: str) -> list[Score]:
    """The scores of one metric, in the order of iterations."""
    found = [(event, number(event.scores.get(metric))) for event in score_events(run)]
    return [
        Score(event.iteration, event.seconds, value, number(event.scores.get(f"{metric}_std")))
        for event, value in found
        if value is not None
    ]


def last_score(run: RecordedRun, metric: str) -> Score | None:
    """The newest score of one metric."""
    return next(reversed(scores_of(run, metric)), None)


def reference(run: RecordedRun, kind: str, metric: str) -> float | None:
    """What real data would get, such as ("floor", "fid"); the newest that was recorded."""
    found = [(e.floor if kind == "floor" else e.real).get(metric) for e in score_events(run)]
    return next((x for value in reversed(found) if (x := number(value)) is not None), None)


def histograms(run: RecordedRun) -> tuple[int, list[float], list[float]] | None:
    """The newest iteration with class histograms, generated and real, each as shares of 1."""
    for event in reversed(score_events(run)):
        if generated := _shares(event.class_histogram):
            return event.iteration, generated, _shares(event.real_class_histogram)
    return None


def extractor(run: RecordedRun) -> dict[str, Any]:
    """What the newest scores were measured with: `name`, `sha256`, `accuracy`, where known."""
    events = score_events(run)
    found = asdict(events[-1].extractor) if events and events[-1].extractor else {}
    return {name: value for name, value in found.items() if value is not None}


def sample_counts(run: RecordedRun) -> dict[str, int]:
    """How many samples the newest scores are from, `n`, and how many real ones, `n_real`."""
    events = score_events(run)
    found = {"n": events[-1].n, "n_real": events[-1].n_real} if events else {}
    return {name: value for name, value in found.items() if value is not None}


def remarks(run: RecordedRun) -> list[str]:
    """What the scorer warned of and which scores it left out, each once."""
    found: dict[str, None] = {}
    scores = run.of(Scores)
    for event in scores:
        left_out = event.left_out.items()
        said = [f"{METRICS.get(name, name)}: left out ({reason})" for name, reason in left_out]
        found.update(dict.fromkeys([*event.warnings, *said]))
    found.update(dict.fromkeys(f"Not scored: {event.reason}" for event in run.of(Unscored)))
    if others := len(scores) - len(score_events(run)):
        other = count(others, "score is", "scores are")
        found[f"{other} not drawn: another extractor, number of samples, or the same again"] = None
    return list(found)


def not_comparable(runs: Sequence[RecordedRun]) -> str:
    """Why scores of these runs must not be compared, or nothing if they may be."""
    newest = [events[-1] for run in runs if (events := score_events(run))]
    if len({event.extractor.sha256 if event.extractor else None for event in newest}) > 1:
        return "These runs were scored with different feature extractors: do not compare scores."
    if len({event.n for event in newest}) > 1:
        return "These runs were scored with different numbers of samples, which shifts FID."
    return ""


def _shares(counts: Sequence[float]) -> list[float]:
    total = sum(counts)
    return [value / total for value in counts] if total > 0 else []
