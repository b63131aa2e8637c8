"""Measures which broken mechanisms `mdgan audit` contradicts: of so many runs of each, how many.

    python -m benchmarks.audit_power [--runs 20] [--epsilons 1,3,8] [--only TEXT] [--workers 4]
        [--canaries 100] [--steps 60]

Each run has workers with 300 samples of digits each. They have what `mdgan train` gives them:
budgets with ledgers of their own, a plan for the stated ε, canaries. They take their steps without
a server, with DP-SGD (`mdgan`: a small discriminator) or as one message (`moments`). A mechanism is
broken as a programmer's mistake would break it, by another function in its place. Then canaries'
files are read as the audit reads them.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import click
import torch
from torch import Tensor, nn

from mdgan.audit.bound import bound_of_run
from mdgan.data import dataset_file
from mdgan.data.shard import Shard
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.worker import Worker
from mdgan.families.moments import host
from mdgan.families.moments.features import SampleFeatures
from mdgan.families.moments.host import SumTeller
from mdgan.families.moments.settings import FeatureSettings, MomentsSettings
from mdgan.gan.build import make_discriminator_learner
from mdgan.privacy import layer_norms, per_sample, planning, real_half
from mdgan.privacy.accountant import noise_for
from mdgan.privacy.budget import Budget, make_half, open_budget
from mdgan.privacy.canaries import CANARIES
from mdgan.privacy.contents import Contents
from mdgan.privacy.noise import with_noise
from mdgan.privacy.per_sample import clipped_sum
from mdgan.privacy.real_half import PoissonHalf
from mdgan.records.audit import Bound

SAMPLES, DELTA, BATCH = 300, 1e-4, 32
CPU = torch.device("cpu")
GENUINE_NOISE, GENUINE_SUM = with_noise, clipped_sum
GENUINE_FEATURES, GENUINE_SUMS = SampleFeatures.of, SampleFeatures.sums


NOW = {"rank": 0}
"""The worker whose turn it is."""


class Places(NamedTuple):
    """Where a broken function stands instead of the right one: owner, name, function."""

    owner: Any
    name: str
    function: Any


Broken = Callable[[], list[Places]]
"""Makes the functions of one run anew: some remember what they did."""


def noise(function: Callable[..., Tensor]) -> Broken:
    """Other noise, wherever there is some: from (total, clip, σ, key, scale)."""

    def places() -> list[Places]:
        return [Places(owner, "with_noise", function) for owner in (real_half, host)]

    return places


def less(share: float) -> Broken:
    """A share of the noise."""

    def with_less(total: Tensor, clip: float, sigma: float, key: bytes, scale: float = 1) -> Tensor:
        if not share:
            return total.mul_(scale)
        return GENUINE_NOISE(total, clip, share * sigma, key, scale)

    return noise(with_less)


def drawn(draw: Callable[[int], Tensor]) -> Broken:
    """Noise of another distribution with the deviation of 1: from how many to numbers."""

    def with_drawn(
        total: Tensor, clip: float, sigma: float, key: bytes, scale: float = 1
    ) -> Tensor:
        del key
        values = draw(len(total)).to(total.dtype)
        return total.add_(values, alpha=sigma * clip).mul_(scale)

    return noise(with_drawn)


def on_some(chosen: Callable[[int], Tensor]) -> Broken:
    """Noise on some numbers alone: from how many there are to which, bool."""

    def with_some(total: Tensor, clip: float, sigma: float, key: bytes, scale: float = 1) -> Tensor:
        plain = total.clone() * scale
        noisy = GENUINE_NOISE(total, clip, sigma, key, scale)
        return torch.where(chosen(len(total)), noisy, plain)

    return noise(with_some)


def repeated(every: int) -> Broken:
    """The same noise in each step, or in each `every` steps; of all workers, as with one seed."""

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
    """The noise of each step is new, and each worker has it, as if its seed were the run's."""
    taken = Counter[int]()

    def with_equal(
        total: Tensor, clip: float, sigma: float, key: bytes, scale: float = 1
    ) -> Tensor:
        del key
        taken[NOW["rank"]] += 1
        random = torch.Generator().manual_seed(taken[NOW["rank"]])
        values = torch.randn(len(total), generator=random, dtype=torch.float64).to(total.dtype)
        return total.add_(values, alpha=sigma * clip).mul_(scale)

    return noise(with_equal)()


def later_less() -> list[Places]:
    """Noise that shrinks with each step."""
    steps = Counter[int]()

    def with_fading(
        total: Tensor, clip: float, sigma: float, key: bytes, scale: float = 1
    ) -> Tensor:
        steps[0] += 1
        return GENUINE_NOISE(total, clip, sigma * 0.99 ** (steps[0] % 60), key, scale)

    return noise(with_fading)()


