"""MD-GAN beside FL-GAN with the same models, by the formulas of Hardy et al. (2019)."""

from math import prod

from mdgan.engine.settings import RunSettings
from mdgan.gan.build import Models, num_parameters
from mdgan.records.values import brief_size

_FLOAT_BYTES = 4
Line = tuple[str, str, str]


def beside_fl_gan(
    settings: RunSettings, models: Models, kappa: int, shard_size: float | None
) -> list[tuple[str, list[Line]]]:
    """Sections of the page of `mdgan plan`: tables II and IV, and where the lines of figure 2 meet.

    FL-GAN has the same b, and both act after an epoch (E = 1). Table II counts numbers, of an
    iteration; table IV bytes of float32. Figure 2 compares what a node receives at once.

    Args:
        shard_size: m, samples of a worker; None if nobody knows.
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
