"""Finds attackers: workers whose feedback asks the generator for the opposite of the others'.

The mean of an answer over its batch, F̄_n, says in which direction the mean of generated samples
should move. Workers agree on that, whatever batch they judge: on digits the cosine with the mean of
the others is 0.97 at first and 0.54 after 1,500 iterations, on sorted digits 0.9 and, after 600,
0.6. So each answer has a figure: ⟨F̄_n, M⟩ / ⟨M, M⟩, where M is the median of all F̄, value by
value. The figure of most workers is about 1. It is below 0 for a worker that opposes the others,
and for a worker that pulls the generator towards one picture, since the others pull back.

The server counts evidence that a worker's figure lies as far below the usual one as if it opposed
the others (CUSUM, Page 1954). One iteration counts for little either way, so that a worker cannot
make up for lies by some honest answers. The answers of a named worker count again once no evidence
is left, but never again if the server names it twice: a worker that pulls towards one picture
opposes the others only while its answers count. An answer far longer than usual is evidence, too.
Where workers hardly agree, as on sorted data without swaps, there is nothing to oppose.

All workers of a masked sum share its figure. If a sum opposes the others for long, one of its hosts
does. Then the server divides hosts anew in each iteration (`ServerPath.look_closer`), and names the
host whose workers have the most evidence: it was in all sums that opposed the others.
"""

from collections.abc import Collection, Mapping, Sequence
from math import sqrt
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdgan.engine.stages.suspect_settings import GUILTY, LEAST_TO_NAME, LEAST_WORKERS
from mdgan.gan.exact_sum import PartialSum

_ENOUGH = GUILTY**2 / 2
_MOST = 2 * _ENOUGH
_SURE = 0.95 * _MOST
"""Far more evidence than the server needs to ignore a worker's answers. One discriminator may be to
blame: on MNIST an honest worker came to 64 in the 100 iterations before the first swap, and lost
half of that in the next 100. So the server names a worker that opposes with the discriminator that
it took, too; or with three discriminators; or that has taken no discriminator for long."""
_OFTEN = 3
_LONG_WITHOUT_SWAP = 400  # iterations
_SHORT_SWAP = 12
"""Iterations within which several swaps count as one. In so few iterations one discriminator shows
little: where swaps come in every iteration or two, as on sorted data, the server takes several."""
_FOR, _AGAINST = 2.0, 0.5
"""The most evidence of one iteration: that a worker opposes the others, and that it does not. So
the server finds a worker that does so in more than a fifth of all iterations."""
_LONG = 3.0
"""Times the usual norm from which on an answer is evidence; honest ones had 2.6 at most."""
_LEAST_AGREEMENT = 0.1
"""Of `_figures`: on digits 0.23 or more, with single classes without swaps 0.19 or less."""
_FEW = 8
"""With fewer workers the nearer half may be near by chance, so the median of all pairs counts, too.
Where five workers hardly agreed, an attacker that sent the opposite of another worker's answers had
that worker named in up to 9 of 30 simulated runs without this median, in one with it."""
_LEAST_DEVIATION = 0.15
_GAP = 2.0
"""How far below the usual figure that of an opponent lies, in usual figures: only a figure below 0
is evidence. With 1.5 an honest worker was named in two of three runs on MNIST."""
_MEMORY = 25  # iterations by which the server knows the usual figure
_FRESH = 100  # iterations after a swap in which the discriminator may be to blame
_MOST_OF_ONE = _ENOUGH / 4
_LONGEST_SEARCH = 200
_TINY = 1e-300

_Floats = NDArray[np.float64]


