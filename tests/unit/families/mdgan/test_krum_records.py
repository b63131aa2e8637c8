"""Krum on gradients finds liars that agree, by their earlier answers."""

from collections.abc import Callable, Mapping
from functools import cache

import pytest
import torch
from torch import Tensor

from mdgan.families.mdgan.aggregation import Aggregation, gradient_of_each
from mdgan.families.mdgan.algorithm import GeneratorLearner, assign
from mdgan.gan.aggregation_form import parse_aggregation
from mdgan.gan.aggregation_rules import MEMORY, TrackRecord
from mdgan.gan.randomness import generator_for
from tests.unit.gan.small import BATCH_SIZE, SHAPE, images, make_learner, same_bits

KRUM_KAPPA = 3
KRUM_WORKERS = list(range(1, 11))
LIARS = (2, 5, 8)
NOISE = 2.0
WARM_UP = 60

Lie = Callable[[Tensor, int], Tensor]

LIES: dict[str, Lie] = {
    "constant": lambda honest, _n: -torch.ones_like(honest) * honest.norm() / honest.numel() ** 0.5,
    "replayed": lambda _honest, n: answers(0, None)[n],
    "flipped": lambda honest, _n: -5 * honest,
}


def answers(iteration: int, lie: str | None) -> dict[int, Tensor]:
    """What all honest workers want, under noise that is twice as loud."""
    random = generator_for(iteration, "noise")
    noise = NOISE * torch.randn(len(KRUM_WORKERS), BATCH_SIZE, *SHAPE, generator=random)
    results = {n: images(7) + noise[n - 1] for n in KRUM_WORKERS}
    for n in LIARS if lie else ():
        results[n] = LIES[lie or ""](results[n], n)
    return results


def fixed_learner() -> GeneratorLearner:
    """Its generator is never stepped, so that gradients of two iterations can be compared."""
    learner = make_learner()
    learner.model.eval()
    return learner


def updated(aggregation: Aggregation, feedbacks: Mapping[int, Tensor]) -> Tensor:
    learner = fixed_learner()
    learner.generate(KRUM_KAPPA)
    aggregation.update_gradient(learner, feedbacks, assign(KRUM_WORKERS, KRUM_KAPPA), KRUM_KAPPA)
    return torch.cat([p.grad.flatten() for p in learner.parameters if p.grad is not None])


def of_each(feedbacks: Mapping[int, Tensor]) -> dict[int, Tensor]:
    learner = fixed_learner()
    learner.generate(KRUM_KAPPA)
    return gradient_of_each(learner, feedbacks, assign(KRUM_WORKERS, KRUM_KAPPA), KRUM_KAPPA)


def new() -> Aggregation:
    return Aggregation(parse_aggregation("krum:3"))


@cache
def experience(lie: str | None) -> dict[str, Tensor]:
    aggregation = new()
    for i in range(WARM_UP):
        updated(aggregation, answers(i, lie))
    return aggregation.record.state()


def experienced(lie: str | None) -> Aggregation:
    aggregation = new()
    aggregation.record.load_state(experience(lie))
    return aggregation


@pytest.mark.parametrize("lie", LIES)
def test_liars_that_agree_are_found_out_under_noise(lie: str) -> None:
    combination = updated(experienced(lie), answers(WARM_UP, lie))
    gradients = of_each(answers(WARM_UP, lie))
    limit = torch.stack(list(gradients.values())).norm(dim=1).quantile(0.5)
    honest = [g * min(1.0, limit / g.norm()) for n, g in gradients.items() if n not in LIARS]
    torch.testing.assert_close(combination, torch.stack(honest).mean(0), rtol=1e-4, atol=1e-6)


def test_a_spike_of_who_was_trusted_weighs_no_more_than_others() -> None:
    aggregation = experienced(None)
    spiked = answers(WARM_UP, None)
    before = updated(aggregation, spiked)
    spiked[1] = -1e4 * spiked[1]
    after = updated(aggregation, spiked)
    longest = max(float(g.norm()) for g in of_each(answers(WARM_UP, None)).values())
    assert float((after - before).norm()) < 2 * longest


def test_a_record_is_a_running_mean_of_directions() -> None:
    record = TrackRecord()
    wanted = torch.zeros(3)
    for i in range(20):
        gradient = torch.randn(3, generator=generator_for(i, "gradient")) * 10.0**i
        record.note({4: gradient})
        direction = gradient / gradient.norm()
        wanted = direction if i == 0 else MEMORY * wanted + (1 - MEMORY) * direction
    torch.testing.assert_close(record.of([4]), wanted.unsqueeze(0))


def test_a_newcomer_is_not_trusted_before_it_has_a_record() -> None:
    aggregation = experienced(None)
    state = aggregation.record.state()
    del state["3"]
    aggregation.record.load_state(state)
    feedbacks = answers(WARM_UP, None)
    combination = updated(aggregation, feedbacks)
    feedbacks[3] = -feedbacks[3]  # of the same length, so that no feedback is cut otherwise
    aggregation.record.load_state(state)
    assert same_bits(combination, updated(aggregation, feedbacks))
    feedbacks[4] = -feedbacks[4]
    aggregation.record.load_state(state)
    assert not same_bits(combination, updated(aggregation, feedbacks))


def test_silence_has_no_direction() -> None:
    record = TrackRecord()
    record.note({1: torch.zeros(4), 2: torch.ones(4)})
    assert torch.equal(record.of([1, 2]), torch.tensor([[0.0] * 4, [0.5] * 4]))


def test_a_record_goes_on_from_its_state() -> None:
    whole, broken, again = new(), new(), new()
    for i in range(6):
        if i == 3:
            again.record.load_state(broken.record.state())
            broken = again
        assert same_bits(updated(whole, answers(i, None)), updated(broken, answers(i, None)))
    assert not same_bits(updated(whole, answers(6, None)), updated(new(), answers(6, None)))


def test_only_krum_on_gradients_keeps_records() -> None:
    for text in ("mean", "median", "clip:1", "trimmed-mean:3"):
        aggregation = Aggregation(parse_aggregation(text))
        updated(aggregation, answers(0, None))
        assert aggregation.record.state() == {}


def test_a_state_that_is_none_changes_nothing() -> None:
    aggregation = experienced(None)
    before = aggregation.record.state()
    with pytest.raises(KeyError, match="nobody"):
        aggregation.record.load_state({"1": torch.zeros(2), "nobody": torch.zeros(2)})
    assert aggregation.record.state().keys() == before.keys()