def once_in(every: int) -> Broken:
    """No noise in one step of so many."""

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
    """Gradients cut to another norm, as if C were larger."""

    def summed(model: Any, rules: Any, real: Any, count: int, clip: float, *more: Any) -> Any:
        return GENUINE_SUM(model, rules, real, count, times * clip, *more)

    return lambda: [Places(real_half, "clipped_sum", summed)]


def uncut_factors(norms: Tensor, count: int, clip: float) -> Tensor:
    """As `layer_norms.factors_of`, and cuts nothing."""
    del clip
    return (norms.isfinite() & (torch.arange(len(norms)) < count)).to(norms.dtype)


def no_factors() -> list[Places]:
    """No gradient is cut."""
    return [Places(module, "factors_of", uncut_factors) for module in (layer_norms, per_sample)]


def some_layers() -> list[Places]:
    """The first weights are not cut: their norms do not count, nor their factors."""

    def summed(model: Any, rules: Any, real: Any, count: int, clip: float, *more: Any) -> Any:
        total, losses = GENUINE_SUM(model, rules, real, count, clip, *more)
        whole, _ = GENUINE_SUM(model, rules, real, count, 1e9, *more)
        first = next(iter(total))
        return {**total, first: whole[first]}, losses

    return [Places(real_half, "clipped_sum", summed)]


def bright_uncut() -> list[Places]:
    """The tenth of samples with the most ink is not cut."""

    def summed(model: Any, rules: Any, real: Any, count: int, clip: float, *more: Any) -> Any:
        total, losses = GENUINE_SUM(model, rules, real, count, clip, *more)
        ink = real.images[:count].flatten(1).mean(1)
        for place in (ink > -0.3).nonzero().flatten().tolist():
            one = real[[place, place]]
            cut, _ = GENUINE_SUM(model, rules, one, 1, clip, *more)
            whole, _ = GENUINE_SUM(model, rules, one, 1, 1e9, *more)
            total = {name: each - cut[name] + whole[name] for name, each in total.items()}
        return total, losses

    return [Places(real_half, "clipped_sum", summed)]


def whole_batch() -> list[Places]:
    """The sum of a batch is cut, and no sample's gradient."""

    def summed(model: Any, rules: Any, real: Any, count: int, clip: float, *more: Any) -> Any:
        total, losses = GENUINE_SUM(model, rules, real, count, 1e9, *more)
        norm = torch.cat([each.flatten() for each in total.values()]).norm()
        factor = min(1.0, count * clip / float(norm)) if norm else 1.0
        return {name: factor * each for name, each in total.items()}, losses

    return [Places(real_half, "clipped_sum", summed)]


def rate(times: float) -> Broken:
    """Batches that take each sample more often than is stated."""
    genuine = real_half.rate_of

    def often(batch_size: int, num_samples: int) -> float:
        return min(1.0, times * genuine(batch_size, num_samples))

    return lambda: [Places(real_half, "rate_of", often)]


def longer(times: float) -> Broken:
    """Features of another length."""

    def of(self: SampleFeatures, samples: Tensor) -> Tensor:
        return times * GENUINE_FEATURES(self, samples)

    return lambda: [Places(SampleFeatures, "of", of)]


def times_sums(times: float) -> Broken:
    """Sums that are multiplied before noise is added."""

    def sums(self: SampleFeatures, pieces: Any) -> Tensor:
        return times * GENUINE_SUMS(self, pieces)

    return lambda: [Places(SampleFeatures, "sums", sums)]


def laplace(count: int) -> Tensor:
    """Of Laplace's distribution."""
    return torch.distributions.Laplace(0.0, 0.5**0.5).sample((count,))


