"""Diagnoses from losses and scores what seems to go wrong in a run.

The rules are rules of thumb of people who train GANs (Chintala et al., "How to train a GAN?", 2016:
a discriminator loss near 0 is a failure). Their limits are wide, so that they rarely err, and none
speaks while the FID still reaches a new best, or falls from score to score:

* Losses that are not finite, or far from where they begin, come from steps that are too large.
* A discriminator that is right in almost everything no longer tells the generator where to go.
* A generator that keeps to half of the classes, or fewer, has collapsed to some modes.
* An FID of twice the best, twice in a row, is more than the noise between two scores.
"""

from collections.abc import Mapping, Sequence
from math import log
from statistics import median
from typing import Any, NamedTuple

from mdgan.records.rows import Losses, ScoresRow
from mdgan.records.values import number_in, said
from mdgan.spelling import flag

LOSSES_NEEDED = 5
"""How many logged iterations in a row a rule looks at, so that a single batch does not decide."""

_GUESSING = {"bce": 2 * log(2), "least-squares": 0.25, "hinge": 2.0}
"""J_disc of a discriminator that only guesses, by the name of the loss."""
_WON, _EXPLODED = 0.015, 5.0
"""Limits of J_disc, as multiples of guessing. With bce, 0.015 means: D is right and 99 % sure."""
_LARGE_LOSS = 100.0
_NEW_BEST, _WORSE = 0.9, 2.0
"""Limits as multiples of the best FID before. In healthy runs FID may rise by a quarter at once."""
_NEAR_REAL = 3.0
_LEAST_CLASSES, _LEAST_SCORES = 4, 3
_LOWER_G = f"lower the lr of {flag('generator_optimizer')}"
_LOWER_BOTH = f"{_LOWER_G} and {flag('discriminator_optimizer')}"
_AGAINST_NOISE = (
    f"take more samples a worker, a larger {flag('batch_size')} or fewer {flag('iterations')}, as "
    "the noise of differential privacy is the likely cause; --dry-run says how much there is"
)


class Finding(NamedTuple):
    """Something that seems to go wrong, in words, and what people do about it."""

    name: str
    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.text}; people then {self.remedy}"


def diagnose(
    losses: Sequence[Losses], scores: Sequence[ScoresRow], config: Mapping[str, Any]
) -> Finding | None:
    """The first thing that seems wrong, by the last logged iterations and scores, if any."""
    fids = [(row.iteration, value) for row in scores if (value := row.scores.get("fid"))]
    trend = [fid for _, fid in fids]
    last = losses[-1] if losses else None
    has_discriminator = any(row.discriminator_loss is not None for row in losses)
    pair = [last.generator_loss] + [last.discriminator_loss] * has_discriminator if last else []
    if last and last.workers and None in pair:
        return Finding(
            "losses are not finite",
            f"the losses are not finite (NaN) in iteration {losses[-1].iteration:,}",
            f"{_LOWER_BOTH}, and leave {flag('precision', 'fp16')} out",
        )
    is_falling = len(trend) > 2 and trend[-3] > trend[-2] > trend[-1] == min(trend)
    if is_falling or (len(trend) > 1 and trend[-1] < _NEW_BEST * min(trend[:-1])):
        return None
    finding = (
        _of_losses(losses[-LOSSES_NEEDED:], str(config.get("discriminator_loss", "bce")))
        or _of_classes(scores)
        or _of_fids(fids, number_in(scores[-1].real, "fid") if scores else None)
    )
    is_noisy = config.get("dp_epsilon") is not None or config.get("dp_noise")
    return finding._replace(remedy=_AGAINST_NOISE) if finding and is_noisy else finding


def _of_losses(losses: Sequence[Losses], name: str) -> Finding | None:
    generators = [row.generator_loss for row in losses if row.generator_loss is not None]
    discriminators = [x for row in losses if (x := row.discriminator_loss) is not None]
    if min(len(generators), len(discriminators)) < LOSSES_NEEDED or name not in _GUESSING:
        return None
    generator, discriminator = median(generators), median(discriminators)
    text = f"D loss {discriminator:.2g}, {_GUESSING[name]:.2g} by guessing; G loss {generator:.2g}"
    if discriminator > _EXPLODED * _GUESSING[name] or abs(generator) > _LARGE_LOSS:
        return Finding(
            "losses explode", f"the losses explode, and NaN may follow ({text})", _LOWER_BOTH
        )
    if 0.0 <= discriminator < _WON * _GUESSING[name]:
        return Finding(
            "D has won",
            f"the discriminator has won: it is always right, and the generator learns nothing "
            f"({text})",
            f"lower the lr of {flag('discriminator_optimizer')}, {flag('local_steps')}, or an "
            f"unusually high lr of {flag('generator_optimizer')}",
        )
    return None


def _of_classes(scores: Sequence[ScoresRow]) -> Finding | None:
    total = [number_in(row.real, "classes") or 0.0 for row in scores]
    covered = [number_in(row.scores, "classes_covered") for row in scores]
    few = [
        got is not None and real >= _LEAST_CLASSES and got <= real / 2
        for got, real in zip(covered, total, strict=True)
    ]
    if len(few) < _LEAST_SCORES or not all(few[-2:]):
        return None
    return Finding(
        "mode collapse",
        f"the generator has collapsed to a few modes: {covered[-1]:.0f} of {total[-1]:.0f} classes",
        f"{_LOWER_G}, raise {flag('batch_size')}, or try another {flag('generator_loss')}",
    )


def _of_fids(fids: Sequence[tuple[int, float]], of_real: float | None) -> Finding | None:
    if len(fids) < _LEAST_SCORES:
        return None
    iteration, best = min(fids, key=lambda fid: fid[1])
    last = fids[-1][1]
    if min(fids[-2][1], last) < _WORSE * best or last < _NEAR_REAL * (of_real or 0.0):
        return None
    return Finding(
        "scores get worse",
        f"the generator has become worse: FID {said(last)}, after {said(best)} at iteration "
        f"{iteration:,}",
        f"lower the learning rates, or stop with {flag('iterations')} where it was best",
    )
