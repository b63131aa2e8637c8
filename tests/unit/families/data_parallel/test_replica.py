"""Replicas with averaged gradients train as one process does, on what scaling deals out."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mdgan.families.data_parallel.scaling import BatchSizes, Scaling
from mdgan.families.data_parallel.settings import DataParallelSettings
from mdgan.families.data_parallel.step import ImageBuffer
from mdgan.families.data_parallel.vectors import GENERATOR
from mdgan.gan.labels import Samples
from tests.unit.families.data_parallel.replicas import (
    CONDITIONAL,
    FULL,
    B,
    Networks,
    all_values,
    iterate,
    make_gan,
    make_reference,
    make_replica,
)
from tests.unit.gan import small

SAME = BatchSizes(B, B)


@pytest.mark.parametrize("local_steps", [1, 2])
def test_one_replica_is_a_local_gan_bit_for_bit(local_steps: int) -> None:
    gan, reference = make_gan(1, local_steps=local_steps), make_reference()
    replicas = {1: make_replica(1)}
    for _ in range(4):
        gan.step()
        iterate(reference, replicas, {1: SAME}, local_steps)
    ours = all_values(reference.models)
    assert torch.equal(ours, all_values([gan.generator, gan.discriminator]))


def test_buffers_are_averaged() -> None:
    reference, replicas = make_reference(), {n: make_replica(n) for n in (1, 2)}
    gans = [make_gan(rank) for rank in replicas]
    for gan in gans:
        gan.step()
    alone = [list(gan.generator.buffers()) for gan in gans]
    iterate(reference, replicas, {1: SAME, 2: SAME})
    for ours, first, second in zip(reference.models[GENERATOR].buffers(), *alone, strict=True):
        assert torch.allclose(ours.double(), (first.double() + second.double()) / 2, atol=1e-7)
        assert ours.dtype == first.dtype


@pytest.mark.parametrize("networks", [FULL, CONDITIONAL], ids=["plain", "conditional"])
@pytest.mark.parametrize("lag", [0, 2])
def test_a_replica_goes_on_from_its_state(lag: int, networks: Networks) -> None:
    reference, kept = make_reference(networks), make_replica(1, networks)
    for _ in range(3):
        iterate(reference, {1: kept}, {1: SAME}, lag=lag)
    saved, of_reference = kept.state(), reference.state()
    assert not any("model" in name or "weight" in name for name in saved)
    assert ("images.1" in saved) == bool(lag)
    iterate(reference, {1: kept}, {1: SAME}, lag=lag)

    again, resumed = make_reference(networks), make_replica(1, networks)
    again.load_state(of_reference)
    assert resumed.load_state(saved)
    iterate(again, {1: resumed}, {1: SAME}, lag=lag)
    assert torch.equal(all_values(again.models), all_values(reference.models))


def test_batches_of_another_time_are_dropped() -> None:
    """Fewer workers share a global batch: those that are left have more each."""
    buffer = ImageBuffer()
    made = [Samples(small.images(n, size)) for n, size in enumerate([4, 4, 6, 6, 6])]
    given = [buffer.exchange(batch, 1) for batch in made]
    assert given == [made[0], made[0], made[2], made[2], made[3]]
    assert buffer.exchange(made[0], 0) is made[0]
    assert not buffer.batches


@pytest.mark.parametrize(
    "name", ["generator.0.weight", "images.0", "images.1", "worker.random.gpu"]
)
def test_a_state_that_does_not_fit_is_refused(name: str) -> None:
    replica = make_replica(1)
    state = replica.state()
    with pytest.raises((KeyError, RuntimeError)):
        replica.load_state({**state, name: torch.zeros(3)})
    assert replica.state().keys() == state.keys()


# What the scaling manager deals out.


OWN_SIZES = BatchSizes(7, 9)
WORKERS = st.lists(st.integers(1, 99), min_size=1, max_size=20, unique=True).map(sorted)


@given(WORKERS, st.integers(1, 200))
def test_a_global_batch_is_dealt_out_whole(workers: list[int], total: int) -> None:
    sizes = Scaling(OWN_SIZES, total).batch_sizes(workers)
    assert all(size.discriminator == size.generator for size in sizes.values())
    dealt = [size.generator for size in sizes.values()]
    assert sum(dealt) == total
    assert list(sizes) == workers[: min(total, len(workers))]
    assert dealt == sorted(dealt, reverse=True), "the first workers get the remainder"
    assert max(dealt) - min(dealt) <= 1
    assert min(dealt) >= 1


def test_without_a_global_batch_each_worker_has_its_own() -> None:
    assert Scaling(OWN_SIZES).batch_sizes([2, 5, 9]) == {2: OWN_SIZES, 5: OWN_SIZES, 9: OWN_SIZES}


@pytest.mark.parametrize(("rule", "factor"), [("none", 1.0), ("linear", 4.0), ("sqrt", 2.0)])
def test_rates_follow_the_samples_of_an_iteration(rule: str, factor: float) -> None:
    settings = DataParallelSettings(batch_size=16, lr_scaling=rule, world_size=5)
    scaling = settings.scaling()
    sizes = scaling.batch_sizes([1, 2, 3, 4]).values()
    assert scaling.rate_factor(sum(size.generator for size in sizes)) == factor
    assert scaling.rate_factor(16) == 1.0, "one worker's rates are those given"


def test_a_reference_may_be_any_batch() -> None:
    settings = DataParallelSettings(
        batch_size=16, lr_scaling="linear", reference_batch_size=64, world_size=3
    )
    assert settings.scaling().rate_factor(32) == 0.5
