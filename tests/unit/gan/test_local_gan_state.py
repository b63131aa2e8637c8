"""A standalone run, too, is stopped anywhere and goes on from bytes."""

import pytest
from torch import Tensor

from mdgan.gan.generator import Generator
from mdgan.gan.local_gan import LocalGAN
from mdgan.gan.randomness import RandomState, generator_for
from tests.unit.gan.small import (
    CPU,
    Z_DIM,
    adam,
    equal_bits,
    make_generator,
    same_bits,
)
from tests.unit.gan.stateful import SHARD_SIZE, make_worker, through_bytes


def make_standalone(data_size: int = SHARD_SIZE) -> LocalGAN:
    generator = make_generator()
    return LocalGAN(
        Generator(
            generator,
            adam(generator),
            z_dim=Z_DIM,
            noise=generator_for(0, "noise"),
            random_state=RandomState(1000, CPU),
        ),
        make_worker(1, local_steps=2, shard_size=data_size),
        2,
    )


@pytest.mark.parametrize("stop", [0, 1, 4])
def test_a_standalone_run_resumes_too(stop: int) -> None:
    whole, broken = make_standalone(), make_standalone()
    told: list[list[Tensor]] = [[], []]
    for iteration in range(6):
        if iteration == stop:
            state = through_bytes(broken.state())
            broken = make_standalone()
            assert broken.load_state(state)
        for losses, gan in zip(told, (whole, broken), strict=True):
            losses += gan.step()
    assert equal_bits(*told)
    assert all(same_bits(whole.state()[name], broken.state()[name]) for name in whole.state())


@pytest.mark.parametrize("lost", ["generator.0.weight", "worker.random.cpu", "noise"])
def test_a_standalone_state_that_does_not_fit_changes_nothing(lost: str) -> None:
    disturbed, calm, other = make_standalone(), make_standalone(), make_standalone()
    other.step()
    state = other.state()
    del state[lost]
    with pytest.raises(KeyError):
        disturbed.load_state(state)
    assert equal_bits(list(disturbed.step()), list(calm.step()))
    assert not make_standalone(data_size=20).load_state(other.state())
