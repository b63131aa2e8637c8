"""Sections of `mdgan plan` that need no measurement: quality under privacy, and FL-GAN's costs.

The costs follow from the formulas of Hardy et al. (2019). The quality of pictures was measured on
digits by `python -m benchmarks.private_quality` (figures in docs/quality.md), the quality of tables
by `python -m benchmarks.private_tables`.
Where workers answer once, ε, δ and the number of samples matter to quality only through the noise
in a mean, so the plan looks quality up by that noise. Where every step is noisy, the plan looks it
up by ε, which was measured with some hundreds of samples a worker.
"""

from collections.abc import Sequence
from math import exp, log, prod, sqrt

import numpy as np

from mdgan.engine.settings import RunSettings
from mdgan.families import registry
from mdgan.gan.build import Models, num_parameters
from mdgan.privacy import measured_tables
from mdgan.privacy.accountant import noise_for
from mdgan.records.values import brief_size

_OF_MEANS = ((3.2e-4, 0.66), (8.5e-4, 1.2), (1.7e-3, 2.4), (2.2e-3, 4.0), (4.4e-3, 8.8))
"""The standard deviation of the noise in the mean of a feature, and FID."""
_OF_STEPS = ((1.0, 56.0), (3.0, 49.0), (10.0, 21.0))  # ε, and FID with 360 samples a worker
_FEW_SAMPLES = 2_000
_FLOAT_BYTES = 4

Line = tuple[str, str, str]


def expectations(
    settings: RunSettings, shard_size: int | None, num_columns: int = 0
) -> list[tuple[str, Sequence[Line]]]:
    """What quality to expect, in a section; none if no ε is set. Pictures have `num_columns` 0."""
    privacy, heading = settings.privacy, "quality under differential privacy"
    if privacy.dp_epsilon is None or not privacy.hides_samples:
        return []
    if shard_size is None:
        return [(heading, [("not known", "", "how many samples a worker has: --shard-size M")])]
    epsilon, number = privacy.dp_epsilon, settings.num_workers
    noise = noise_for(epsilon, privacy.dp_delta or 0.0, 1.0, steps=1, earlier=(), kind="rdp")
    few = shard_size < _FEW_SAMPLES and not num_columns
    lines = []
    if not settings.tells_once:
        fid = f"FID {_between(_OF_STEPS, epsilon)}" if few else "not measured"
        note = f"{settings.algorithm}; on digits, 360 samples a worker"
        lines.append(("noise in every step", fid, settings.algorithm if num_columns else note))
    for name in (n for n in registry.names() if registry.algorithm(n).settings.tells_once):
        if num_columns:
            table, by_epsilon = measured_tables.nearest(shard_size * number, num_columns)
            for measured_epsilon, quality in by_epsilon.items():
                lines.append((f"--algorithm {name}, ε = {measured_epsilon:g}", quality, table))
            lines.append(("", "", measured_tables.MEANING))
            continue
        separate, shared = (noise / shard_size / part for part in (sqrt(number), number))
        lines += [
            (f"--algorithm {name}", f"FID {_between(_OF_MEANS, separate)}", "on digits"),
            (
                "  with --secure-aggregation",
                f"FID {_between(_OF_MEANS, shared)}",
                "on digits; all workers share the noise of one",
            ),
        ]
    return [(heading, lines)]


def _between(measured: Sequence[tuple[float, float]], x: float) -> str:
    """FID at `x`, in words: interpolated between measured (x, FID), both as logarithms."""
    (first, first_fid), (last, last_fid) = measured[0], measured[-1]
    if x < first or x > last:
        nearest = first_fid if x < first else last_fid
        is_better = (x < first) == (first_fid < last_fid)
        return f"{'below' if is_better else 'above'} {nearest:g}"
    log_x, log_fid = np.log(measured).T
    return f"about {exp(np.interp(log(x), log_x, log_fid)):.2g}"


def beside_fl_gan(
    settings: RunSettings, models: Models, kappa: int, shard_size: float | None
) -> list[tuple[str, Sequence[Line]]]:
    """MD-GAN's costs beside FL-GAN's: tables II and IV, and where the lines of figure 2 meet.

    Both use the same b; MD-GAN swaps and FL-GAN averages after each epoch (E = 1). Table II counts
    numbers in an iteration; table IV bytes of float32. Figure 2 compares what the server or a
    worker receives at once.

    Args:
        shard_size: m, samples of a worker; None if unknown.
    """
    b, n, d = settings.training.batch_size, settings.num_workers, prod(models.shape)
    w, theta = num_parameters(models.generator()), num_parameters(models.discriminator())
    both, m = w + theta, shard_size
    served = b * (d * n + kappa * w)
    averaged = "?" if m is None else f"{b * n * both / m:.3g}"
    times = "?" if m is None else f"{settings.training.iterations * b / m:,.0f}"
    size = {name: brief_size(_FLOAT_BYTES * x) for name, x in (("θ", theta), ("both", both))}
    there, back = brief_size(_FLOAT_BYTES * 2 * b * d), brief_size(_FLOAT_BYTES * b * d)
    per_iteration = f"{settings.training.iterations:,} times"
    models_sent = f"FL-GAN: {size['both']}, |w| + |θ|, {times} times"
    table_2 = [
        ("server computes", f"{served:.3g}", f"b(dN + κ|w|); FL-GAN: {averaged}, bN(|w| + |θ|)/m"),
        ("server holds", f"{served:.3g}", f"b(dN + κ|w|); FL-GAN: {n * both:.3g}, N(|w| + |θ|)"),
        ("worker computes", f"{b * theta:.3g}", f"b|θ|; FL-GAN: {b * both:.3g}, b(|w| + |θ|)"),
        ("worker holds", f"{theta:.3g}", f"|θ|; FL-GAN: {both:.3g}, |w| + |θ|"),
    ]
    table_4 = [
        ("server to a worker", there, f"2bd, {per_iteration}; {models_sent}"),
        ("worker to the server", back, f"bd, {per_iteration}; {models_sent}"),
        ("worker to worker", size["θ"], f"|θ|, {times} times; FL-GAN: never"),
    ]
    figure_2 = [
        ("a worker", f"b = {both / (2 * d):,.0f}", "2bd = |w| + |θ|"),
        ("the server", f"b = {both / d:,.0f}", "bdN = N(|w| + |θ|)"),
    ]
    return [
        ("numbers beside FL-GAN's, an iteration: table II", table_2),
        ("bytes beside FL-GAN's: table IV", table_4),
        ("receives more at once than in FL-GAN above: figure 2", figure_2),
    ]
