"""What contradicts a mechanism in plain sight: verdicts on what hosts saw of their noise and sums.

Each test has a probability with which a mechanism that does as it says fails it. All of them
together, of all workers, and of all their processes, fail with at most `DOUBT`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import sqrt
from typing import NamedTuple

import numpy as np

from mdgan.privacy.direct import EDGES, TRACED, Seen
from mdgan.privacy.noise import SENSITIVITY

DOUBT = 0.001
_MOST = 1.01  # lengths are told in single precision
_FEW = 1e-9
_LITTLE = 0.9  # with less noise than that, it is not told how else it is not as it should be
WHOLE, STEP, PART, AGAIN, VALUES = "noise", "noise of a step", "of numbers", "again", "values"
FOLLOW = (STEP, PART, AGAIN, VALUES)


class Test(NamedTuple):
    """A test: its probability, and what is so if that is too small, `about` one thing."""

    about: str
    p_value: float
    says: str


def flaws_of(seen: Mapping[str, Sequence[Seen]]) -> list[str]:
    """What contradicts that workers do as they say, the surest first; `seen` is by worker."""
    of_all = [one for each in seen.values() for one in each if one.steps]
    lost = sum(one.lost for each in seen.values() for one in each)
    tests = [test for one in of_all for test in _of_noise(one)]
    tests += _same_noise([(worker, one) for worker, each in seen.items() for one in each])
    failed = [test for test in tests if test.p_value * len(tests) < DOUBT]
    if any(one.share < _LITTLE for one in of_all):  # most others follow from it
        failed = [test for test in failed if test.about not in FOLLOW]
    failed.sort(key=lambda test: -test.p_value)
    worst = {test.about: test for test in failed}
    told = [f"{test.says} ({_said(test.p_value)})" for test in reversed(worst.values())]
    if lost:
        told.insert(0, f"{lost:,} steps released what is not finite, and so no noise")
    return told + _of_lengths(of_all)


def _said(p_value: float) -> str:
    return "p < 1e-9" if p_value < _FEW else f"p = {p_value:.1g}"


def _of_noise(seen: Seen) -> Iterator[Test]:
    """Of one process of one worker."""
    from scipy.stats import binom, chi2, norm  # takes a second to import

    steps, numbers = seen.steps, seen.numbers

    def too_little(about: str, where: str, squares: float, degrees: int, of: int) -> Test:
        # A part of the noise pays for rounding: what has σ alone is not accused.
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
    """Of each two workers, and of a worker that was resumed; of any of their steps."""
    from scipy.stats import norm  # takes a second to import

    for (one, first), (other, second) in combinations(seen, 2):
        steps, others = (_traced(each) for each in (first, second))
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
    """What is kept of the noise of some steps, [steps, values]."""
    width = min(seen.numbers, TRACED)
    number = len(seen.trace) // width if width else 0
    return np.array(seen.trace[: number * width]).reshape(number, max(1, width))


def _of_lengths(seen: Sequence[Seen]) -> list[str]:
    """What adds more than it may, which needs no probability."""
    longest, cut, summed = (
        max((getattr(one, name) for one in seen), default=0.0)
        for name in ("longest", "cut", "summed")
    )
    told = []
    if longest > _MOST:
        told.append(f"a sample adds {longest:.3g} C")
    if cut > _MOST:
        told.append(f"samples are not cut as they should be: one adds {cut:.3g} times its bound")
    if summed > _MOST and not told:
        told.append(f"samples of a batch add {summed:.3g} C each, or more")
    return told
