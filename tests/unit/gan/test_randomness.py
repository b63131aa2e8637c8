import threading
from collections.abc import Callable
from itertools import pairwise, product
from typing import NoReturn

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mdgan.gan.randomness import RandomState, derive_seed

CPU = torch.device("cpu")


def dropped() -> Tensor:
    """A tensor that dropout has been over: what roles draw from the default generator."""
    return F.dropout(torch.ones(64), 0.5)


def draws(state: RandomState, count: int) -> list[Tensor]:
    found = []
    for _ in range(count):
        with state.in_place():
            found.append(dropped())
    return found


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
        found = [dropped()]
        found += draws(inner, 3)
        found.append(dropped())
    with RandomState(1, CPU).in_place():
        wanted = [dropped(), dropped()]
    assert equal([found[0], found[-1]], wanted)
    assert equal(found[1:4], draws(RandomState(2, CPU), 3))


def test_two_threads_equal_one() -> None:
    wanted = {seed: draws(RandomState(seed, CPU), 200) for seed in (1, 2)}
    torch.manual_seed(8)
    before = torch.get_rng_state()
    found: dict[int, list[Tensor]] = {}
    start = threading.Barrier(2)

    def work(seed: int) -> None:
        state = RandomState(seed, CPU)
        start.wait(10)
        found[seed] = draws(state, 200)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found.keys() == wanted.keys()
    assert all(equal(found[seed], wanted[seed]) for seed in wanted)
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
