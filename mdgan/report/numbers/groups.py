"""Runs of one configuration, drawn as one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from mdgan.report.numbers.durations import BandedLine
from mdgan.report.numbers.scores import Score, scores_of
from mdgan.report.numbers.subject import Subject, configuration, configuration_names, labels

Cost = Callable[[Subject, Score], float | None]
"""How many iterations, seconds or bytes a run took up to a score; None if it is not known."""


@dataclass(frozen=True)
class Group:
    """The runs of one configuration; every configuration of the report has another label."""

    label: str
    members: tuple[Subject, ...]

    @property
    def first(self) -> Subject:
        """The run whose colour and marker stand for all of them."""
        return self.members[0]


def groups(subjects: Sequence[Subject]) -> list[Group]:
    """The configurations of a report, in the order of their first runs."""
    found: dict[tuple[str, str], list[Subject]] = {}
    names = configuration_names([subject.run for subject in subjects])
    for place, subject in enumerate(subjects):
        name = names[place] if names else ""
        found.setdefault((name, configuration(subject.run)), []).append(subject)
    members = list(found.values())
    if names:
        own = [name for name, _ in found]
        named = [
            name if own.count(name) == 1 else runs[0].label
            for name, runs in zip(own, members, strict=True)
        ]
    else:
        named = labels([runs[0].run for runs in members])
    return [Group(label, tuple(runs)) for label, runs in zip(named, members, strict=True)]


def curve(group: Group, metric: str, cost: Cost) -> BandedLine:
    """A metric of a configuration against what it took, one point an iteration that was scored.

    Of the iterations those that all runs have in common, or all if there are none. It is the mean
    over the runs with a band from the least to the greatest, or of a single run its standard
    deviation.
    """
    found: list[dict[int, tuple[float, Score]]] = []
    for subject in group.members:
        costs = [(score, cost(subject, score)) for score in scores_of(subject.run, metric)]
        known = {score.iteration: (x, score) for score, x in costs if x is not None}
        if known:
            found.append(known)
    every = [set(points) for points in found]
    iterations = sorted(set.intersection(*every) or set.union(*every)) if every else []
    line = BandedLine([], [], [], [])
    for iteration in iterations:
        points = [points[iteration] for points in found if iteration in points]
        values = [score.value for _, score in points]
        spread = (points[0][1].deviation or 0.0) if len(group.members) == 1 else 0.0
        line.add(fmean(x for x, _ in points), values, fmean(values), spread)
    return line


def said_bands(found: Sequence[Group]) -> str:
    """What the bands are, if there are some; a sentence."""
    most = max((len(group.members) for group in found), default=0)
    if most < 2:
        return ""
    return f"Lines are means over up to {most} seeds, bands reach from the least to the greatest."
