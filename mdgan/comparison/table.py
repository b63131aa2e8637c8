"""Computes the numbers of a comparison: of every run, and over the seeds of a configuration.

Scores compare only with scores of the same yardstick: the same network, real and held-out samples,
and number of generated ones. Where there are several, a letter stands for each.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from statistics import fmean, stdev
from string import ascii_lowercase
from typing import Any

from mdgan.comparison.plan import Training
from mdgan.errors import BadInput
from mdgan.observe.text_table import text_table
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.release_figures import default_verdicts
from mdgan.records.rows import RoundRow
from mdgan.records.values import number_in, said, size_unit, time_unit
from mdgan.report.numbers.attendance import SEEN_OFTEN, rounds_until_seen
from mdgan.report.numbers.scores import last_score, reference, score_events, yardstick
from mdgan.report.numbers.subject import Subject, subjects
from mdgan.report.numbers.traffic import samples_processed, server_bytes, worker_bytes

ROUNDS_UNTIL = f"rounds_until_every_class_seen_{SEEN_OFTEN}"

_SCORES: tuple[tuple[str, str, str], ...] = (
    ("fid", "FID", "how far features of generated samples are from real ones; less is better"),
    ("inception_score", "score", "Inception score, by the network's classes; more is better"),
    ("coverage", "coverage", "share of held-out samples with a generated one near; more is better"),
    ("classes_covered", "classes", "how many classes the generated samples cover"),
    ("column_shapes", "shapes", "how alike the columns of real and generated rows are; 1 is best"),
    ("pair_trends", "trends", "the same of pairs of columns"),
    ("tstr_lr", "AUC of LR", "of a logistic regression, learnt from generated rows, on real ones"),
    ("tstr_gb", "AUC of GB", "the same of gradient boosting"),
)
_OTHERS: tuple[tuple[str, str, str], ...] = (
    ("samples_processed", "samples", "real ones in discriminators' batches, each as often as used"),
    ("client_bytes", "a worker moved", "bytes that it sent and received, mean over workers"),
    ("server_bytes", "the server moved", "bytes that it sent and received"),
    ("seconds", "time", "of training"),
    ("epsilon", "ε spent", "the most that any worker's samples have spent"),
    ("rules_not_met", "rules not met", ""),
    ("rounds", "rounds", ""),
    (ROUNDS_UNTIL, f"rounds to {SEEN_OFTEN}", f"until each class was seen {SEEN_OFTEN} times"),
    ("generator_loss_deviation", "J_gen varies by", "standard deviation in the last quarter"),
    ("discriminator_loss_deviation", "J_disc varies by", "the same of the discriminators' losses"),
)
"""Each number's name in `comparison.json`, its heading, and what that does not say itself."""
_UNITS = {"client_bytes": size_unit, "server_bytes": size_unit, "seconds": time_unit}
"""Functions that choose the unit of a column by its numbers."""
_RUNS = (
    "finished, of all; the numbers are means over their seeds, ± standard deviation, and of a run "
    "that ended early its last ones"
)

_NOTHING = "–"
_LAST = 0.25
_LEAST_LOGGED = 3


def measure(trainings: Sequence[Training]) -> dict[str, Any]:
    """The content of `comparison.json` about the configurations, by name.

    Only finished runs count in means; a number that a run lacks is null, and so is a mean of scores
    of different yardsticks.
    """
    entries: dict[str, Any] = {}
    for training in trainings:
        configuration = training.configuration
        entry = entries.setdefault(
            configuration.name,
            {"algorithm": configuration.resolved["algorithm"], "runs": {}, "summary": {}},
        )
        entry["runs"][str(training.seed)] = {"folder": training.folder.name, **_run(training)}
    for entry in entries.values():
        finished = [run for run in entry["runs"].values() if run["state"] == "finished"]
        entry["summary"] = {name: _summary(name, finished) for name, *_ in _OTHERS}
        mixed = len({run["yardstick"] for run in finished if run["yardstick"]}) > 1
        for name, *_ in _SCORES:
            entry["summary"][name] = None if mixed else _summary(name, finished)
    return entries


