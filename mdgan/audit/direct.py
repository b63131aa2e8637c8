"""Direct tests of workers' noise and sums: do a run's measurements contradict what it states?

Each test has a probability with which an honest mechanism fails it. All tests together, of all
workers and all their processes, wrongly accuse an honest run with a probability of at most `DOUBT`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import sqrt
from typing import NamedTuple

import numpy as np

from mdgan.privacy.direct import EDGES, TRACED, Seen
from mdgan.privacy.noise import SENSITIVITY

DOUBT = 0.001
_MOST = 1.01  # tolerance of norms, which are measured in single precision
_FEW = 1e-9
_LITTLE = 0.9  # if noise is less than this part of the stated noise, its other flaws are left out
WHOLE, STEP, PART, AGAIN, VALUES = "noise", "noise of a step", "of numbers", "again", "values"
FOLLOW = (STEP, PART, AGAIN, VALUES)


class Test(NamedTuple):
    """One test of one property."""

    about: str  # the property
    p_value: float
    says: str  # the finding if the probability is too small


def flaws_of(seen: Mapping[str, Sequence[Seen]]) -> list[str]:
    """Findings that contradict what workers state, the surest first; `seen` is by worker."""
    of_all = [one for processes in seen.values() for one in processes if one.steps]
    lost = sum(one.lost for processes in seen.values() for one in processes)
    tests = [test for one in of_all for test in _of_noise(one)]
    tests += _same_noise([(worker, one) for worker, ones in seen.items() for one in ones])
    failed = [test for test in tests if test.p_value * len(tests) < DOUBT]
    if any(one.share < _LITTLE for one in of_all):  # most other failures follow from it
        failed = [test for test in failed if test.about not in FOLLOW]
    failed.sort(key=lambda test: -test.p_value)
    worst = {test.about: test for test in failed}
    said = {n: "p < 1e-9" if t.p_value < _FEW else f"p = {t.p_value:.1g}" for n, t in worst.items()}
    lines = [f"{test.says} ({said[name]})" for name, test in reversed(worst.items())]
    if lost:
        lines.insert(0, f"{lost:,} steps released what is not finite, and so no noise")
    return lines + _of_lengths(of_all)


def _of_noise(seen: Seen) -> Iterator[Test]:
    """The tests of one process of one worker."""
    from scipy.stats import binom, chi2, norm  # takes a second to import

    steps, numbers = seen.steps, seen.numbers

    def too_little(about: str, where: str, squares: float, degrees: int, of: int) -> Test:
        # A part of the noise pays for rounding, so noise of exactly σ is not accused.
        p_value = min(1.0, of * chi2.cdf(squares * SENSITIVITY**2, degrees))
        share = SENSITIVITY * sqrt(squares / degrees)
        return Test(about, p_value, f"noise{where}: {round(share, 3):.2g} of what is stated")

    yield too_little(WHOLE, "", seen.squares, degrees=steps * numbers, of=1)
    yield too_little(STEP, " of a step", seen.least_step * numbers, degrees=numbers, of=steps)
    for part in seen.parts:
        where = f" on {part.numbers:,} of {numbers:,} numbers"
        yield too_little(PART, where, part.squares, degrees=steps * part.numbers, of=part.pieces)
    if steps > 1:
        ends = chi2.cdf(seen.together, numbers), chi2.sf(seen.together, numbers)
        yield Test(AGAIN, 2 * min(ends), "noise that comes again, or that later noise takes off")
        alike = chi2.sf(seen.alike, steps - 1)
        yield Test(AGAIN, alike, "noise like that of the step before")
    if seen.followed:
        follows = 2 * norm.sf(abs(seen.follows) / sqrt(seen.followed))
        yield Test("sum", follows, "noise that follows the sum of samples")
        ends = chi2.cdf(seen.along, seen.followed), chi2.sf(seen.along, seen.followed)
        yield Test("sum", 2 * min(ends), "noise that follows the sum of samples")
    if seen.compared:
        within = min(1.0, 4 * numbers * seen.compared * norm.sf(seen.within))
        yield Test(AGAIN, within, "noise that repeats itself within a step")
    for edge, inside in zip(EDGES, seen.inside, strict=True):
        low, high = (
            2 * norm.cdf(max(0.0, end)) - 1 for end in (edge - seen.blur, edge + seen.blur)
        )
        total = steps * numbers
        p_value = 2 * min(binom.cdf(inside, total, low), binom.sf(inside - 1, total, high))
        yield Test(VALUES, min(1.0, p_value), "noise whose values are not Gaussian")
    if seen.offered:
        times = seen.drawn / (seen.rate * seen.offered)
        drawn = binom.sf(seen.drawn - 1, seen.offered, min(1.0, seen.rate))
        yield Test("rate", drawn, f"batches of {times:.3g} times as many samples as stated")


def _same_noise(seen: Sequence[tuple[str, Seen]]) -> Iterator[Test]:
    """Tests whether two workers, or a worker before and after a resume, share a step's noise."""
    from scipy.stats import norm  # takes a second to import

    for (one, first), (other, second) in combinations(seen, 2):
        steps, others = _traced(first), _traced(second)
        if not (len(steps) and len(others) and steps.shape[1] == others.shape[1]):
            continue
        lengths = np.maximum(np.linalg.norm(others, axis=1), 1e-300)
        product = float(np.abs(steps @ others.T / lengths).max())
        p_value = min(1.0, 2 * steps.shape[0] * others.shape[0] * norm.sf(product))
        says = f"workers {one} and {other} have the same noise"
        if one == other:
            says = f"worker {one} has the same noise again after a resume"
        yield Test("workers", p_value, says)


def _traced(seen: Seen) -> "np.typing.NDArray[np.float64]":
    """The kept values of the noise of some steps, [steps, values]."""
    width = min(seen.numbers, TRACED)
    number = len(seen.trace) // width if width else 0
    return np.array(seen.trace[: number * width]).reshape(number, max(1, width))


def _of_lengths(seen: Sequence[Seen]) -> list[str]:
    """Findings about samples that add more than C; these are certain."""
    longest, cut, summed = (
        max((getattr(one, name) for one in seen), default=0.0)
        for name in ("longest", "cut", "summed")
    )
    lines = []
    if longest > _MOST:
        lines.append(f"a sample adds {longest:.3g} C")
    if cut > _MOST:
        lines.append(f"samples are not cut as they should be: one adds {cut:.3g} times its bound")
    if summed > _MOST and not lines:
        lines.append(f"samples of a batch add {summed:.3g} C each, or more")
    return lines
