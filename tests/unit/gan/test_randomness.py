"""Streams of random numbers, and the samples and statistics that follow from them alone."""

import threading
from collections.abc import Callable
from itertools import pairwise, product
from typing import NoReturn

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mdgan.gan.randomness import RandomState, derive_seed
from mdgan.gan.sampling import draw_samples, refresh_buffers, sample_pieces
from tests.unit.gan import small

CPU = torch.device("cpu")


def dropped() -> Tensor:
    """A tensor that dropout has been over: what roles draw from the default generator."""
    return F.dropout(torch.ones(64), 0.5)


def draws(state: RandomState, count: int) -> list[Tensor]:
    results = []
    for _ in range(count):
        with state.in_place():
            results.append(dropped())
    return results


def equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


def test_seeds_are_the_same_on_every_machine() -> None:
    assert derive_seed(0, "noise") == 5127903134280592399
    assert derive_seed(7, "worker", 12) == 5453140151674219071


def test_seeds_differ_by_run_name_and_number() -> None:
    streams: list[tuple[str | int, ...]] = [
        *product(("worker", "shard"), range(1, 200)),
        ("noise",),
        ("server",),
        ("worker",),
        ("worker", 1, 1),
        (),
    ]
    seeds = {derive_seed(run, *stream) for run in range(5) for stream in streams}
    assert len(seeds) == 5 * len(streams)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_dropout_in_a_state_does_not_depend_on_draws_outside() -> None:
    undisturbed = draws(RandomState(5, CPU), 4)
    state = RandomState(5, CPU)
    disturbed = []
    for n in range(4):
        torch.manual_seed(n)
        torch.randn(n + 1)
        disturbed += draws(state, 1)
    assert equal(disturbed, undisturbed)
    assert all(not torch.equal(one, other) for one, other in pairwise(undisturbed))


def test_a_state_within_a_state_keeps_both_apart() -> None:
    outer, inner = RandomState(1, CPU), RandomState(2, CPU)
    with outer.in_place():
        results = [dropped()]
        results += draws(inner, 3)
        results.append(dropped())
    with RandomState(1, CPU).in_place():
        wanted = [dropped(), dropped()]
    assert equal([results[0], results[-1]], wanted)
    assert equal(results[1:4], draws(RandomState(2, CPU), 3))


def test_two_threads_equal_one() -> None:
    wanted = {seed: draws(RandomState(seed, CPU), 200) for seed in (1, 2)}
    torch.manual_seed(8)
    before = torch.get_rng_state()
    results: dict[int, list[Tensor]] = {}
    start = threading.Barrier(2)

    def work(seed: int) -> None:
        state = RandomState(seed, CPU)
        start.wait(10)
        results[seed] = draws(state, 200)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results.keys() == wanted.keys()
    assert all(equal(results[seed], wanted[seed]) for seed in wanted)
    assert torch.equal(torch.get_rng_state(), before)


def fail_after_a_draw() -> NoReturn:
    dropped()
    raise ZeroDivisionError


def test_an_exception_puts_the_outside_back_and_keeps_what_was_drawn() -> None:
    torch.manual_seed(4)
    before = torch.get_rng_state()
    state = RandomState(6, CPU)
    with pytest.raises(ZeroDivisionError), state.in_place():
        fail_after_a_draw()
    assert torch.equal(torch.get_rng_state(), before)
    assert equal(draws(state, 2), draws(RandomState(6, CPU), 3)[1:])


def test_the_state_of_a_gpu_is_not_needed_without_one() -> None:
    whole, fresh = RandomState(6, CPU), RandomState(7, CPU)
    fresh.restore({**whole.tensors(), "cuda": torch.zeros(16, dtype=torch.uint8)})
    assert equal(draws(fresh, 4), draws(whole, 4))
    assert fresh.tensors().keys() == {"cpu"}


@pytest.mark.gpu
def test_the_state_of_a_gpu_comes_back_and_may_be_missing() -> None:
    def numbers(state: RandomState) -> list[Tensor]:
        with state.in_place():
            return [torch.rand(5), torch.rand(5, device="cuda").cpu()]

    device = torch.device("cuda")
    whole, fresh = RandomState(6, device), RandomState(7, device)
    numbers(whole)
    tensors = whole.tensors()
    assert tensors.keys() == {"cpu", "cuda"}
    wanted = numbers(whole)
    fresh.restore(tensors)
    assert equal(numbers(fresh), wanted)

    fresh, untouched = RandomState(7, device), RandomState(7, device)
    fresh.restore({"cpu": tensors["cpu"]})
    assert equal(numbers(fresh), [wanted[0], numbers(untouched)[1]])
    with pytest.raises(RuntimeError):
        fresh.restore({**tensors, "cuda": tensors["cuda"][:-1]})


@pytest.mark.parametrize(
    "change", [lambda t: t[:-1], lambda t: t.long(), lambda t: t[None], lambda t: t.fill_(255)]
)
def test_what_is_no_random_state_is_refused_and_changes_nothing(
    change: Callable[[Tensor], Tensor],
) -> None:
    state, untouched = RandomState(6, CPU), RandomState(6, CPU)
    with pytest.raises(RuntimeError):
        state.restore({"cpu": change(RandomState(7, CPU).tensors()["cpu"])})
    for wrong in ({}, {"cuda": torch.zeros(16).byte()}, {**state.tensors(), "x": torch.zeros(1)}):
        with pytest.raises(KeyError):
            state.restore(wrong)
    assert equal(draws(state, 4), draws(untouched, 4))