class Opposition:
    """Scores workers by their answers; draws no random number and changes no answer.

    Args:
        of_sums: whether the server sees only sums, of workers of several hosts.

    Attributes:
        guilty: the named workers, fewer than half of all.
        left_out: the workers whose last answers should not count: the guilty; others with enough
            evidence against them; and, in a search, those in sums that oppose the others.
        least_answers: `look` counts no evidence with fewer answers, or sums.
        divides: whether a search is on, in which each sum needs other hosts than before.
    """

    def __init__(self, *, of_sums: bool = False) -> None:
        self._of_sums = of_sums
        self.least_answers = LEAST_WORKERS if of_sums else LEAST_TO_NAME
        self.guilty: set[int] = set()
        self.left_out: set[int] = set()
        self.divides = False
        self._evidence: dict[int, float] = {}
        self._usual = self._variance = 0.0
        self._num_seen = 0
        # By worker: the iteration in which it last took a discriminator, and the evidence then; the
        # iteration since which new evidence is counted, and that evidence.
        self._at_swap: dict[int, tuple[int, float]] = {}
        self._since_swap: dict[int, tuple[int, float]] = {}
        self._kept_out: set[int] = set()  # workers left out until no evidence is left
        self._times_out: dict[int, tuple[int, int]] = {}  # how many discriminators, last iteration
        self._times_found: dict[int, int] = {}
        self._search_ends = 0

    @property
    def scores(self) -> dict[int, float]:
        """By worker, how sure the server is that it opposes, in standard deviations."""
        shown = {} if self._of_sums and not self.divides else self._evidence
        return {n: sqrt(2 * evidence) for n, evidence in shown.items()}

    def state(self) -> dict[str, Tensor]:
        """The tensors that later looks depend on; empty before the first look."""
        if not self._num_seen:
            return {}
        numbers = self._usual, self._variance, self._num_seen, self._search_ends, self.divides
        lists = {
            ".evidence": list(self._evidence.items()),
            ".given": [(n, *before) for n, before in self._at_swap.items()],
            ".since": [(n, *gained) for n, gained in self._since_swap.items()],
            ".kept out": sorted(self._kept_out),
            ".times out": [(n, *times) for n, times in self._times_out.items()],
            ".guilty": sorted(self.guilty),
            ".times": list(self._times_found.items()),
            ".numbers": numbers,
        }
        return {name: torch.tensor(rows, dtype=torch.float64) for name, rows in lists.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned; an empty state changes nothing."""
        if ".evidence" in state:
            self._evidence = {int(n): evidence for n, evidence in state[".evidence"].tolist()}
            self._at_swap = {int(n): (int(at), had) for n, at, had in state[".given"].tolist()}
            self._since_swap = {int(n): (int(at), had) for n, at, had in state[".since"].tolist()}
            self._kept_out = set(map(int, state[".kept out"].tolist()))
            times_out = state[".times out"].long().tolist()
            self._times_out = {n: (times, since) for n, times, since in times_out}
            self.guilty = set(map(int, state[".guilty"].tolist()))
            self._times_found = {int(n): int(times) for n, times in state[".times"].tolist()}
            self._usual, self._variance, *counts, divides = state[".numbers"].tolist()
            self._num_seen, self._search_ends = map(int, counts)
            self.divides = bool(divides)

    def note_takers(self, workers: Collection[int]) -> None:
        """Records that workers have taken discriminators of other workers."""
        for n in workers:
            _, before = self._at_swap.get(n, (0, 0.0))
            since, _ = self._since_swap.get(n, (-_SHORT_SWAP, 0.0))
            if before < _ENOUGH or self._num_seen - since >= _SHORT_SWAP:
                self._since_swap[n] = self._num_seen, 0.0
            self._at_swap[n] = self._num_seen, self._evidence.get(n, 0.0)

    def forget(self, workers: Collection[int]) -> None:
        """Forgets ranks that now belong to other owners."""
        self.guilty -= set(workers)
        self._kept_out -= set(workers)
        counts = self._evidence, self._at_swap, self._since_swap, self._times_out
        for by_worker in (*counts, self._times_found):
            for n in workers:
                by_worker.pop(n, None)

    def look(
        self,
        feedbacks: Mapping[int, Tensor],
        sums: Sequence[PartialSum],
        host_of: Mapping[int, int],
    ) -> None:
        """Counts the evidence of an iteration: F_n by worker, and sums of several, [b, C, H, W]."""
        workers = [(n,) for n in sorted(feedbacks)] + [part.workers for part in sums]
        self._num_seen += 1
        self.left_out = set()
        if len(workers) >= self.least_answers:
            means, too_long = [], set()
            if feedbacks:
                in_order = sorted(feedbacks)
                answers = torch.stack([feedbacks[n] for n in in_order])
                means.append(answers.mean(1).flatten(1))
                norms = torch.linalg.vector_norm(answers.flatten(1), dim=1).tolist()
                most = _LONG * median(norms)
                too_long = {n for n, norm in zip(in_order, norms, strict=True) if norm > most}
            for part in sums:
                means.append(part.total.mean(0).float().view(1, -1) / len(part.workers))
            rows = means[0] if len(means) == 1 else torch.cat(means)
            self._take(workers, rows.cpu().double().numpy(), host_of, too_long=too_long)
        sure = {n for n, evidence in self._evidence.items() if evidence >= _ENOUGH}
        if not self._of_sums:
            times = self._times_found
            out = sure | {n for n in self._kept_out if self._evidence.get(n) or times.get(n, 0) > 1}
            live = self._evidence.keys() & host_of.keys()
            if 2 * len(out & live) >= len(live):
                out = set()
            for n in out - self._kept_out:
                self._count_time_out(n)
            guilty = {n for n in out if n in self.guilty or self._is_to_blame(n)}
            for n in guilty - self.guilty:
                times[n] = times.get(n, 0) + 1
            self._kept_out, self.guilty, self.left_out = out, guilty, set(out)
        elif not self.divides and sure:
            self.divides, self._evidence = True, {}
            self._search_ends = self._num_seen + _LONGEST_SEARCH
        elif self.divides:
            most = max(self._evidence.values(), default=0.0)
            first = {n for n in sure if self._evidence[n] == most}
            guilty = first if len({host_of.get(n, n) for n in first}) == 1 else set()
            if guilty or self._num_seen >= self._search_ends:
                self.divides, self._evidence = False, {}
                if 2 * len(guilty | self.guilty) < len(host_of):
                    self.guilty |= guilty
        self.left_out |= self.guilty

    def _take(
        self,
        parts: Sequence[tuple[int, ...]],
        rows: _Floats,
        host_of: Mapping[int, int],
        too_long: Collection[int],
    ) -> None:
        """Counts the evidence of mean answers: a row for each worker, or for a sum's workers."""
        for n in too_long:
            self._add(n, _FOR)
        figures, agreement = _figures(rows, lengthens=not self._of_sums)
        if agreement < _LEAST_AGREEMENT:
            return
        gap = _GAP
        if self._of_sums:  # one opponent among m hosts lowers the figure of their sum by 2/m
            gap = min(gap, 2 / max(len({host_of.get(n, n) for n in part}) for part in parts))
        by_worker = {n: figure for part, figure in zip(parts, figures, strict=True) for n in part}
        if self.divides:
            self.left_out = {n for n, figure in by_worker.items() if figure < 0}
        usual = median(by_worker.values())
        deviation = 1.4826 * median([abs(figure - usual) for figure in by_worker.values()])
        newest = 1 / min(self._num_seen, _MEMORY)
        self._usual += newest * (usual - self._usual)
        self._variance += newest * (deviation**2 - self._variance)
        gap *= max(0.0, self._usual)
        strength = gap / max(self._variance, _LEAST_DEVIATION**2)
        for n in by_worker.keys() - too_long:
            # The logarithm of the ratio of two normal densities, whose means are `gap` apart.
            ratio = strength * (usual - by_worker[n] - gap / 2)
            self._add(n, min(max(ratio, -_AGAINST), _FOR))

    def _count_time_out(self, n: int) -> None:
        times, since = self._times_out.get(n, (0, -1))
        is_another = self._at_swap.get(n, (0, 0.0))[0] > since
        self._times_out[n] = times + is_another, self._num_seen

    def _is_to_blame(self, n: int) -> bool:
        """Whether to blame the worker itself, and not one discriminator alone; see `_SURE`."""
        since, before = self._at_swap.get(n, (0, 0.0))
        times, since_out = self._times_out[n]
        goes_on = before >= _ENOUGH and self._since_swap.get(n, (0, 0.0))[1] >= _MOST_OF_ONE
        is_long = self._num_seen - max(since, since_out) >= _LONG_WITHOUT_SWAP
        return times >= _OFTEN or (self._evidence.get(n, 0.0) >= _SURE and (goes_on or is_long))

    def _add(self, n: int, evidence: float) -> None:
        began, gained = self._since_swap.get(n, (0, 0.0))
        self._since_swap[n] = began, max(0.0, gained + evidence)
        since, before = self._at_swap.get(n, (-_FRESH, 0.0))
        most = before + _MOST_OF_ONE if self._num_seen - since <= _FRESH else _MOST
        self._evidence[n] = max(0.0, min(self._evidence.get(n, 0.0) + evidence, most, _MOST))


def _figures(rows: _Floats, *, lengthens: bool) -> tuple[list[float], float]:
    """The figure of each row, and how far rows agree.

    The agreement is the median, over rows, of a row's least cosine with the nearer half of the
    others.

    Args:
        lengthens: whether short rows count as rows of the usual length: a worker with weak feedback
            does not oppose the others. A sum may be short because one of its workers opposes.
    """
    in_order, number = np.sort(rows, axis=0), len(rows)
    middle = (in_order[(number - 1) // 2] + in_order[number // 2]) / 2
    shares = rows @ middle / (float(middle @ middle) + _TINY)
    # By torch, whose threads are those of the run: numpy's own would take the cores of hosts.
    products = (torch.from_numpy(rows) @ torch.from_numpy(rows).T).numpy()
    lengths = np.sqrt(products.diagonal()).clip(_TINY)
    if lengthens:
        shares *= np.maximum(1.0, median(lengths.tolist()) / lengths)
    cosines = np.sort(products / lengths / lengths[:, None], axis=1)  # the last with itself
    figures: list[float] = shares.tolist()
    agreement = median(cosines[:, -1 - number // 2].tolist())
    if lengthens and number < _FEW:
        agreement = min(agreement, float(np.median(cosines[:, :-1])))
    return figures, agreement
