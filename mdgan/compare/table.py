"""Computes the numbers of a comparison: of every run, and over the seeds of a configuration."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from mdgan.compare.plan import Training
from mdgan.errors import BadInput
from mdgan.observe.text_table import text_table
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.values import (
    number_in,
    said,
    said_bytes,
    said_seconds,
)
from mdgan.report.numbers.costs import samples_processed, server_bytes, worker_bytes
from mdgan.report.numbers.rounds import SEEN_OFTEN, rounds_of, rounds_until_seen
from mdgan.report.numbers.scores import last_score
from mdgan.report.numbers.subject import Subject, subjects

ROUNDS_UNTIL = f"rounds_until_every_class_seen_{SEEN_OFTEN}"

Said = Callable[[float], str]

_COLUMNS: tuple[tuple[str, str, Said], ...] = (
    ("fid", "FID", said),
    ("inception_score", "score", said),
    ("coverage", "coverage", said),
    ("classes_covered", "classes", said),
    ("samples_processed", "samples", said),
    ("client_bytes", "a client moved", said_bytes),
    ("server_bytes", "the server moved", said_bytes),
    ("seconds", "time", said_seconds),
    ("rounds", "rounds", said),
    (ROUNDS_UNTIL, f"rounds to {SEEN_OFTEN}", said),
)
"""The number's name in `comparison.json`, its heading, and how it is said."""


def measure(trainings: Sequence[Training]) -> dict[str, Any]:
    """The content of `comparison.json` about the configurations, by name.

    Only finished runs count in means; a number that a run does not have is null.
    """
    found: dict[str, Any] = {}
    for training in trainings:
        configuration = training.configuration
        entry = found.setdefault(
            configuration.name,
            {"algorithm": configuration.resolved["algorithm"], "runs": {}, "summary": {}},
        )
        entry["runs"][str(training.seed)] = {"folder": training.folder.name, **_run(training)}
    for entry in found.values():
        finished = [run for run in entry["runs"].values() if run["state"] == "finished"]
        entry["summary"] = {name: _summary(name, finished) for name, _, _ in _COLUMNS}
    return found


def numbers_of(subject: Subject) -> dict[str, float | None]:
    """The numbers of one run, by name; bytes sent and received are added up."""
    run, end = subject.run, float("inf")
    rounds = rounds_of(run)
    until = rounds_until_seen(run) if rounds else None
    scores = {
        metric: score.value if (score := last_score(run, metric)) else None
        for metric in ("fid", "inception_score", "coverage", "classes_covered")
    }
    return {
        **scores,
        "samples_processed": samples_processed(subject),
        "client_bytes": worker_bytes(subject, end),
        "server_bytes": server_bytes(subject, end),
        "seconds": number_in(run.status, "seconds"),
        "rounds": float(len(rounds)) if rounds else None,
        ROUNDS_UNTIL: None if until is None else float(until),
    }


def as_table(found: Mapping[str, Any]) -> str:
    """The means as a table, without the columns in which no configuration has a number.

    Args:
        found: from `measure`.
    """
    columns = [
        (name, heading, say)
        for name, heading, say in _COLUMNS
        if any(entry["summary"][name] is not None for entry in found.values())
    ]
    headings = ["", "runs", *(heading for _, heading, _ in columns)]
    lines = []
    for name, entry in found.items():
        finished = sum(run["state"] == "finished" for run in entry["runs"].values())
        cells = [_said(entry["summary"][column], say) for column, _, say in columns]
        lines.append([name, f"{finished}/{len(entry['runs'])}", *cells])
    return text_table(lines, headings, right=range(1, len(headings)))


def _run(training: Training) -> dict[str, Any]:
    try:
        run = RecordedRun.read(training.folder)
    except BadInput as error:
        nothing: dict[str, Any] = {name: None for name, _, _ in _COLUMNS}
        return {"state": "missing", "reason": str(error), **nothing}
    (subject,) = subjects([run])
    return {"state": str(run.status.get("state")), **numbers_of(subject)}


def _summary(name: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """Mean, sample standard deviation, least and greatest; None if there is no mean."""
    values = [run[name] for run in runs if run[name] is not None]
    if not values or (name == ROUNDS_UNTIL and len(values) < len(runs)):
        return None  # a mean without the runs that never got there would flatter
    return {
        "mean": fmean(values),
        "deviation": stdev(values) if len(values) > 1 else 0.0,
        "least": min(values),
        "greatest": max(values),
        "runs": len(values),
    }


def _said(summary: Mapping[str, float] | None, say: Said) -> str:
    if summary is None:
        return "–"
    mean, deviation = summary["mean"], summary["deviation"]
    seen = say(mean - deviation) != say(mean + deviation)  # else the digits shown do not differ
    return f"{say(mean)} ± {say(deviation)}" if seen else say(mean)
