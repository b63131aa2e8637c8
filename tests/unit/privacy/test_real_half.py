"""Real halves on batches by Poisson sampling: their sizes, their noise, and what they reveal."""

from math import ceil, inf, sqrt

import pytest
import torch
from scipy import stats
from torch import Tensor

from mdgan.data.shard import Shard
from mdgan.gan.labels import Samples
from mdgan.privacy.random_stream import random_state
from mdgan.privacy.real_half import PoissonHalf, SeededSteps
from tests.claims.registry import claim
from tests.unit.gan.small import CPU, SHAPE
from tests.unit.privacy.halves import make_shard, make_worker, real_gradient

RARELY = 1e-6
"""The probability with which a true statement about random numbers would fail; and since their
secrets are fixed, each passes always or never."""


def half_of(count: int, batch_size: int) -> PoissonHalf:
    shard, steps = make_shard(count), SeededSteps(b"a secret")
    return PoissonHalf(shard, steps, batch_size, clip=inf, noise=0.0, tells_loss=True)


@claim("steps", "draws each of its units with probability q")
def test_each_sample_is_drawn_by_itself_with_the_same_probability() -> None:
    num_samples, batch_size, num_steps = 40, 8, 1000
    half = half_of(num_samples, batch_size)
    places = {
        tuple(x.flatten().tolist()): i
        for i, x in enumerate(make_shard(40).taken(all_of(40)).images)
    }
    counts, sizes = torch.zeros(num_samples), []
    for _ in range(num_steps):
        batch = half.next_batch(3)
        for image in batch.images:
            counts[places[tuple(image.flatten().tolist())]] += 1
        sizes.append(len(batch))
        half.taken()
    rate = batch_size / num_samples
    spread = num_steps * rate * (1 - rate)
    squared = float(((counts - num_steps * rate) ** 2 / spread).sum())
    assert RARELY / 2 < stats.chi2.sf(squared, num_samples) < 1 - RARELY / 2
    # The sizes are binomial, too: their variance is n q (1 − q).
    of_sizes = torch.tensor(sizes).double().var().item() * (num_steps - 1)
    assert (
        RARELY / 2
        < stats.chi2.sf(of_sizes / (num_samples * rate * (1 - rate)), num_steps - 1)
        < 1 - RARELY / 2
    )


def all_of(count: int) -> Tensor:
    return torch.arange(count)


def test_a_batch_may_be_empty_and_is_still_a_step() -> None:
    worker = make_worker(make_shard(1000), batch_size=1, clip=1.0)
    half = worker.real_half
    assert isinstance(half, PoissonHalf)
    while len(half.next_batch(1)):
        half.taken()
    assert not real_gradient(worker).any()
    loss = worker.learn(Samples(torch.zeros(1, *SHAPE)))
    assert loss.isfinite()


@pytest.mark.parametrize("count", [12, 60])
@claim(
    "no-times", "A step does the same operations on the same number of samples, whatever they are."
)
def test_all_steps_compute_with_the_same_number_of_samples(count: int) -> None:
    """Also with few samples, of which hardly any is left to fill batches with."""
    worker = make_worker(make_shard(count), batch_size=8, clip=0.5, noise=1.0)
    sizes: list[int] = []
    worker.discriminator.model.register_forward_hook(
        lambda _d, given, _y: sizes.append(len(given[0]))
    )
    for _ in range(60):
        sizes.clear()
        worker.learn_real_half()
        assert sizes == [8 + ceil(sqrt(8 * (1 - 8 / count)))]
        worker.drop_real_half()
        worker.real_half.taken()  # type: ignore[union-attr] # it has one


def test_noise_has_the_stated_deviation() -> None:
    shard, clip, noise, batch_size = make_shard(50), 0.5, 3.0, 5
    results = []
    for secret in range(40):
        pair = [
            real_gradient(
                make_worker(
                    *(shard,),
                    batch_size=batch_size,
                    clip=clip,
                    noise=sigma,
                    steps=SeededSteps(bytes([secret])),
                )
            )
            for sigma in (noise, 0.0)
        ]
        results.append((pair[0] - pair[1]) * batch_size / (noise * clip))
    drawn = torch.cat(results).double().numpy()
    count = len(drawn)
    assert RARELY < stats.chi2.sf((drawn**2).sum(), count) < 1 - RARELY
    assert abs(drawn.mean()) * sqrt(count) < stats.norm.isf(RARELY / 2)
    assert stats.kstest(drawn, "norm").pvalue > RARELY