def numbers_of(subject: Subject) -> dict[str, float | None]:
    """The numbers of one run, by name; bytes sent and received are added up."""
    run, end = subject.run, float("inf")
    rounds, (generator, discriminator) = run.of(RoundRow), _deviations_at_end(run)
    until, verdicts = rounds_until_seen(run) if rounds else None, default_verdicts(run)
    scores = {
        metric: score.value if (score := last_score(run, metric)) else None
        for metric, *_ in _SCORES
    }
    return {
        **scores,
        "samples_processed": samples_processed(subject),
        "client_bytes": worker_bytes(subject, end),
        "server_bytes": server_bytes(subject, end),
        "seconds": number_in(run.status, "seconds"),
        "epsilon": max(run.state.epsilon.values(), default=None),
        "rules_not_met": float(sum(not each.met for each in verdicts)) if verdicts else None,
        "rounds": float(len(rounds)) if rounds else None,
        ROUNDS_UNTIL: None if until is None else float(until),
        "generator_loss_deviation": generator,
        "discriminator_loss_deviation": discriminator,
    }


def _deviations_at_end(run: RecordedRun) -> tuple[float | None, float | None]:
    """The standard deviations of J_gen and J_disc in the last quarter (ParaGAN, figure 6)."""
    rows = run.state.losses
    begin = rows[-1][0] * (1 - _LAST) if rows else 0.0
    late = [losses for i, *losses in rows if i > begin]
    finite = [[x for both in late if (x := both[k]) is not None] for k in (0, 1)]
    first, second = (stdev(x) if _LEAST_LOGGED <= len(x) == len(late) else None for x in finite)
    return first, second


def as_table(entries: Mapping[str, Any]) -> str:
    """The means as a table, without empty columns; below it yardsticks and meanings of headings."""
    headings, rows, notes = _cells(entries)
    all_meanings = {"runs": _RUNS, **{heading: what for _, heading, what in (*_SCORES, *_OTHERS)}}
    known = [(each, all_meanings.get(each.partition(" (")[0], "")) for each in headings]  # no units
    meanings = [(heading, meaning) for heading, meaning in known if meaning]
    numbers = text_table(rows, headings, right=range(1, len(headings)))
    return "\n".join([numbers, *notes, text_table(meanings, indent=2)])


_LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        **{"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"},
        **{"±": r"$\pm$", "–": "--", "ε": r"$\varepsilon$", "κ": r"$\kappa$", "µ": r"$\mu$"},
    }
)


def as_latex(entries: Mapping[str, Any]) -> str:
    """The same table as a `tabular` that needs no package; the yardsticks are comments."""
    headings, rows, notes = _cells(entries)
    lines = [" & ".join(cell.translate(_LATEX) for cell in row) for row in (headings, *rows)]
    head, *body = (f"{line} \\\\" for line in lines)
    return "\n".join(
        [
            *(f"% {note}" for note in notes),
            rf"\begin{{tabular}}{{l{'r' * (len(headings) - 1)}}}",
            *(r"\hline", head, r"\hline", *body, r"\hline", r"\end{tabular}", ""),
        ]
    )


def _rows(entries: Mapping[str, Any]) -> Iterator[tuple[str, str, Any, list[dict[str, Any]]]]:
    """Label, finished runs, numbers, and the runs that they are of; unfinished ones have a row."""
    for name, entry in entries.items():
        runs = entry["runs"]
        finished = [run for run in runs.values() if run["state"] == "finished"]
        yield name, f"{len(finished)}/{len(runs)}", entry["summary"], finished
        for seed, run in runs.items():
            if run["state"] != "finished" and run["iteration"]:
                end = "failed" if run["state"] == "failed" else "stopped"
                label = f"{name}, seed {seed}: {end} at {run['unit']} {run['iteration']:,}"
                numbers = {one: _summary(one, [run]) for one, *_ in (*_SCORES, *_OTHERS)}
                yield label, _NOTHING, numbers, [run]


