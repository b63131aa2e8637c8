"""Workers that lie, as the benchmark of robustness and the chaos tests use them."""

import pytest
import torch
from torch import Tensor

from benchmarks.hostile import ATTACKS, FLIP_STRENGTH
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.labels import Samples
from tests.unit.gan.small import equal_bits, images, make_worker, same_bits

FREE_RIDERS = [name for name in ATTACKS if name != "flipped"]


def hostile(attack: str, seed: int = 1) -> Worker:
    return ATTACKS[attack](make_worker(seed), seed)


def answers(worker: Worker, iterations: int) -> list[Tensor]:
    """What a worker answers in an iteration's order of work."""
    found = []
    for i in range(iterations):
        worker.learn_real_half()
        worker.learn(Samples(images(2 * i)))
        found.append(worker.feedback(Samples(images(2 * i + 1)))[0])
    return found


def test_a_sign_flipper_trains_like_an_honest_worker_and_says_the_opposite() -> None:
    liar, honest = hostile("flipped"), make_worker(1)
    for lie, truth in zip(answers(liar, 4), answers(honest, 4), strict=True):
        torch.testing.assert_close(lie, -FLIP_STRENGTH * truth)
    assert liar.discriminator.digest() == honest.discriminator.digest()


@pytest.mark.parametrize("attack", FREE_RIDERS)
def test_a_free_rider_never_trains_and_answers_as_loud_as_its_discriminator(attack: str) -> None:
    liar = hostile(attack)
    before = [parameter.clone() for parameter in liar.discriminator.model.parameters()]
    idle = make_worker(1)
    for i, lie in enumerate(answers(liar, 4)):
        truth, _, _ = idle.feedback(Samples(images(2 * i + 1)))
        assert (lie.shape, lie.dtype) == (truth.shape, truth.dtype)
        torch.testing.assert_close(lie.norm(), truth.norm())
    assert equal_bits(list(liar.discriminator.model.parameters()), before)
    assert liar.batches.num_batches == 0  # type: ignore[attr-defined] # the tests' own data


def test_each_kind_of_free_rider_answers_its_own_way() -> None:
    directions = {
        attack: [answer / answer.norm() for answer in answers(hostile(attack), 3)]
        for attack in FREE_RIDERS
    }
    for attack, (first, second, third) in directions.items():
        again = torch.allclose(first, second, atol=1e-6) and torch.allclose(first, third, atol=1e-6)
        assert again == (attack != "random"), attack
    assert (directions["constant"][0] < 0).all()
    truth, _, _ = make_worker(1).feedback(Samples(images(1)))
    torch.testing.assert_close(directions["replayed"][2], truth / truth.norm())
    other = answers(hostile("random", 2), 1)[0]
    assert not same_bits(other, answers(hostile("random", 1), 1)[0])
    assert equal_bits(answers(hostile("random"), 3), answers(hostile("random"), 3))
