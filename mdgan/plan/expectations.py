"""What quality to expect under differential privacy, by what was measured on digits.

The figures are those of `python -m benchmarks.private_quality`, in docs/quality.md. What a worker
tells once has noise that follows from ε, δ and the number of samples: with as much noise in a mean,
quality is as measured, whatever these are. Noise in every step was measured with some hundreds of
samples a worker.
"""

from collections.abc import Sequence
from math import exp, log, sqrt

import numpy as np

from mdgan.engine.settings import RunSettings
from mdgan.families import registry
from mdgan.privacy.accountant import noise_for

_OF_MEANS = ((3.2e-4, 0.66), (8.5e-4, 1.2), (1.7e-3, 2.4), (2.2e-3, 4.0), (4.4e-3, 8.8))
"""The standard deviation of the noise in the mean of a feature, and FID."""
_OF_STEPS = ((1.0, 56.0), (3.0, 49.0), (10.0, 21.0))  # ε, and FID with 360 samples a worker
_FEW_SAMPLES = 2_000


def expectations(
    settings: RunSettings, shard_size: int | None
) -> list[tuple[str, Sequence[tuple[str, str, str]]]]:
    """A section of the page of `mdgan plan`; none without a bound on ε for samples."""
    privacy, heading = settings.privacy, "quality under differential privacy"
    if privacy.dp_epsilon is None or not privacy.hides_samples:
        return []
    if shard_size is None:
        return [(heading, [("not known", "", "how many samples a worker has: --shard-size M")])]
    epsilon, number = privacy.dp_epsilon, settings.num_workers
    noise = noise_for(epsilon, privacy.dp_delta or 0.0, 1.0, 1, (), "rdp")
    few = shard_size < _FEW_SAMPLES
    lines = []
    if not settings.tells_once:
        fid = f"FID {_between(_OF_STEPS, epsilon)}" if few else "not measured"
        note = f"{settings.algorithm}; on digits, 360 samples a worker"
        lines.append(("noise in every step", fid, note))
    for name in (n for n in registry.names() if registry.algorithm(n).settings.tells_once):
        own, together = (noise / shard_size / part for part in (sqrt(number), number))
        lines += [
            (f"--algorithm {name}", f"FID {_between(_OF_MEANS, own)}", "on digits"),
            (
                "  with --secure-aggregation",
                f"FID {_between(_OF_MEANS, together)}",
                "on digits; all workers share the noise of one",
            ),
        ]
    return [(heading, lines)]


def _between(measured: Sequence[tuple[float, float]], where: float) -> str:
    """FID at a place between those that were measured, on a line of logarithms."""
    (first, best), (last, worst) = measured[0], measured[-1]
    if where < first or where > last:
        said = best if where < first else worst
        better = (where < first) == (best < worst)
        return f"{'below' if better else 'above'} {said:g}"
    places, found = np.log(measured).T
    return f"about {exp(np.interp(log(where), places, found)):.2g}"
