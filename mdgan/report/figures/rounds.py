"""Federated rounds: who took part with what weight, and what the server has seen."""

from collections import Counter
from collections.abc import Callable, Sequence
from math import ceil, isfinite
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mdgan.records.values import chosen_evenly, count, said
from mdgan.report.figures.picture import Panel, Picture, only
from mdgan.report.figures.shapes import Rectangle, rectangles
from mdgan.report.figures.style import (
    INK,
    SOFT,
    iteration_axis,
    legend,
    line_style,
    log_y,
    new_figure,
    run_colour,
    run_style,
    wants_log,
)
from mdgan.report.numbers.groups import Curve, Group, groups, said_bands
from mdgan.report.numbers.rounds import (
    SEEN_OFTEN,
    Round,
    kl_of_seen,
    rounds_of,
    rounds_until_seen,
    seen_of,
)
from mdgan.report.numbers.subject import Subject
from mdgan.report.numbers.table import Table
from mdgan.report.palette import PRESENCE

NO_ROUNDS = "only federated runs (fl-gan, fegan) have rounds"
_MOST_STRETCHES = 200
_MOST_LANES = 100
_MOST_TICKS = 20
_MOST_DOTS = 1500
_MOST_ROWS = 40
_LEVELS = 8
_MADE_OF = (("took part", "took part"), ("asked in vain", "late"), ("aborted", "refused"))
"""What a round was for a worker, and the name of its colour."""
_LOG_FROM_RATIO = 15


def who_took_part_in_rounds(subjects: Sequence[Subject]) -> Picture | str:
    """Which workers took part in which rounds: worker against round."""
    found = _with_rounds(subjects)
    if not found:
        return NO_ROUNDS
    panels = [
        Panel(s.label if len(found) > 1 else "", _draw_map(s, rounds), "" if len(found) == 1
              else _said_rounds(rounds))
        for s, rounds in found
    ]  # fmt: skip
    rows = [row for subject, rounds in found for row in _worker_rows(subject, rounds)]
    header = ("run", "worker", "asked", "took part", "weight, mean", "weight, in all")
    return Picture(panels, only([_said_rounds(r) for _, r in found]), Table(header, rows))


def weights_in_rounds(subjects: Sequence[Subject]) -> Picture | str:
    """The weight of every worker that took part, against rounds."""
    found = _with_rounds(subjects)
    if not found:
        return NO_ROUNDS
    figure = new_figure(2.75)
    axes = figure.add_subplot()
    told, rows = [], []
    for subject, rounds in found:
        used = [(n, one) for n, one in enumerate(rounds, start=1) if one.counted]
        dots = [
            (n, one.weights[worker])
            for n, one in chosen_evenly(used, _MOST_DOTS)
            for worker in one.counted
        ]
        if not dots:
            continue
        dots = chosen_evenly(dots, _MOST_DOTS)
        style = {**run_style(subject), "linestyle": "none", "alpha": 0.6, "markersize": 3}
        axes.plot([x for x, _ in dots], [y for _, y in dots], **style, label=subject.label)
        weights = [weight for _, one in used for weight in one.weights.values()]
        equal = fmean(1 / len(one.counted) for _, one in used)
        axes.axhline(equal, color=run_colour(subject), linestyle=(0, (6, 3)), linewidth=1)
        told.append(f"Weights from {said(min(weights))} to {said(max(weights))}")
        rows.append((subject.label, *map(said, (min(weights), equal, max(weights)))))
    if not rows:
        return "every round was aborted"
    axes.set(ylim=(0, None), ylabel="weight in the average")
    axes.margins(x=0.03)
    iteration_axis(axes, "round")
    if len(rows) > 1:
        legend(figure)
    table = Table(("run", "least weight", "equal weight", "greatest weight"), rows)
    return Picture([Panel("", figure)], only(told), table)


