"""The scores of a run over time."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from mdgan.records.recorded_run import RecordedRun
from mdgan.records.values import count, mapping, number, number_in, numbers

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


def score_events(run: RecordedRun) -> list[dict[str, Any]]:
    """The scores that may be compared with one another, by iteration.

    Returns:
        Of each iteration the newest event, from the extractor and number of samples that most
        events have (the newest of those with equally many).
    """
    groups: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for event in run.named("scores"):
        iteration = number_in(event, "iteration")
        if iteration is not None:
            how = (str(mapping(event.get("extractor")).get("sha256")), str(event.get("n")))
            group = groups.pop(how, {})
            group[int(iteration)] = event
            groups[how] = group
    if not groups:
        return []
    chosen = max(reversed(groups.values()), key=len)
    return [event for _, event in sorted(chosen.items())]


def scores_of(run: RecordedRun, metric: str) -> list[Score]:
    """The scores of one metric, in the order of iterations."""
    found = []
    for event in score_events(run):
        value, iteration = number_in(event, "scores", metric), number_in(event, "iteration")
        if value is not None and iteration is not None:
            deviation = number_in(event, "scores", f"{metric}_std")
            found.append(Score(int(iteration), number_in(event, "seconds"), value, deviation))
    return found


def last_score(run: RecordedRun, metric: str) -> Score | None:
    """The newest score of one metric."""
    return next(reversed(scores_of(run, metric)), None)


def reference(run: RecordedRun, *path: str) -> float | None:
    """What real data would get, such as ("floor", "fid"); the newest that was recorded."""
    found = [number_in(event, *path) for event in score_events(run)]
    return next((value for value in reversed(found) if value is not None), None)


def histograms(run: RecordedRun) -> tuple[int, list[float], list[float]] | None:
    """The newest iteration with class histograms, generated and real, each as shares of 1."""
    for event in reversed(score_events(run)):
        generated = _shares(numbers(event.get("class_histogram")))
        if generated:
            real = _shares(numbers(event.get("real_class_histogram")))
            return int(number_in(event, "iteration") or 0), generated, real
    return None


def extractor(run: RecordedRun) -> dict[str, Any]:
    """What the newest scores were measured with: `name`, `sha256`, `features`, `accuracy`."""
    events = score_events(run)
    return dict(mapping(events[-1].get("extractor"))) if events else {}


def sample_counts(run: RecordedRun) -> dict[str, int]:
    """How many samples the newest scores are from: `n`, `n_real`, `n_held_out`, `n_pairs`."""
    events = score_events(run)
    found = {
        name: number(events[-1].get(name)) if events else None
        for name in ("n", "n_real", "n_held_out", "n_pairs")
    }
    return {name: int(value) for name, value in found.items() if value is not None}


def remarks(run: RecordedRun) -> list[str]:
    """What the scorer warned of and which scores it left out, each once."""
    found: dict[str, None] = {}
    for event in run.named("scores"):
        warnings = event.get("warnings")
        for text in warnings if isinstance(warnings, list) else []:
            found[str(text)] = None
        for metric, reason in mapping(event.get("left_out")).items():
            found[f"{METRICS.get(metric, metric)}: left out ({reason})"] = None
    for event in run.named("unscored"):
        found[f"Not scored: {event.get('reason')}"] = None
    others = len(run.named("scores")) - len(score_events(run))
    if others:
        other = count(others, "score is", "scores are")
        found[f"{other} not drawn: another extractor, number of samples, or the same again"] = None
    return list(found)


def not_comparable(runs: Sequence[RecordedRun]) -> str:
    """Why scores of these runs must not be compared, or nothing if they may be."""
    scored = [run for run in runs if score_events(run)]
    if len({str(extractor(run).get("sha256")) for run in scored}) > 1:
        return "These runs were scored with different feature extractors: do not compare scores."
    if len({sample_counts(run).get("n") for run in scored}) > 1:
        return "These runs were scored with different numbers of samples, which shifts FID."
    return ""


def _shares(counts: Sequence[float]) -> list[float]:
    total = sum(counts)
    return [value / total for value in counts] if total > 0 else []
