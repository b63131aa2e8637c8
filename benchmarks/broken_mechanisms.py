"""Mechanisms that give less differential privacy than they state, for `audit_power`."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mdgan.families.moments import contract
from mdgan.families.moments.message import SampleFeatures
from mdgan.privacy import layer_norms, per_sample, planning, real_half
from mdgan.privacy.accountant import noise_for
from mdgan.privacy.noise import with_noise
from mdgan.privacy.per_sample import clipped_sum

SAMPLES, DELTA, BATCH = 300, 1e-4, 32
CPU = torch.device("cpu")
GENUINE_NOISE, GENUINE_SUM = with_noise, clipped_sum
GENUINE_FEATURES, GENUINE_SUMS = SampleFeatures.of, SampleFeatures.sums


NOW = {"rank": 0}
"""The worker whose turn it is."""


class Places(NamedTuple):
    """A function to replace: its owner and its name there, and the broken function."""

    owner: Any
    name: str
    function: Any


Broken = Callable[[], list[Places]]
"""Makes new broken functions for one run, since some of them count their calls."""


def noise(function: Callable[..., Tensor]) -> Broken:
    """Replaces the function that adds noise: from (total, clip, σ, key, scale) to a total."""

    def places() -> list[Places]:
        return [Places(owner, "with_noise", function) for owner in (real_half, contract)]

    return places


def less(share: float) -> Broken:
    """Adds only a share of the noise."""

    def with_less(total: Tensor, clip: float, sigma: float, key: bytes, scale: float = 1) -> Tensor:
        if not share:
            return total.mul_(scale)
        return GENUINE_NOISE(total, clip, share * sigma, key, scale)

    return noise(with_less)


def drawn(draw: Callable[[int], Tensor]) -> Broken:
    """Draws the noise from another distribution.

    Args:
        draw: from a count to as many numbers with standard deviation 1.
    """

    def with_drawn(
        total: Tensor, clip: float, sigma: float, key: bytes, scale: float = 1
    ) -> Tensor:
        del key
        values = draw(len(total)).to(total.dtype)
        return total.add_(values, alpha=sigma * clip).mul_(scale)

    return noise(with_drawn)


def on_some(chosen: Callable[[int], Tensor]) -> Broken:
    """Adds noise to some of the numbers only.

    Args:
        chosen: from the count of numbers to which of them get noise, bool.
    """

    def with_some(total: Tensor, clip: float, sigma: float, key: bytes, scale: float = 1) -> Tensor:
        plain = total.clone() * scale
        noisy = GENUINE_NOISE(total, clip, sigma, key, scale)
        return torch.where(chosen(len(total)), noisy, plain)

    return noise(with_some)


def repeated(every: int) -> Broken:
    """Repeats the noise after `every` steps, at all workers alike, as with one seed."""

    def places() -> list[Places]:
        steps = Counter[int]()

        def with_same(
            total: Tensor, clip: float, sigma: float, key: bytes, scale: float = 1
        ) -> Tensor:
            del key
            random = torch.Generator().manual_seed(steps[0] % every)
            steps[0] += 1
            values = torch.randn(len(total), generator=random, dtype=torch.float64)
            return total.add_(values.to(total.dtype), alpha=sigma * clip).mul_(scale)

        return noise(with_same)()

    return places


def of_one_seed() -> list[Places]:
    """Draws new noise in each step, but the same at each worker, as if the seed were the run's."""
    steps = Counter[int]()

    def with_equal(
        total: Tensor, clip: float, sigma: float, key: bytes, scale: float = 1
    ) -> Tensor:
        del key
        steps[NOW["rank"]] += 1
        random = torch.Generator().manual_seed(steps[NOW["rank"]])
        values = torch.randn(len(total), generator=random, dtype=torch.float64).to(total.dtype)
        return total.add_(values, alpha=sigma * clip).mul_(scale)

    return noise(with_equal)()


def later_less() -> list[Places]:
    """Shrinks the noise with each step."""
    steps = Counter[int]()

    def with_fading(
        total: Tensor, clip: float, sigma: float, key: bytes, scale: float = 1
    ) -> Tensor:
        steps[0] += 1
        return GENUINE_NOISE(total, clip, sigma * 0.99 ** (steps[0] % 60), key, scale)

    return noise(with_fading)()


def once_in(every: int) -> Broken:
    """Leaves the noise out in each `every`-th step."""

    def places() -> list[Places]:
        steps = Counter[int]()

        def with_gaps(
            total: Tensor, clip: float, sigma: float, key: bytes, scale: float = 1
        ) -> Tensor:
            steps[0] += 1
            if steps[0] % every == 0:
                return total.mul_(scale)
            return GENUINE_NOISE(total, clip, sigma, key, scale)

        return noise(with_gaps)()

    return places


def clipped(times: float) -> Broken:
    """Cuts gradients to a larger norm, as if C were larger."""

    def summed(
        model: Any, rules: Any, real: Any, *, count: int, clip: float, penalties: Any
    ) -> Any:
        return GENUINE_SUM(model, rules, real, count=count, clip=times * clip, penalties=penalties)

    return lambda: [Places(real_half, "clipped_sum", summed)]


def uncut_factors(norms: Tensor, count: int, clip: float) -> Tensor:
    """Does the work of `layer_norms.factors_of`, but cuts no gradient."""
    del clip
    return (norms.isfinite() & (torch.arange(len(norms)) < count)).to(norms.dtype)


def no_factors() -> list[Places]:
    """Cuts no gradient, wherever factors are computed."""
    return [Places(module, "factors_of", uncut_factors) for module in (layer_norms, per_sample)]