def samples_seen(subjects: Sequence[Subject]) -> Picture | str:
    """Samples of a class that the server has seen, against rounds (FeGAN, figure 14)."""
    found = _curves(subjects, _seen_of_classes)
    if isinstance(found, str):
        return found
    figure = new_figure(2.75)
    axes = figure.add_subplot()
    axes.axhline(SEEN_OFTEN, color=SOFT, linestyle=(0, (6, 3)), linewidth=1.1)
    for group, line in found:
        _draw_line(axes, group, line)
        if (reached := _reached(group)) is not None:
            axes.axvline(reached, color=run_colour(group.first), linewidth=1, linestyle=":")
            axes.plot(reached, SEEN_OFTEN, "D", color=run_colour(group.first), markersize=6,
                      markeredgecolor=INK, markeredgewidth=0.8, zorder=4)  # fmt: skip
    axes.set(ylim=(0, None), xlim=(0, None), ylabel="samples of a class seen")
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}")
    iteration_axis(axes, "round")
    if len(found) > 1:
        legend(figure)
    rows = [
        (s.label, f"{len(rounds_of(s.run)):,}", *_extremes(s), _said_reached(s))
        for group, _ in found
        for s in group.members
    ]
    header = ("run", "rounds", "least seen class", "most seen class", _every_class())
    told = "; ".join(
        f"{s.label}: {_said_reached(s)}" if len(rows) > 1 else f"{_said_reached(s)}"
        for group, _ in found
        for s in group.members
    )
    seen = f"{_every_class()}: {told}."
    return Picture([Panel("", figure)], seen, Table(header, rows))


def kl_of_seen_data(subjects: Sequence[Subject]) -> Picture | str:
    """KL(real ‖ seen) against rounds (FeGAN, figure 10)."""
    found = _curves(subjects, _kl_of_runs)
    if isinstance(found, str):
        return found
    figure = new_figure(2.75)
    axes = figure.add_subplot()
    for group, line in found:
        _draw_line(axes, group, line)
    values = [value for _, line in found for value in line.middle]
    if not values:
        return "in no run has the server seen every class yet"
    axes.set(xlim=(0, None), ylabel="KL(real ‖ seen) [nats]")
    if wants_log(values, _LOG_FROM_RATIO):
        log_y(axes)
    else:
        axes.set_ylim(0, 1.1 * max(max(line.high) for _, line in found if line.x) or 1)
    iteration_axis(axes, "round")
    if len(found) > 1:
        legend(figure)
    rows, unseen = [], []
    for group, _ in found:
        for subject in group.members:
            divergence = kl_of_seen(subject.run)
            first = next((n for n, kl in enumerate(divergence, 1) if isfinite(kl)), None)
            at = sorted({1, len(divergence), *chosen_evenly(range(1, len(divergence) + 1), 6)})
            rows += [(subject.label, f"{n:,}", _said_kl(divergence[n - 1])) for n in at]
            if first != 1:
                unseen.append(subject.label)
    seen = "A line begins where every class has been seen; before that it is infinite."
    told = [seen if unseen else "", said_bands([group for group, _ in found])]
    table = Table(("run", "after round", "KL [nats]"), chosen_evenly(rows, _MOST_ROWS))
    return Picture([Panel("", figure)], " ".join(filter(None, told)), table)


def _with_rounds(subjects: Sequence[Subject]) -> list[tuple[Subject, list[Round]]]:
    every = [(subject, rounds_of(subject.run)) for subject in subjects]
    return [(subject, rounds) for subject, rounds in every if rounds]


