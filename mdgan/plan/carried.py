"""What each machine of a planned run carries: workers, or clients that are placed every round."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import fmean

from mdgan.families.contract import Placing, PlannedHost, PlannedShare
from mdgan.observe.progress import duration
from mdgan.plan.advice import Question
from mdgan.plan.layout import Workers
from mdgan.plan.machines import Machines
from mdgan.plan.measurement import Measured
from mdgan.plan.words import Part, Row
from mdgan.records.values import brief_seconds, brief_size

_COHORTS = (10, 100, 1_000, 10_000)
"""Clients of a round that are foretold besides those of the planned run."""
_ROUNDS = 5_000
"""Sani et al. 2024, appendix: "a commonly used experimental setting in FL research"."""
_HOUR_SECONDS = 3600
_MOST_RANGES = 8


def worker_part(machines: Sequence[Machines], hosts: Sequence[Workers]) -> Part:
    """How many workers each machine should carry, and by which `--ranks`.

    Args:
        machines: of the run besides the server's.
        hosts: the workers of one machine after another; maybe none.
    """
    rows, left = [], iter(hosts)
    for each in machines:
        own = list(islice(left, each.count))
        ranges = [f"{carried[0]}..{carried[-1]}" for carried in own if carried]
        more = ", …" if len(ranges) > _MOST_RANGES else ""
        ranks = ", ".join(ranges[:_MOST_RANGES]) + more
        fewest, most = min(map(len, own)), max(map(len, own))
        count = f"{most}" if fewest == most else f"{fewest} to {most}"
        rows.append((each.shown, count, f"worker(s); --ranks {ranks}" if ranks else "workers"))
    return "machines, each with one host", rows


@dataclass(frozen=True)
class Rounds:
    """Rounds of clients without a home.

    Attributes:
        placing: what the algorithm says of them.
        measured: on this machine; costs of hosts are those of messages alone.
        question: with these costs, and bytes of the short run.
        machines: of the run besides the server's.
    """

    placing: Placing
    measured: Measured
    question: Question
    machines: Sequence[Machines]

    @property
    def hosts(self) -> list[PlannedHost]:
        """One of each machine."""
        return [
            PlannedHost(each.slots or self.placing.slots, each.speed)
            for each in self.machines
            for _ in range(each.count)
        ]

    def asked(self, a_step: int) -> tuple[Question, Sequence[PlannedShare]]:
        """The question with what hosts do if so many clients take part, and that."""
        question = self.question
        shares = self.placing.shares(self.measured.placed, self.hosts, a_step)
        own = zip(question.costs.answers, shares, strict=True)
        costs = replace(question.costs, answers=tuple(told + each.seconds for told, each in own))
        out, back = tuple(each.out for each in shares), tuple(each.back for each in shares)
        traffic = replace(question.traffic, out=out, back=back)
        return replace(question, costs=costs, traffic=traffic), shares

    def parts(self) -> list[Part]:
        """What they add to the page."""
        placing = self.placing
        return [
            ("a client, on a slot of this machine", self._clients()),
            ("machines, each with one host", self._machines(self.asked(placing.a_step)[1])),
            ("foretold for other rounds", self._cohorts()),
        ]

    def _clients(self) -> list[Row]:
        found = self.placing.seconds(self.measured.placed)
        return [
            (f"of {x} iteration(s)", brief_seconds(seconds), "") for x, seconds in found.items()
        ]

    def _machines(self, shares: Sequence[PlannedShare]) -> list[Row]:
        measured, rows = self.measured, []
        longest = max(each.seconds for each in shares)
        left = iter(shares)
        for each in self.machines:
            own = list(islice(left, each.count))
            slots = each.slots or self.placing.slots
            memory = measured.shared_bytes + measured.host_bytes + slots * measured.worker_bytes
            idle = 1 - fmean(share.busy for share in own) / longest
            clients = fmean(share.clients for share in own)
            told = f"{slots} slot(s), {clients:.3g} client(s), {idle:.0%} idle"
            seconds = brief_seconds(max(share.seconds for share in own))
            rows.append((each.shown, seconds, f"{told}, {brief_size(memory)} of memory"))
        return rows

    def _cohorts(self) -> list[Row]:
        rows = []
        sizes = {self.placing.a_step, *(size for size in _COHORTS if size < self.placing.clients)}
        for size in sorted({*sizes, self.placing.clients}):
            seconds = self.asked(size)[0].answer().step
            told = f"{_HOUR_SECONDS / seconds:,.0f} rounds an hour"
            whole = f"{_ROUNDS:,} rounds take {duration(_ROUNDS * seconds)}"
            rows.append((f"{size:,} clients a round", brief_seconds(seconds), f"{told}; {whole}"))
        return rows