def test_all_of_the_key_decides_what_dropout_draws() -> None:
    """torch uses 32 bits of a seed; here the keys differ behind those alone."""
    drawn = []
    for last in (0, 1):
        with random_state(bytes(31) + bytes([last]), CPU).in_place():
            drawn.append(torch.rand(2000))
    assert not torch.equal(*drawn)
    assert stats.kstest(drawn[0].numpy(), "uniform").pvalue > RARELY


def drawn_with(shard: Shard, secret: bytes) -> int:
    half = PoissonHalf(shard, SeededSteps(secret), 5, clip=inf, noise=0.0, tells_loss=True)
    return len(half.next_batch(5))


def test_without_noise_and_bound_it_is_the_gradient_of_the_batch() -> None:
    shard = make_shard(30)
    # Neither none nor more than those that steps compute with, of which a draw would be repeated.
    secret = next(s for s in map(bytes, zip(range(99))) if 0 < drawn_with(shard, s) < 7)
    bounded = make_worker(shard, clip=1e9, steps=SeededSteps(secret))
    for layer in bounded.discriminator.model.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
    free = make_worker(shard, steps=SeededSteps(secret))
    free.discriminator.model.load_state_dict(bounded.discriminator.model.state_dict())
    for layer in free.discriminator.model.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
    torch.testing.assert_close(real_gradient(free), real_gradient(bounded), atol=1e-6, rtol=1e-5)


@claim("steps", "All else that it sends follows from such sums.")
def test_the_random_numbers_that_travel_do_not_tell_how_large_batches_were() -> None:
    fake, states = Samples(torch.zeros(5, *SHAPE)), []
    for count in (20, 200):
        worker = make_worker(make_shard(count), clip=1.0, noise=1.0)
        for _ in range(3):
            worker.learn(fake)
        states.append(worker.state())
    assert torch.equal(states[0]["random.cpu"], states[1]["random.cpu"])
    assert {name for name in states[0] if name.startswith("shard.")} == {
        "shard.size",
        "shard.steps",
    }


@pytest.mark.parametrize(("clip", "noise"), [(inf, 0.0), (0.5, 2.0)])
def test_a_half_that_is_undone_is_the_same_again(clip: float, noise: float) -> None:
    worker = make_worker(make_shard(30), clip=clip, noise=noise)
    worker.learn(Samples(torch.zeros(5, *SHAPE)))
    first = real_gradient(worker)
    worker.undo_real_half()
    assert torch.equal(real_gradient(worker), first)


@pytest.mark.parametrize(("clip", "noise"), [(inf, 0.0), (0.5, 2.0)])
def test_a_worker_goes_on_bit_by_bit(clip: float, noise: float) -> None:
    fake, shard = Samples(torch.zeros(5, *SHAPE)), make_shard(30)
    one, other = (make_worker(shard, clip=clip, noise=noise) for _ in range(2))
    one.learn(fake)
    one.learn_real_half()
    assert other.load_state(one.state())
    for worker in (one, other):
        worker.learn(fake)
    assert one.discriminator.digest() == other.discriminator.digest()


@claim("no-losses", "that on generated samples")
def test_a_loss_that_may_not_be_told_is_not_in_what_a_worker_answers() -> None:
    shard, fake = make_shard(30), Samples(torch.zeros(5, *SHAPE))
    half = PoissonHalf(shard, SeededSteps(b"known"), 5, clip=1.0, noise=1.0, tells_loss=False)
    silent, told = make_worker(shard, clip=1.0, noise=1.0), make_worker(shard, clip=1.0, noise=1.0)
    silent.batches = silent.real_half = half
    losses = [float(worker.learn(fake)) for worker in (silent, told)]
    assert losses[0] < losses[1]
    assert silent.discriminator.digest() == told.discriminator.digest()
