"""Workers that lie, as the benchmark of robustness and the chaos tests use them."""

import pytest
import torch
from torch import Tensor

from benchmarks.hostile import ATTACKS, FLIP_STRENGTH
from mdgan.engine.answers import AnswerForm
from mdgan.engine.server.screening import Screening
from mdgan.engine.server.strikes import Strikes
from mdgan.families.mdgan.aggregation import Aggregation
from mdgan.families.mdgan.algorithm import assign
from mdgan.families.mdgan.messages import FEEDBACK
from mdgan.families.mdgan.settings import parse_aggregation
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.labels import Samples
from tests.unit.gan.small import (
    BATCH_SIZE,
    SHAPE,
    equal_bits,
    images,
    make_learner,
    make_worker,
    same_bits,
)

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


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_lie_is_loud_enough_to_be_refused(attack: str) -> None:
    screening = Screening(AnswerForm(FEEDBACK, (BATCH_SIZE, *SHAPE)), Strikes(1))
    workers = {n: hostile(attack, n) if n < 4 else make_worker(n) for n in range(1, 11)}
    found = {n: answers(worker, 5) for n, worker in workers.items()}
    for i in range(5):
        assert all(screening.refuse(n, found[n][i]) is None for n in workers)
        assert screening.look_back() == {}


@pytest.mark.parametrize("liars", [(2, 5, 8), (1, 2, 3)])
@pytest.mark.parametrize("kappa", [1, 3])
@pytest.mark.parametrize("rule", ["mean", "median", "trimmed-mean:3", "krum:3", "clip:1"])
def test_three_sign_flippers_of_ten_turn_only_the_mean_around(
    rule: str, kappa: int, liars: tuple[int, ...]
) -> None:
    honest = gradient(rule="mean", kappa=kappa, liars=())
    attacked = gradient(rule=rule, kappa=kappa, liars=liars)
    cosine = float(torch.cosine_similarity(honest, attacked, dim=0))
    assert cosine < 0 if rule == "mean" else cosine > 0.5


def gradient(rule: str, kappa: int, liars: tuple[int, ...]) -> Tensor:
    """The first gradient of ten workers, whose discriminators are equal at the start."""
    learner, assignment = make_learner(), assign(list(range(1, 11)), kappa)
    generated = learner.generate(kappa)
    feedbacks = {}
    for n in assignment:
        worker = make_worker(n, model_seed=0)
        worker.discriminator.model.eval()
        worker = ATTACKS["flipped"](worker, n) if n in liars else worker
        feedbacks[n] = worker.feedback(generated[assignment[n].judge])[0]
    aggregation = Aggregation(parse_aggregation(rule))
    aggregation.update_gradient(learner, feedbacks, assignment, kappa)
    gradients = [p.grad for p in learner.model.parameters() if p.grad is not None]
    return torch.cat([g.flatten() for g in gradients])