def opposite_pairs(count: int) -> Tensor:
    """Each number again, with the other sign."""
    half = torch.randn(-(-count // 2))
    return torch.stack([half, -half], 1).flatten()[:count]


def halved_plan() -> list[Places]:
    """The plan has half the noise that the stated ε takes."""
    genuine = noise_for
    return [Places(planning, "noise_for", lambda *asked: genuine(*asked) / 2)]


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


def discriminator() -> nn.Module:
    """Of 8 × 8 pixels, 6,241 weights."""
    layers = nn.Linear(64, 80), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(80, 12)
    return nn.Sequential(nn.Flatten(), *layers, nn.LeakyReLU(0.2), nn.Linear(12, 1))


@contextmanager
def in_place(places: list[Places]) -> Iterator[None]:
    """The broken functions stand for the right ones in the block."""
    with ExitStack() as stack:
        for owner, name, function in places:
            stack.enter_context(patch.object(owner, name, function))
        yield


def learner(rank: int, shard: Shard, settings: Any, budget: Budget) -> Worker:
    """A worker of `mdgan`."""
    half = make_half(shard, rank, settings, budget)
    assert half is not None
    return make_discriminator_learner(
        *(Worker, rank, discriminator, settings.training, half, CPU), real_half=half
    )


def take_steps(shards: Mapping[int, Shard], settings: Any, budgets: Mapping[int, Budget]) -> None:
    """All steps, of one worker after another."""
    for rank, shard in shards.items():
        NOW["rank"] = rank
        worker = learner(rank, shard, settings, budgets[rank])
        assert isinstance(worker.real_half, PoissonHalf)
        while not worker.real_half.over:
            worker.learn_real_half()
            worker.real_half.taken()
            worker.drop_real_half()


def tell(shards: Mapping[int, Shard], budgets: Mapping[int, Budget]) -> None:
    """The one message of each worker."""
    features = SampleFeatures.drawn(FeatureSettings(), (1, 8, 8), 10, 0)
    for rank, shard in shards.items():
        NOW["rank"] = rank
        SumTeller(shard, features, budgets[rank], 1).tell()


def audited(
    algorithm: str,
    broken: Broken,
    epsilon: float,
    canaries: int,
    steps: int,
    shards: Mapping[int, Shard],
) -> Bound:
    """What the audit says of a run."""
    kind: Any = MomentsSettings if algorithm == "moments" else MDGANSettings
    given = {"dp_epsilon": epsilon, "dp_delta": DELTA, "audit_canaries": canaries}
    more = {} if algorithm == "moments" else {"batch_size": BATCH, "iterations": steps}
    settings = kind.read({**given, **more})
    with tempfile.TemporaryDirectory() as name, in_place(broken()):
        folder, budgets = Path(name), dict[int, Budget]()
        for rank, shard in shards.items():
            budget = open_budget(rank, len(shard), settings, folder, partial(Contents.of, shard))
            assert budget is not None
            assert budget.canaries is not None
            budget.canaries.open(folder / CANARIES / f"{rank}.json")
            budgets[rank] = budget
        if algorithm == "moments":
            tell(shards, budgets)
        else:
            take_steps(shards, settings, budgets)
        for budget in budgets.values():
            budget.close()
        found = bound_of_run(folder, DELTA, epsilon)
        assert found is not None
        return found


def digits(folder: Path, workers: int) -> dict[int, Shard]:
    """A shard of digits for each worker."""
    whole = dataset_file.load("digits", None).open(folder)
    places = torch.arange(workers * SAMPLES).view(workers, SAMPLES)
    return {
        rank + 1: Shard(whole, own, torch.Generator().manual_seed(rank))
        for rank, own in enumerate(places)
    }


@click.command()
@click.option("--runs", default=20, show_default=True)
@click.option("--epsilons", default="1,3,8", show_default=True)
@click.option("--only", default="", help="Mechanisms whose name begins so.")
@click.option("--algorithm", default="mdgan,moments", show_default=True)
@click.option("--canaries", default=100, show_default=True, help="Of each worker.")
@click.option("--steps", default=60, show_default=True, help="Of each worker of mdgan.")
@click.option("--workers", default=4, show_default=True)
def main(
    runs: int, epsilons: str, only: str, algorithm: str, canaries: int, steps: int, workers: int
) -> None:
    """Prints how many runs of each mechanism are contradicted, by ε, and by what."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        shards = digits(Path(name), workers)
        for kind in algorithm.split(","):
            for mechanism, broken in MECHANISMS[kind].items():
                if not mechanism.startswith(only):
                    continue
                for epsilon in map(float, epsilons.split(",")):
                    begin = time.perf_counter()
                    found = [
                        audited(kind, broken, epsilon, canaries, steps, shards) for _ in range(runs)
                    ]
                    wrong = sum(one.contradicts for one in found)
                    guessed = sum((one.surely or 0) > one.stated for one in found)
                    shown = next((one for one in found if one.contradicts), found[-1])
                    took = (time.perf_counter() - begin) / runs
                    click.echo(
                        f"{kind:8} {mechanism:32} ε = {epsilon:<4g} contradicted {wrong:3} of "
                        f"{runs} (by guesses {guessed:3}; {took:.1f} s)  {shown}"
                    )


if __name__ == "__main__":
    main()
