"""What contradicts a mechanism in plain sight: verdicts on what hosts saw of their noise and sums.

Each test has a probability with which a mechanism that does as it says fails it. All of them
together, of all workers, and of all their processes, fail with at most `DOUBT`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import sqrt
from typing import NamedTuple

from mdgan.privacy.direct import EDGES, Seen
from mdgan.privacy.noise import SENSITIVITY

DOUBT = 0.004
_MOST = 1.01
"""Lengths are told in single precision."""
_FEW = 1e-9


class Test(NamedTuple):
    """A test's probability, and what it means if that is too small."""

    p_value: float
    says: str


def flaws_of(seen: Mapping[str, Sequence[Seen]], doubt: float = DOUBT) -> list[str]:
    """What contradicts that workers do as they say; each once, the surest first.

    Args:
        seen: what each process of a worker saw, by the worker's name.
    """
    tests = [test for each in seen.values() for one in each if one.steps for test in _tests(one)]
    tests += _pairs({worker: each for worker, each in seen.items() if each})
    failed = sorted(test for test in tests if test.p_value * len(tests) < doubt)
    worst = {test.says.split(":")[0]: test for test in reversed(failed)}
    return [f"{says} ({_said(p)})" for p, says in sorted(worst.values())]


def _said(p_value: float) -> str:
    return f"p < {_FEW:.0e}".replace("e-0", "e-") if p_value < _FEW else f"p = {p_value:.1g}"


def _tests(seen: Seen) -> Iterator[Test]:
    """Of one process of one worker."""
    from scipy.stats import binom, chi2, norm  # takes a second to import

    steps, numbers = seen.steps, seen.numbers
    # A part of the noise pays for rounding: what has σ alone is not accused.
    pays = SENSITIVITY**2
    part = chi2.cdf(seen.squares * pays, steps * numbers)
    yield Test(part, f"noise: {seen.share:.2g} of what is stated")
    share = SENSITIVITY * sqrt(seen.least_step)
    p_value = min(1.0, steps * chi2.cdf(seen.least_step * numbers * pays, numbers))
    yield Test(p_value, f"noise of some step: {share:.2g} of what is stated")
    for piece in seen.parts:
        degrees = steps * piece.numbers
        share = SENSITIVITY * sqrt(piece.squares / degrees)
        p_value = min(1.0, piece.pieces * chi2.cdf(piece.squares * pays, degrees))
        yield Test(p_value, f"noise on some weights: {share:.2g} of what is stated")
    if steps > 1:
        again = min(1.0, 2 * min(chi2.cdf(seen.together, numbers), chi2.sf(seen.together, numbers)))
        yield Test(again, "noise that comes again, or that later noise takes off")
        alike = chi2.sf(seen.alike, steps - 1)
        yield Test(alike, "noise that is like that of the step before")
    if seen.followed:
        follows = 2 * norm.sf(abs(seen.follows) / sqrt(seen.followed))
        yield Test(follows, "noise that follows the sum of samples")
    for edge, inside in zip(EDGES, seen.inside, strict=True):
        low, high = (
            2 * norm.cdf(max(0.0, end)) - 1 for end in (edge - seen.blur, edge + seen.blur)
        )
        total = steps * numbers
        p_value = 2 * min(binom.cdf(inside, total, low), binom.sf(inside - 1, total, high))
        yield Test(min(1.0, p_value), "noise whose values are not Gaussian")
    if seen.offered:
        times = seen.drawn / (seen.rate * seen.offered)
        drawn = binom.sf(seen.drawn - 1, seen.offered, min(1.0, seen.rate))
        yield Test(drawn, f"batches: {times:.3g} times as many samples as stated")
    if seen.longest > _MOST:
        yield Test(0.0, f"a sample adds {seen.longest:.3g} C")
    if seen.cut > _MOST:
        yield Test(0.0, f"gradients are not cut as they should be: {seen.cut:.3g} times the bound")
    if seen.summed > _MOST:
        yield Test(0.0, f"samples of a batch add {seen.summed:.3g} C each, at least")


def _pairs(seen: Mapping[str, Sequence[Seen]]) -> Iterator[Test]:
    """Whether two workers have the same noise."""
    from scipy.stats import norm  # takes a second to import

    traces = {worker: each[0].trace for worker, each in seen.items()}
    for (one, first), (other, second) in combinations(traces.items(), 2):
        both = list(zip(first, second, strict=False))
        length = sqrt(sum(b * b for _, b in both))
        product = sum(a * b for a, b in both) / length if length else 0.0
        yield Test(2 * norm.sf(abs(product)), f"workers {one} and {other} have the same noise")
