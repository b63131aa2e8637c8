"""What profiled processes computed: shares of their time by kind of operator, and what was busy."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mdgan.records.roles import first_worker
from mdgan.records.rows import OPERATORS, Profile
from mdgan.report.figures.charts import bar_chart
from mdgan.report.figures.picture import Picture, Row, only, together
from mdgan.report.figures.style import COLOURS, operation_style
from mdgan.report.numbers.subject import Subject

_A_HOST = "a host, mean"
_AS_OPERATION = {"sending": "send", "waiting": "wait", "between operators": "other"}
_COLOURED: list[str] = [kind for kind in OPERATORS if kind not in _AS_OPERATION]


class Shares(NamedTuple):
    """Where the time of a process went, or of the hosts in the mean.

    Attributes:
        of: by what it was spent on, in [0, 1]; they sum to 1.
        busy_cores: how many cores a process kept busy.
        cores: those that it could use.
        gpu: the share of the time in which its GPU was busy; None if that is not known.
        iterations: which were profiled.
    """

    of: Mapping[str, float]
    busy_cores: float
    cores: int
    gpu: float | None
    iterations: str


def by_role(subject: Subject) -> dict[str, Shares]:
    """The role with the generator, and the mean of the hosts; empty without a profile."""
    last = {row.role: row for row in subject.run.of(Profile) if sum(row.operators.values()) > 0}
    groups: dict[str, list[Profile]] = {}
    for role, row in last.items():
        groups.setdefault(_A_HOST if first_worker(role) else role, []).append(row)
    return {role: _mean(rows) for role, rows in sorted(groups.items(), key=_hosts_last)}


def _hosts_last(item: tuple[str, object]) -> bool:
    return item[0] == _A_HOST


def _mean(rows: Sequence[Profile]) -> Shares:
    shares: Counter[str] = Counter()
    for row in rows:
        total = sum(row.operators.values())
        for kind, seconds in row.operators.items():
            shares[kind] += seconds / total / len(rows)  # type: ignore[assignment] # counts may be shares
    known = [row.gpu for row in rows if row.gpu is not None]
    ranges = {f"{row.first:,} to {row.last:,}" for row in rows}
    return Shares(
        shares,
        sum(row.busy_cores for row in rows) / len(rows),
        rows[0].cores,
        sum(known) / len(known) if known else None,
        min(ranges),
    )


def profiled(found: Sequence[tuple[Subject, dict[str, Shares]]]) -> Picture:
    """One stacked bar a role; of several runs, those of a run under its name."""
    several = len(found) > 1
    groups = [
        (subject.label if several else "",
         [(role, {kind: 100 * share for kind, share in one.of.items()})
          for role, one in roles.items()])
        for subject, roles in found
    ]  # fmt: skip
    every = [one for _, roles in found for one in roles.values()]
    kinds = [kind for kind in OPERATORS if any(kind in one.of for one in every)]
    figure = bar_chart(groups, kinds, _style, "share of the time [%]", with_legend=True)
    rows: list[Row] = [
        (f"{subject.label}, {role}", one.iterations,
         *(f"{100 * one.of.get(kind, 0.0):.1f} %" for kind in kinds),
         f"{one.busy_cores:.2f} of {one.cores}", _percent(one.gpu))
        for subject, roles in found
        for role, one in roles.items()
    ]  # fmt: skip
    header = ("run and role", "iterations", *kinds, "cores busy", "GPU busy")
    return together(figure, only([_said(roles) for _, roles in found]), header, rows)


def _said(roles: Mapping[str, Shares]) -> str:
    def of(role: str, one: Shares) -> str:
        kind = max(one.of, key=one.of.__getitem__)
        gpu = "" if one.gpu is None else f" and its GPU {_percent(one.gpu)} of the time"
        return (
            f"{role}: {100 * one.of[kind]:.0f} % {kind}, {one.busy_cores:.2f} of {one.cores} "
            f"cores busy{gpu}"
        )

    return "; ".join(of(role, one) for role, one in roles.items())


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def _style(kind: str) -> dict[str, Any]:
    if kind in _AS_OPERATION:
        return operation_style(_AS_OPERATION[kind])
    return {"facecolor": COLOURS[_COLOURED.index(kind) % len(COLOURS)], "linewidth": 0}