def _cells(entries: Mapping[str, Any]) -> tuple[list[str], list[tuple[str, ...]], list[str]]:
    labels, counts, summaries, of_rows = zip(*_rows(entries), strict=True)
    of_real: dict[str, list[float]] = {}
    for run in chain.from_iterable(of_rows):
        if run["yardstick"]:
            of_real.setdefault(run["yardstick"], []).extend([run["real"]] if run["real"] else [])
    letters = dict(zip(of_real, ascii_lowercase, strict=False)) if len(of_real) > 1 else {}
    columns = {}
    for name, heading, meaning in (*_SCORES, *_OTHERS):
        numbers = [summary[name] for summary in summaries]
        if not (means := [each["mean"] for each in numbers if each is not None]):
            continue
        length, unit = _UNITS[name](means) if name in _UNITS else (1.0, "")
        cells = [_said(each, length) for each in numbers]
        if letters and (name, heading, meaning) in _SCORES:
            of = [{letters.get(run["yardstick"], "") for run in runs} for runs in of_rows]
            cells = [
                cell if cell == _NOTHING else f"{cell} {''.join(sorted(used))}"
                for cell, used in zip(cells, of, strict=True)
            ]
        columns[f"{heading} ({unit})" if unit else heading] = cells
    rows = list(zip(labels, counts, *columns.values(), strict=True))
    return ["", "runs", *columns], rows, _notes(of_real, letters)


def _notes(of_real: Mapping[str, Sequence[float]], letters: Mapping[str, str]) -> list[str]:
    """Notes on the yardsticks of scores, one for each."""
    notes = []
    for one, scores in of_real.items():
        real = f"; real data: FID {_said(_described(scores))}" if scores else ""
        notes.append(f"{letters.get(one, 'scores')}: {one}{real}")
    return [*notes, *(["scores of different letters do not compare"] if letters else [])]


def _run(training: Training) -> dict[str, Any]:
    try:
        run = RecordedRun.read(training.folder)
    except BadInput as error:
        nothing: dict[str, Any] = {name: None for name, *_ in (*_SCORES, *_OTHERS)}
        missing = {"state": "missing", "reason": str(error), "iteration": 0, "yardstick": None}
        return {**missing, "real": None, **nothing}
    (subject,) = subjects([run])
    return {
        "state": str(run.status.get("state")),
        "iteration": run.status.get("iteration", 0),
        "unit": run.unit,
        "yardstick": _yardstick(run),
        "real": reference(run, "fid"),
        **numbers_of(subject),
    }


def _yardstick(run: RecordedRun) -> str | None:
    """What the scores of a run were measured with, in words; None if it was not scored."""
    events = score_events(run)
    if not events:
        return None
    words, real = yardstick(run)
    held_out = run.config.get("held_out")
    which = f" in {held_out}" if held_out else ""
    return f"{words}, {events[-1].n_held_out or 0:,} held out{which} (real samples {real})"


def _summary(name: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """Mean, sample standard deviation, least and greatest; None if there is no mean."""
    values = [run[name] for run in runs if run[name] is not None]
    if not values or (name == ROUNDS_UNTIL and len(values) < len(runs)):
        return None  # a mean without the runs that never got there would flatter
    return _described(values)


def _described(values: Sequence[float]) -> dict[str, float]:
    return {
        "mean": fmean(values),
        "deviation": stdev(values) if len(values) > 1 else 0.0,
        "least": min(values),
        "greatest": max(values),
        "runs": len(values),
    }


def _said(summary: Mapping[str, float] | None, length: float = 1.0) -> str:
    """Mean and deviation in a unit of some length."""
    if summary is None:
        return _NOTHING
    mean, deviation = summary["mean"] / length, summary["deviation"] / length
    seen = said(mean - deviation) != said(mean + deviation)  # else the digits shown do not differ
    return f"{said(mean)} ± {said(deviation)}" if seen else said(mean)
