"""Computes the numbers of a comparison: of every run, and over the seeds of a configuration.

Scores compare only with scores of the same yardstick: the same network, real and held-out samples,
and number of generated ones. Where there are several, a letter stands for each.
"""

from collections.abc import Callable, Mapping, Sequence
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
from mdgan.records.values import number_in, said, said_bytes, said_seconds
from mdgan.report.numbers.attendance import SEEN_OFTEN, rounds_until_seen
from mdgan.report.numbers.scores import last_score, reference, score_events, yardstick
from mdgan.report.numbers.subject import Subject, subjects
from mdgan.report.numbers.traffic import samples_processed, server_bytes, worker_bytes

ROUNDS_UNTIL = f"rounds_until_every_class_seen_{SEEN_OFTEN}"

Said = Callable[[float], str]

_SCORES: tuple[tuple[str, str, Said], ...] = (
    ("fid", "FID", said),
    ("inception_score", "score", said),
    ("coverage", "coverage", said),
    ("classes_covered", "classes", said),
    ("column_shapes", "shapes", said),
    ("pair_trends", "trends", said),
    ("tstr_lr", "AUC of LR", said),
    ("tstr_gb", "AUC of GB", said),
)
_OTHERS: tuple[tuple[str, str, Said], ...] = (
    ("samples_processed", "samples", said),
    ("client_bytes", "a worker moved", said_bytes),
    ("server_bytes", "the server moved", said_bytes),
    ("seconds", "time", said_seconds),
    ("epsilon", "ε spent", said),
    ("rules_not_met", "rules not met", said),
    ("rounds", "rounds", said),
    (ROUNDS_UNTIL, f"rounds to {SEEN_OFTEN}", said),
    ("generator_loss_deviation", "J_gen varies by", said),
    ("discriminator_loss_deviation", "J_disc varies by", said),
)
"""The number's name in `comparison.json`, its heading, and the function that formats it."""
_MEANINGS = {
    "runs": "finished, of all; the numbers are means over their seeds, ± standard deviation",
    "FID": "how far features of generated samples are from real ones; less is better",
    "score": "the Inception score, by the classes of the network; more is better",
    "coverage": "the share of held-out samples that have a generated one near; more is better",
    "classes": "how many classes the generated samples cover",
    "shapes": "how alike the columns of real and generated rows are; 1 is best",
    "trends": "the same of pairs of columns",
    "AUC of LR": "of a logistic regression that has learnt from generated rows, on real ones",
    "AUC of GB": "the same of gradient boosting",
    "samples": "real samples that discriminators were trained on, each as often as it was used",
    "a worker moved": "bytes that it sent and received, mean over workers",
    "the server moved": "bytes that it sent and received",
    "time": "of training",
    "ε spent": "the most that any worker's samples have spent",
    f"rounds to {SEEN_OFTEN}": f"until each class was seen {SEEN_OFTEN} times",
    "J_gen varies by": "standard deviation of the generator's loss in the last quarter",
    "J_disc varies by": "the same of the discriminators' losses",
}
"""Explanations of headings that do not explain themselves."""

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
        entry["summary"] = {name: _summary(name, finished) for name, _, _ in _OTHERS}
        mixed = len({run["yardstick"] for run in finished if run["yardstick"]}) > 1
        for name, _, _ in _SCORES:
            entry["summary"][name] = None if mixed else _summary(name, finished)
    return entries


def numbers_of(subject: Subject) -> dict[str, float | None]:
    """The numbers of one run, by name; bytes sent and received are added up."""
    run, end = subject.run, float("inf")
    rounds, (generator, discriminator) = run.of(RoundRow), _deviations_at_end(run)
    until, verdicts = rounds_until_seen(run) if rounds else None, default_verdicts(run)
    scores = {
        metric: score.value if (score := last_score(run, metric)) else None
        for metric, _, _ in _SCORES
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
    generator, discriminator = (_deviation([both[k] for both in late]) for k in (0, 1))
    return generator, discriminator


def _deviation(losses: list[float | None]) -> float | None:
    finite = [loss for loss in losses if loss is not None]
    return stdev(finite) if _LEAST_LOGGED <= len(finite) == len(losses) else None


def as_table(entries: Mapping[str, Any]) -> str:
    """The means as a table, without empty columns; below it yardsticks and meanings of headings."""
    headings, rows, notes = _cells(entries)
    meanings = [(heading, _MEANINGS[heading]) for heading in headings if heading in _MEANINGS]
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


def _cells(entries: Mapping[str, Any]) -> tuple[list[str], list[tuple[str, ...]], list[str]]:
    finished = {
        name: [run for run in entry["runs"].values() if run["state"] == "finished"]
        for name, entry in entries.items()
    }
    of_real: dict[str, list[float]] = {}
    for run in chain.from_iterable(finished.values()):
        if run["yardstick"]:
            of_real.setdefault(run["yardstick"], []).extend([run["real"]] if run["real"] else [])
    letters = dict(zip(of_real, ascii_lowercase, strict=False)) if len(of_real) > 1 else {}
    columns = {}
    for name, heading, say in (*_SCORES, *_OTHERS):
        cells = [_said(entry["summary"][name], say) for entry in entries.values()]
        if letters and (name, heading, say) in _SCORES:
            of = [{letters.get(run["yardstick"], "") for run in runs} for runs in finished.values()]
            cells = [
                cell if cell == _NOTHING else f"{cell} {''.join(sorted(used))}"
                for cell, used in zip(cells, of, strict=True)
            ]
        if set(cells) != {_NOTHING}:
            columns[heading] = cells
    counts = [f"{len(finished[name])}/{len(entry['runs'])}" for name, entry in entries.items()]
    rows = list(zip(entries, counts, *columns.values(), strict=True))
    return ["", "runs", *columns], rows, _notes(of_real, letters)


def _notes(of_real: Mapping[str, Sequence[float]], letters: Mapping[str, str]) -> list[str]:
    """Notes on the yardsticks of scores, one for each."""
    notes = []
    for one, scores in of_real.items():
        real = f"; real data: FID {_said(_described(scores), said)}" if scores else ""
        notes.append(f"{letters.get(one, 'scores')}: {one}{real}")
    return [*notes, *(["scores of different letters do not compare"] if letters else [])]


def _run(training: Training) -> dict[str, Any]:
    try:
        run = RecordedRun.read(training.folder)
    except BadInput as error:
        nothing: dict[str, Any] = {name: None for name, _, _ in (*_SCORES, *_OTHERS)}
        missing = {"state": "missing", "reason": str(error), "yardstick": None, "real": None}
        return {**missing, **nothing}
    (subject,) = subjects([run])
    return {
        "state": str(run.status.get("state")),
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


def _said(summary: Mapping[str, float] | None, say: Said) -> str:
    if summary is None:
        return _NOTHING
    mean, deviation = summary["mean"], summary["deviation"]
    seen = say(mean - deviation) != say(mean + deviation)  # else the digits shown do not differ
    return f"{say(mean)} ± {say(deviation)}" if seen else say(mean)