def _draw_map(subject: Subject, rounds: Sequence[Round]) -> Figure:
    workers = sorted({*subject.workers, *(worker for one in rounds for worker in one.asked)})
    workers = chosen_evenly(workers, _MOST_LANES)
    size = ceil(len(rounds) / _MOST_STRETCHES)
    figure = new_figure(0.75 + min(6.0, max(0.09, 3.2 / len(workers)) * len(workers)), wide=True)
    axes = figure.add_subplot()
    boxes = _boxes(rounds, workers, size)
    for name, colour in _MADE_OF:
        for level in range(1, _LEVELS + 1):
            alpha = level / _LEVELS
            style = {"facecolor": PRESENCE[colour].light, "alpha": alpha, "linewidth": 0}
            rectangles(axes, boxes.get((name, level), []), **style)
    present = {name for name, _ in boxes}
    handles = [
        Patch(facecolor=PRESENCE[colour].light, label=name)
        for name, colour in _MADE_OF
        if name in present
    ]
    step = -(-len(workers) // _MOST_TICKS)
    axes.set_yticks(range(0, len(workers), step), [str(n) for n in workers[::step]])
    axes.set(xlim=(0.5, len(rounds) + 0.5), ylim=(len(workers) - 0.5, -0.5), ylabel="worker")
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    iteration_axis(axes, "round", most_ticks=10)
    figure.legend(handles=handles, loc="outside upper left", ncols=3, labelcolor=SOFT)
    return figure


def _boxes(
    rounds: Sequence[Round], workers: Sequence[int], size: int
) -> dict[tuple[str, int], list[Rectangle]]:
    """Rectangles by what they show and how strongly: the share of a stretch of `size` rounds."""
    lanes = {worker: y for y, worker in enumerate(workers)}
    boxes: dict[tuple[str, int], list[Rectangle]] = {}
    gap = 0.08 if size == 1 and len(rounds) <= _MOST_STRETCHES / 2 else 0.0
    for begin in range(0, len(rounds), size):
        stretch = rounds[begin : begin + size]
        times = Counter((worker, _what(one, worker)) for one in stretch for worker in one.asked)
        for (worker, name), amount in times.items():
            if worker in lanes:
                level = max(1, round(_LEVELS * amount / len(stretch)))
                left, width = begin + 0.5 + gap / 2, len(stretch) - gap
                box = (left, lanes[worker] - 0.44, width, 0.88)
                boxes.setdefault((name, level), []).append(box)
    return boxes


def _what(one: Round, worker: int) -> str:
    if one.aborted:
        return "aborted"
    return "took part" if worker in one.weights else "asked in vain"


def _said_rounds(rounds: Sequence[Round]) -> str:
    sizes = [len(one.counted) for one in rounds]
    size = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    aborted = sum(one.aborted for one in rounds)
    more = f", {aborted:,} of them aborted" if aborted else ""
    return f"{count(len(rounds), 'round')} of {size} workers{more}"


def _worker_rows(subject: Subject, rounds: Sequence[Round]) -> list[tuple[str, ...]]:
    asked = Counter(worker for one in rounds for worker in one.asked)
    weights: dict[int, list[float]] = {}
    for one in rounds:
        for worker in one.counted:
            weights.setdefault(worker, []).append(one.weights[worker])
    rows: list[tuple[str, ...]] = []
    for worker in sorted({*subject.workers, *asked}):
        own = weights.get(worker, [])
        mean = said(fmean(own)) if own else "–"
        rows.append((subject.label, f"worker {worker}", f"{asked[worker]:,}", f"{len(own):,}",
                     mean, said(sum(own))))  # fmt: skip
    return rows


def _curves(
    subjects: Sequence[Subject], of_runs: Callable[[Sequence[Subject]], Curve]
) -> list[tuple[Group, Curve]] | str:
    """A line for every configuration that has rounds, or why there is none."""
    federated = [group for group in groups(subjects) if rounds_of(group.first.run)]
    if not federated:
        return NO_ROUNDS
    lines = [(group, of_runs(group.members)) for group in federated]
    if not any(seen_of(group.first.run)[1] for group in federated):
        return "nobody told how many samples of each class it holds"
    return lines


def _seen_of_classes(subjects: Sequence[Subject]) -> Curve:
    """The mean over the classes and runs after every round, with the least and the greatest."""
    every = [seen for s in subjects if (seen := seen_of(s.run)[0])]
    line = Curve([0.0], [0.0], [0.0], [0.0]) if every else Curve([], [], [], [])
    for number, after in enumerate(zip(*every, strict=False), start=1):
        counts = [amount for of_run in after for amount in of_run]
        line.x.append(float(number))
        line.low.append(float(min(counts)))
        line.middle.append(fmean(counts))
        line.high.append(float(max(counts)))
    return line


def _kl_of_runs(subjects: Sequence[Subject]) -> Curve:
    """KL after every round in which it is finite in all runs: mean, least, greatest."""
    every = [kl for s in subjects if (kl := kl_of_seen(s.run))]
    line = Curve([], [], [], [])
    for number, after in enumerate(zip(*every, strict=False), start=1):
        if all(map(isfinite, after)):
            line.x.append(float(number))
            line.low.append(min(after))
            line.middle.append(fmean(after))
            line.high.append(max(after))
    return line


def _draw_line(axes: Axes, group: Group, line: Curve) -> None:
    colour = run_colour(group.first)
    if line.low != line.high:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.16, linewidth=0)
    axes.plot(line.x, line.middle, **line_style(group.first, len(line.x)), label=group.label)


def _reached(group: Group) -> float | None:
    """Mean rounds until every class was seen often; None if that did not happen in every run."""
    reached = [rounds_until_seen(subject.run) for subject in group.members]
    known = [rounds for rounds in reached if rounds is not None]
    return fmean(known) if len(known) == len(reached) else None


def _every_class() -> str:
    return f"Rounds until every class was seen {SEEN_OFTEN} times"


def _said_reached(subject: Subject) -> str:
    rounds = rounds_until_seen(subject.run)
    return "never" if rounds is None else f"{rounds:,}"


def _extremes(subject: Subject) -> tuple[str, str]:
    seen = seen_of(subject.run)[0]
    return (f"{min(seen[-1]):,}", f"{max(seen[-1]):,}") if seen and seen[-1] else ("–", "–")


def _said_kl(value: float) -> str:
    return said(value) if isfinite(value) else "∞"