def some_layers() -> list[Places]:
    """Cuts all gradients but those of the first layer's weights."""

    def summed(
        model: Any, rules: Any, real: Any, *, count: int, clip: float, penalties: Any
    ) -> Any:
        total, losses = GENUINE_SUM(model, rules, real, count=count, clip=clip, penalties=penalties)
        whole, _ = GENUINE_SUM(model, rules, real, count=count, clip=1e9, penalties=penalties)
        first = next(iter(total))
        return {**total, first: whole[first]}, losses

    return [Places(real_half, "clipped_sum", summed)]


def bright_uncut() -> list[Places]:
    """Cuts the gradients of all samples but the tenth with the most ink."""

    def summed(
        model: Any, rules: Any, real: Any, *, count: int, clip: float, penalties: Any
    ) -> Any:
        total, losses = GENUINE_SUM(model, rules, real, count=count, clip=clip, penalties=penalties)
        ink = real.images[:count].flatten(1).mean(1)
        for place in (ink > -0.3).nonzero().flatten().tolist():
            one = real[[place, place]]
            cut, _ = GENUINE_SUM(model, rules, one, count=1, clip=clip, penalties=penalties)
            whole, _ = GENUINE_SUM(model, rules, one, count=1, clip=1e9, penalties=penalties)
            total = {name: each - cut[name] + whole[name] for name, each in total.items()}
        return total, losses

    return [Places(real_half, "clipped_sum", summed)]


def whole_batch() -> list[Places]:
    """Cuts the sum of a batch instead of each sample's gradient."""

    def summed(
        model: Any, rules: Any, real: Any, *, count: int, clip: float, penalties: Any
    ) -> Any:
        total, losses = GENUINE_SUM(model, rules, real, count=count, clip=1e9, penalties=penalties)
        norm = torch.cat([each.flatten() for each in total.values()]).norm()
        factor = min(1.0, count * clip / float(norm)) if norm else 1.0
        return {name: factor * each for name, each in total.items()}, losses

    return [Places(real_half, "clipped_sum", summed)]


def rate(times: float) -> Broken:
    """Draws each sample into batches more often than the plan states."""
    genuine = real_half.rate_of

    def often(batch_size: int, num_samples: int) -> float:
        return min(1.0, times * genuine(batch_size, num_samples))

    return lambda: [Places(real_half, "rate_of", often)]


def longer(times: float) -> Broken:
    """Makes each sample's features longer than the plan assumes."""

    def of(self: SampleFeatures, samples: Tensor) -> Tensor:
        return times * GENUINE_FEATURES(self, samples)

    return lambda: [Places(SampleFeatures, "of", of)]


def times_sums(times: float) -> Broken:
    """Multiplies the sums before noise is added."""

    def sums(self: SampleFeatures, pieces: Any) -> Tensor:
        return times * GENUINE_SUMS(self, pieces)

    return lambda: [Places(SampleFeatures, "sums", sums)]


def laplace(count: int) -> Tensor:
    """Numbers from Laplace's distribution, with standard deviation 1."""
    return torch.distributions.Laplace(0.0, 0.5**0.5).sample((count,))


def opposite_pairs(count: int) -> Tensor:
    """Pairs of a normal number and its negative."""
    half = torch.randn(-(-count // 2))
    return torch.stack([half, -half], 1).flatten()[:count]


def halved_plan() -> list[Places]:
    """Plans half the noise that the stated ε needs."""
    genuine = noise_for
    return [Places(planning, "noise_for", lambda *arguments: genuine(*arguments) / 2)]


BOTH: Mapping[str, Broken] = {
    "honest": list,
    "noise: half": less(1 / 2),
    "noise: a quarter": less(1 / 4),
    "noise: an eighth": less(1 / 8),
    "noise: none": less(0),
    "noise: 0.9": less(0.9),
    "noise: on half the numbers": on_some(lambda n: torch.rand(n) < 0.5),
    "noise: but on the first tenth": on_some(lambda n: torch.arange(n) >= n // 10),
    "noise: uniform": drawn(lambda n: (torch.rand(n) * 2 - 1) * 3**0.5),
    "noise: clipped at 2σ": drawn(lambda n: torch.randn(n).clamp(-2, 2)),
    "noise: Laplace's": drawn(laplace),
    "noise: the same on both halves": drawn(lambda n: torch.randn(-(-n // 2)).repeat(2)[:n]),
    "account: half the noise": halved_plan,
    "noise: of opposite pairs": drawn(opposite_pairs),
}
STEPWISE: Mapping[str, Broken] = {
    "noise: clipped at 3σ": drawn(lambda n: torch.randn(n).clamp(-3, 3)),
    "noise: equal in steps": repeated(1),
    "noise: equal in each 5th step": repeated(5),
    "noise: 1 % less each step": later_less,
    "noise: none in one step of 30": once_in(30),
    "noise: equal at workers": of_one_seed,
    "noise: but on one number": on_some(lambda n: torch.arange(n) != n // 2),
    "clip: none": clipped(1e9),
    "clip: none, in factors_of": no_factors,
    "clip: 3 C": clipped(3),
    "clip: not the first weights": some_layers,
    "clip: not a tenth of samples": bright_uncut,
    "clip: the batch as a whole": whole_batch,
    "rate: 1.4 times": rate(1.4),
    "rate: 1.2 times": rate(1.2),
}
ONCE: Mapping[str, Broken] = {
    "noise: equal at workers": of_one_seed,
    "features of norm 3": longer(3),
    "sums times 3": times_sums(3),
}
MECHANISMS = {"mdgan": {**BOTH, **STEPWISE}, "moments": {**BOTH, **ONCE}}
