"""What moves in a swap: all of a discriminator, exactly, and nothing shared afterwards."""

from collections.abc import Callable

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor, nn

from mdgan.gan.discriminator import Discriminator
from mdgan.gan.labels import Samples
from tests.unit.gan.small import (
    adam,
    all_bits,
    equal_bits,
    images,
    make_worker,
    same_bits,
)


def trained(seed: int, iterations: int = 3) -> Discriminator:
    worker = make_worker(seed)
    for iteration in range(iterations):
        worker.learn(Samples(images(iteration)))
    return worker.discriminator


def bits(discriminator: Discriminator) -> list[Tensor]:
    return all_bits(discriminator.model, discriminator.optimizer)


def live_tensors(discriminator: Discriminator) -> dict[str, Tensor]:
    """Every tensor that a discriminator is made of, itself and not a copy."""
    model = dict(discriminator.model.state_dict(keep_vars=True))
    moments = {
        f"{name}/{key}": value
        for name, parameter in discriminator.model.named_parameters()
        for key, value in discriminator.optimizer.state[parameter].items()
    }
    return {**model, **moments}


def tensors_of(state: TensorDict) -> dict[str, Tensor]:
    """The very tensors of a state, by name."""
    tensors = {}
    for name, tensor in state.items():
        assert isinstance(name, str)
        assert isinstance(tensor, Tensor)
        tensors[name] = tensor
    return tensors


def test_a_state_holds_weights_buffers_and_moments() -> None:
    discriminator = trained(1)
    state = tensors_of(discriminator.state())
    assert {name.partition(".")[0] for name in state} == {"model", "optimizer"}
    assert state["model.2.num_batches_tracked"] == 6
    assert state["optimizer.1.weight.step"] == 3
    assert len(state) == len(live_tensors(discriminator))
    assert all(not tensor.requires_grad for tensor in state.values())


def test_a_state_moves_every_bit() -> None:
    giver, taker = trained(1), trained(2, iterations=7)
    assert not equal_bits(bits(giver), bits(taker))
    taker.load_state(giver.state())
    assert equal_bits(bits(taker), bits(giver))
    assert taker.digest() == giver.digest()


def test_a_state_may_come_as_a_plain_mapping() -> None:
    giver, taker = trained(1), trained(2)
    taker.load_state(tensors_of(giver.state()))
    assert equal_bits(bits(taker), bits(giver))


def test_a_discriminator_that_never_learnt_moves_too() -> None:
    fresh, taker = trained(1, iterations=0), trained(2)
    taker.load_state(fresh.state())
    assert taker.digest() == fresh.digest()
    workers = make_worker(1), make_worker(1)
    workers[1].discriminator = taker
    for iteration in range(3):
        losses = [worker.learn(Samples(images(iteration))) for worker in workers]
        assert same_bits(losses[0], losses[1])
    assert equal_bits(bits(taker), bits(workers[0].discriminator))


def test_both_go_on_in_the_same_way_after_a_move() -> None:
    first, second = make_worker(1), make_worker(1)
    first.learn(Samples(images(0)))
    second.learn(Samples(images(0)))
    stranger = trained(9, iterations=5)
    stranger.load_state(second.discriminator.state())
    second.discriminator = stranger
    for iteration in range(1, 5):
        answers = [
            [worker.learn(Samples(images(iteration))), *worker.feedback(Samples(images(iteration)))]
            for worker in (first, second)
        ]
        assert equal_bits(answers[0], answers[1])
    assert first.discriminator.digest() == second.discriminator.digest()


@torch.no_grad()
def spoil(tensors: list[Tensor]) -> None:
    for tensor in tensors:
        tensor.add_(1)


def test_a_state_is_a_copy() -> None:
    discriminator = trained(1)
    state, before = tensors_of(discriminator.state()), bits(discriminator)
    spoil(list(state.values()))
    assert equal_bits(bits(discriminator), before)

    state = tensors_of(discriminator.state())
    kept = [tensor.clone() for tensor in state.values()]
    spoil(list(live_tensors(discriminator).values()))
    assert equal_bits(list(state.values()), kept)


def test_a_loaded_state_is_never_aliased() -> None:
    taker, state = trained(2), tensors_of(trained(1).state())
    taker.load_state(state)
    before, kept = bits(taker), [tensor.clone() for tensor in state.values()]
    spoil(list(state.values()))
    assert equal_bits(bits(taker), before)
    for given, tensor in zip(kept, state.values(), strict=True):
        assert not same_bits(given, tensor)

    state = tensors_of(trained(1).state())
    taker.load_state(state)
    kept = [tensor.clone() for tensor in state.values()]
    spoil(list(live_tensors(taker).values()))
    assert equal_bits(list(state.values()), kept)
    storages = {tensor.untyped_storage().data_ptr() for tensor in state.values()}
    assert storages.isdisjoint(
        tensor.untyped_storage().data_ptr() for tensor in live_tensors(taker).values()
    )