# Samples, and what BatchNorm keeps.


Z_DIM = 5


def generator() -> nn.Sequential:
    model = nn.Sequential(
        nn.Linear(Z_DIM, 8),
        nn.BatchNorm1d(8),
        nn.Dropout(0.5),
        nn.Linear(8, 12),
        nn.Tanh(),
        nn.Unflatten(1, (3, 2, 2)),
    )
    model(torch.randn(20, Z_DIM))
    return model


@pytest.mark.parametrize("num_samples", [1, 2, 16, 255, 256, 257])
def test_a_sample_does_not_depend_on_how_many_there_are(num_samples: int) -> None:
    model = generator()
    many = draw_samples(model, 300, Z_DIM, 3)
    few = draw_samples(model, num_samples, Z_DIM, 3)
    # Kernels may add up in another order for another batch size; noise or statistics would show.
    torch.testing.assert_close(few, many[:num_samples], rtol=0, atol=1e-6)


class NoisyGenerator(nn.Module):
    """Draws noise of its own even in evaluation, as some generators do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(Z_DIM, 4)

    def forward(self, z: Tensor) -> Tensor:
        made: Tensor = self.linear(z) + torch.randn(4)
        return made.tanh().view(-1, 1, 2, 2)


@pytest.mark.parametrize("make", [generator, NoisyGenerator])
def test_samples_follow_from_the_seed_alone(make: Callable[[], nn.Module]) -> None:
    model = make()
    torch.manual_seed(1)
    samples = draw_samples(model, 4, Z_DIM, 3)
    assert (samples.dtype, samples.requires_grad) == (torch.float32, False)
    assert samples.abs().max() <= 1
    torch.manual_seed(2)
    assert torch.equal(draw_samples(model, 4, Z_DIM, 3), samples)
    assert not torch.equal(draw_samples(model, 4, Z_DIM, 4), samples)
    assert len({tuple(sample.flatten().tolist()) for sample in samples}) == 4


@pytest.mark.parametrize("training", [True, False])
def test_drawing_leaves_the_generator_and_random_numbers_as_they_were(training: bool) -> None:
    model = generator().train(training)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random_state = torch.get_rng_state()
    draw_samples(model, 300, Z_DIM, 3)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(module.training == training for module in model.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.is_grad_enabled()


def test_a_generator_that_fails_is_put_back_into_training() -> None:
    model = nn.Sequential(nn.Linear(Z_DIM + 1, 4))
    random_state = torch.get_rng_state()
    with pytest.raises(RuntimeError):
        draw_samples(model, 4, Z_DIM, 3)
    assert model.training
    assert torch.equal(torch.get_rng_state(), random_state)


def test_pieces_are_the_samples_in_order() -> None:
    model = generator()
    pieces = []
    for piece in sample_pieces(model, 600, Z_DIM, 3):
        assert model.training, "between two pieces it may train on"
        assert torch.is_grad_enabled()
        pieces.append(piece)
    assert [len(piece) for piece in pieces] == [256, 256, 88]
    assert torch.equal(torch.cat(pieces), draw_samples(model, 600, Z_DIM, 3))


def refreshed(generator: nn.Module, discriminator: nn.Module, iteration: int = 7) -> list[Tensor]:
    refresh_buffers(generator, discriminator, iteration, z_dim=small.Z_DIM, batch_size=64, seed=0)
    return [b.clone() for model in (generator, discriminator) for b in model.buffers()]


def test_they_become_those_of_generated_samples_and_weights_stay() -> None:
    generator, discriminator = small.make_generator(), small.make_model()
    before = [p.clone() for model in (generator, discriminator) for p in model.parameters()]
    refreshed(generator, discriminator)
    after = [p for model in (generator, discriminator) for p in model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    inner, norm = generator[0], generator[1]
    assert isinstance(inner, nn.Linear)
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_var is not None
    # z is N(0, 1): each output has the variance |w|², but for what is left of 1.
    exactly = inner.weight.detach().square().sum(1)
    assert torch.allclose(norm.running_var, exactly, rtol=0.3)


def test_they_follow_from_weights_seed_and_iteration_alone() -> None:
    torch.manual_seed(1)
    first = refreshed(small.make_generator(), small.make_model())
    torch.manual_seed(2)
    drawn = torch.rand(1)
    torch.manual_seed(2)
    again = refreshed(small.make_generator(), small.make_model())
    assert torch.equal(drawn, torch.rand(1)), "nothing was drawn from torch's own generator"
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    other = refreshed(small.make_generator(), small.make_model(), 8)
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_spectral_norm_knows_the_present_weights() -> None:
    layer = nn.Linear(16, 5)
    nn.utils.parametrizations.spectral_norm(layer)
    discriminator = nn.Sequential(nn.Flatten(), layer, nn.Linear(5, 1))
    with torch.no_grad():
        next(p for p in layer.parameters() if p.dim() == 2).copy_(torch.randn(5, 16))
    refreshed(small.make_generator(), discriminator)
    assert float(torch.linalg.matrix_norm(layer.weight.detach(), 2)) == pytest.approx(1.0, abs=0.05)


def test_models_without_buffers_are_left_alone() -> None:
    generator = nn.Sequential(nn.Linear(small.Z_DIM, 16), nn.Unflatten(1, small.SHAPE))
    assert refreshed(generator, nn.Sequential(nn.Flatten(), nn.Linear(16, 1))) == []