def test_one_state_may_be_loaded_twice() -> None:
    state = trained(1).state()
    first, second = trained(2), trained(3)
    first.load_state(state)
    second.load_state(state)
    before = bits(second)
    spoil(list(live_tensors(first).values()))
    assert equal_bits(bits(second), before)


def _with(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[TensorDict], None]:
    def damage(state: TensorDict) -> None:
        state[name] = change(state[name])

    return damage


def _without(name: str) -> Callable[[TensorDict], None]:
    def damage(state: TensorDict) -> None:
        del state[name]

    return damage


def _surplus(state: TensorDict) -> None:
    state["model.9.weight"] = torch.zeros(3)


DAMAGES: dict[str, Callable[[TensorDict], None]] = {
    "weight of another shape": _with("model.1.weight", lambda t: t[:, :5]),
    "last weight of another shape": _with("model.5.weight", lambda t: t[:, :5]),
    "buffer of another shape": _with("model.2.running_var", lambda t: t[:5]),
    "counter of another shape": _with("model.2.num_batches_tracked", lambda t: t.repeat(2)),
    "transposed weight": _with("model.1.weight", lambda t: t.T),
    "moment of another shape": _with("optimizer.5.weight.exp_avg", lambda t: t[:, :5]),
    "flattened moment": _with("optimizer.1.weight.exp_avg_sq", lambda t: t.flatten()),
    "step of another shape": _with("optimizer.5.bias.step", lambda t: t.repeat(2)),
    "weight of another type": _with("model.1.weight", lambda t: t.double()),
    "whole-numbered moment": _with("optimizer.1.weight.exp_avg", lambda t: t.long()),
    "no weight": _without("model.5.bias"),
    "no buffer": _without("model.2.running_mean"),
    "no moment": _without("optimizer.5.weight.exp_avg"),
    "no step": _without("optimizer.5.bias.step"),
    "one tensor too many": _surplus,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(name: str) -> None:
    taker, state = trained(2), trained(1).state()
    before = bits(taker)
    DAMAGES[name](state)
    with pytest.raises((KeyError, RuntimeError)):
        taker.load_state(state)
    assert equal_bits(bits(taker), before)


def test_the_state_of_another_architecture_is_refused_and_changes_nothing() -> None:
    taker = trained(2)
    before = bits(taker)
    other = nn.Sequential(nn.Flatten(), nn.Linear(16, 10), nn.Linear(10, 1))
    with pytest.raises((KeyError, RuntimeError)):
        taker.load_state(Discriminator(other, adam(other)).state())
    assert equal_bits(bits(taker), before)


def test_digests_are_of_the_content_alone() -> None:
    assert trained(1).digest() == trained(1).digest()
    assert trained(1).digest() != trained(2).digest()
    assert trained(1).digest() != trained(1, iterations=4).digest()
    assert len(trained(1).digest()) == 64


def test_a_digest_changes_nothing() -> None:
    discriminator = trained(1)
    before = bits(discriminator)
    discriminator.digest()
    assert equal_bits(bits(discriminator), before)


def tiny() -> Discriminator:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    optimizer = adam(model)
    torch.autograd.backward(model(torch.randn(4, 3)).sum())
    optimizer.step()
    return Discriminator(model, optimizer)


def test_any_bit_anywhere_changes_the_digest() -> None:
    discriminator = tiny()
    digests = [discriminator.digest()]
    for tensor in live_tensors(discriminator).values():
        raw = tensor.detach().reshape(-1).view(torch.uint8)
        assert raw.data_ptr() == tensor.data_ptr()
        for place in range(0, len(raw), tensor.element_size()):
            raw[place] ^= 1
            digests.append(discriminator.digest())
            raw[place] ^= 1
    assert digests[0] == discriminator.digest()
    assert len(digests) == 1 + sum(t.numel() for t in live_tensors(discriminator).values())
    assert len(set(digests)) == len(digests)


def test_elements_that_change_places_change_the_digest() -> None:
    discriminator = tiny()
    before = discriminator.digest()
    weight = discriminator.model.get_parameter("0.weight")
    with torch.no_grad():
        weight.copy_(weight.flatten()[[1, 0, 2, 3, 4, 5]].view(2, 3))
    assert discriminator.digest() != before
    with torch.no_grad():
        weight.copy_(weight.flatten()[[1, 0, 2, 3, 4, 5]].view(2, 3))
    assert discriminator.digest() == before
