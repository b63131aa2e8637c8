"""`--updates arrival`: the server steps with each answer when it arrives; and `--stale 1`."""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from mdgan.errors import Interrupted
from mdgan.families.mdgan.algorithm import assign, mean_feedback
from mdgan.families.mdgan.messages import BATCHES, SWAP
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.optimizer_settings import Policy
from mdgan.messages import Kind
from tests.unit.engine.hand_clock import HandClock
from tests.unit.families.mdgan.played import (
    Played,
    answer_of,
    answers_of,
    feedback_of,
    generated_by_a_copy,
    generator_after,
    weights,
)
from tests.unit.families.mdgan.stage import Stage
from tests.unit.gan import small

MakeStage = Callable[..., Stage]
WORKERS = (1, 2, 3)


def generator_by_arrival(
    used: Sequence[Sequence[int]],
    pauses: set[int],
    policy: Policy,
    ask: Sequence[Sequence[int]] | None = None,
) -> tuple[Tensor, list[dict[str, list[int]]]]:
    """Reference: each worker's batches are made by a copy of the generator, kept for its answer.

    In each iteration these answers were used, in order; `ask` names who gets batches before it.
    Returns the generator, and by iteration and worker how many steps old its answers were.
    """
    learner = small.make_learner(policy=policy)
    held: dict[int, tuple[int, torch.nn.Module, Tensor, int]] = {}
    num_steps = 0
    staleness: list[dict[str, list[int]]] = []

    def generate(worker: int, i: int) -> None:
        held[worker] = (i, *generated_by_a_copy(learner), num_steps)

    for i, workers in enumerate(used, 1):
        staleness.append({str(worker): [] for worker in sorted(workers)})
        for worker in WORKERS if ask is None else ask[i - 1]:
            if worker not in held:
                generate(worker, i)
        for place, worker in enumerate(workers, 1):
            asked, module, x, made_at = held.pop(worker)
            judged = torch.stack([feedback_of(worker, asked), torch.zeros_like(x[1])])
            learner.put_gradients(torch.autograd.grad(x, list(module.parameters()), judged))
            staleness[-1][str(worker)].append(num_steps - made_at)
            rate = policy.learning_rate * (1 / math.sqrt(1 + num_steps - made_at))
            learner.optimizer.param_groups[0]["lr"] = rate
            learner.optimizer.step()
            num_steps += 1
            if i not in {1, *pauses} and place < len(workers):
                generate(worker, i + 1)
    return weights(learner.model), staleness


def by_arrival(stage: MakeStage, **settings: object) -> Stage:
    return stage(**{"num_workers": 3, "updates": "arrival", "log_interval": 1, **settings})


def policy_of(made: Stage) -> Policy:
    return made.settings.training.policy("generator")


def first_answers(hosts: Sequence[Played]) -> None:
    """The first answers are awaited together."""
    for host in hosts:
        host.answer(1)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_in_which_answers_come_decides_every_bit(stage: MakeStage, seed: int) -> None:
    made = by_arrival(stage, iterations=8, swap_interval=3)
    hosts = dict(zip(WORKERS, made.begin_with((1,), (2,), (3,)), strict=True))
    pauses, order = {3, 6, 8}, random.Random(seed)
    used = [
        order.sample(WORKERS, 3) if i in pauses else order.choices(WORKERS, k=3)
        for i in range(2, 9)
    ]
    first_answers(list(hosts.values()))
    for worker in (worker for workers in used for worker in workers):
        hosts[worker].answer()
    made.finished(*hosts.values())
    used = [list(WORKERS), *used]
    expected, staleness = generator_by_arrival(used, pauses, policy_of(made))
    assert made.has_learnt(expected)
    told = [record["staleness"] for record in made.metrics()]
    assert told == [{n: [sum(s) / len(s), max(s)] for n, s in i.items()} for i in staleness]
    count = Counter(str(worker) for workers in used for worker in workers)
    attended = made.events("attendance")[0]["workers"]
    assert {n: counts["answered"] for n, counts in attended.items()} == count


def test_a_host_with_two_workers_is_asked_for_each_by_itself(stage: MakeStage) -> None:
    made = by_arrival(stage, iterations=3)
    one, both = made.begin_with((1,), (2, 3))
    for host in (both, one, both, both, both, one, both, one, both):
        host.answer()
    made.finished(one, both)
    judges = [m.fields["judge"].keys() for m in both.seen if m.kind == BATCHES]
    assert judges == [{"2"}, {"3"}] * 3
    used = [WORKERS, (2, 3, 1), (2, 1, 3)]
    assert made.has_learnt(generator_by_arrival(used, {3}, policy_of(made))[0])


def test_nothing_is_under_way_at_a_swap_or_a_checkpoint(stage: MakeStage) -> None:
    made = by_arrival(stage, num_workers=2, iterations=7, swap_interval=2, checkpoints=5)
    hosts = made.begin_with((1,), (2,))
    made.finished(*hosts)
    orders = {(SWAP, 2), (SWAP, 4), (SWAP, 6), (Kind.CHECKPOINT, 5)}
    for host in hosts:
        batches = 0
        told = {(m.kind, m.iteration) for m in host.seen if m.kind in (SWAP, Kind.CHECKPOINT)}
        assert orders <= told
        for message in host.seen:
            if message.kind == BATCHES:
                batches = message.iteration
            elif (message.kind, message.iteration) in orders:
                assert batches <= message.iteration
    attended = made.events("attendance")[0]["workers"]
    assert sum(counts["answered"] for counts in attended.values()) == 2 * 7


def test_a_slow_worker_holds_up_none_until_a_pause(stage: MakeStage) -> None:
    made = by_arrival(stage, iterations=5)
    one, two, slow = made.begin_with((1,), (2,), (3,))
    first_answers((one, two, slow))
    slow.take(BATCHES)
    for _ in range(9):  # three iterations without it, in which the third is at iteration 4
        one.answer()
    one.take(BATCHES, 5)
    one.send(answer_of(1, 5))
    two.answer()
    slow.send(answer_of(3, 2))
    made.finished(one, two, slow)
    counts = {n: row["answered"] for n, row in made.events("attendance")[0]["workers"].items()}
    assert counts == {"1": 1 + 9 + 1, "2": 2, "3": 2}
    # Made after the third step; then came one's nine, its tenth, and two's.
    assert made.metrics()[-1]["staleness"]["3"] == [11.0, 11]


def test_a_worker_that_dies_costs_its_own_answer(stage: MakeStage) -> None:
    made = by_arrival(stage, iterations=4)
    one, two, three = made.begin_with((1,), (2,), (3,))
    first_answers((one, two, three))
    two.take(BATCHES)
    two.die()
    made.wait_for_event("lost")
    for host in (one, one, three, one, one, three):
        host.answer()
    made.finished(one, three)
    flags_of_run = [WORKERS, *([[1, 3]] * 3)]
    used = [[1, 2, 3], [1, 1], [3, 1], [1, 3]]
    # The lost worker's batches were made, too.
    expected, _ = generator_by_arrival(
        used, {4}, policy_of(made), [flags_of_run[0], WORKERS, *flags_of_run[2:]]
    )
    assert made.has_learnt(expected)
    assert [record["workers"] for record in made.metrics()] == [3, 1, 2, 2]


def test_a_newcomer_gets_batches_at_once(stage: MakeStage) -> None:
    made = by_arrival(stage, num_workers=2, iterations=3)
    one, two = made.begin_with((1,), (2,))
    first_answers((one, two))
    for host in (one, two):
        host.take(BATCHES, 2)
    late = made.play(3).ready()
    late.answer(2)
    for host in (one, two):
        host.send(answer_of(host.number, 2))
    made.finished(one, two, late)
    assert [record["workers"] for record in made.metrics()] == [2, 3, 3]


def test_an_unusable_answer_is_a_strike_and_no_step(stage: MakeStage) -> None:
    made = by_arrival(stage, num_workers=4, iterations=4, strikes=3)
    *good, liar = made.begin_with((1,), (2,), (3,), (4,))
    liar.take(BATCHES, 1)
    liar.send(answers_of({4: 1e6 * feedback_of(4, 1)}, 1))
    first_answers(good)
    for answer in (torch.full_like(feedback_of(4, 1), torch.nan), feedback_of(4, 1)[1:]):
        batches = liar.take(BATCHES)
        liar.send(answers_of({4: answer}, batches.iteration))
    assert liar.take(Kind.STOP).fields["shut_out"] is True
    made.finished(*good)
    reasons = [event["reason"] for event in made.events("refused")]
    assert [reason.split()[0] for reason in reasons] == ["norm", "NaN", "shape"]
    assert "4" not in {n for record in made.metrics() for n in record["staleness"]}


def test_a_silent_worker_is_given_up_where_all_must_answer(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HandClock(monkeypatch)
    made = by_arrival(stage, num_workers=2, iterations=2, answer=1.0)
    one, silent = made.begin_with((1,), (2,))
    first_answers((one, silent))
    silent.take(BATCHES, 2)
    clock.after_answer(made, one, 2, 1.5)
    made.finished(one)
    (lost,) = made.events("lost")
    assert (lost["workers"], lost["reason"]) == ([2], "no answer in 1 s; strike 1")


def test_when_all_are_lost_the_iteration_is_done_by_who_comes(stage: MakeStage) -> None:
    made = by_arrival(stage, num_workers=1, iterations=3)
    (first,) = made.begin_with((1,))
    first.answer(1)
    first.take(BATCHES, 2)
    first.die()
    made.wait_for_event("lost")
    again = made.play(1, key=first.hello["key"], generation=1).ready()
    made.finished(again)
    assert again.iterations() == [2, 3]


def test_asked_to_stop_it_waits_for_all_answers_and_saves(stage: MakeStage) -> None:
    made = by_arrival(stage, iterations=9, checkpoints=100)
    hosts = made.begin_with((1,), (2,), (3,))
    first_answers(hosts)
    for host in hosts:
        host.take(BATCHES, 2)
    made.network.server.interrupt()
    for host in hosts:
        host.send(answer_of(host.number, 2))
    for host in hosts:
        host.obey(host.take(Kind.CHECKPOINT, 2))
    assert isinstance(made.over(), Interrupted)
    assert [host.iterations() for host in hosts] == [[1, 2]] * 3
    assert made.has_learnt(generator_by_arrival([WORKERS] * 2, {2}, policy_of(made))[0])


def test_a_worker_may_train_on_the_batch_that_it_judges(stage: MakeStage) -> None:
    made = by_arrival(stage, num_workers=2, iterations=2, kappa=1)
    hosts = made.begin_with((1,), (2,))
    made.finished(*hosts)
    sent = [message.fields for host in hosts for message in host.seen if message.kind == BATCHES]
    assert all([*fields["judge"].values()] == [*fields["train"].values()] for fields in sent)
    assert isinstance(made.settings, MDGANSettings)
    assert made.settings.batches.num_sharing == 1


# With `--stale 1` the next batches leave before the feedback is in.


KAPPA = 2


def stale_generator(pauses: set[int], answered: list[list[int]]) -> Tensor:
    """Reference: feedback meets the very module, copied, that made the batches."""
    learner = small.make_learner()
    made: list[tuple[torch.nn.Module, Tensor]] = []

    for i, present in enumerate(answered, 1):
        if not made:
            made.append(generated_by_a_copy(learner))
        if i not in pauses and i < len(answered):
            made.append(generated_by_a_copy(learner))
        module, x = made.pop(0)
        feedbacks = {worker: feedback_of(worker, i) for worker in present}
        output_gradient = mean_feedback(feedbacks, assign([1, 2], KAPPA), KAPPA)
        gradients = torch.autograd.grad(x, list(module.parameters()), output_gradient)
        learner.put_gradients(gradients)
        learner.step()
    return weights(learner.model)


def test_the_next_batches_are_there_before_anybody_has_answered(stage: MakeStage) -> None:
    made = stage(iterations=4, stale=1)
    hosts = made.begin_with((1,), (2,))
    for host in hosts:
        host.take(BATCHES, 1)
    for i in range(1, 5):
        for host in hosts:
            if i < 4:
                host.take(BATCHES, i + 1)
        for host in hosts:
            host.send(answer_of(host.number, i))
    made.finished(*hosts)
    assert made.has_learnt(stale_generator(set(), [[1, 2]] * 4))
    assert not made.has_learnt(generator_after([[1, 2]] * 4))
    assert made.events("attendance")[0]["workers"] == {"1": {"answered": 4}, "2": {"answered": 4}}


def test_an_answer_to_the_next_iteration_waits_for_its_turn(stage: MakeStage) -> None:
    made = stage(iterations=3, stale=1)
    fast, slow = made.begin_with((1,), (2,))
    for i in (1, 2):
        fast.answer(i)  # twice, while the other has not answered once
    slow.take(BATCHES, 2)
    for i in (1, 2):
        slow.send(answer_of(2, i))
    made.finished(fast, slow)
    assert made.has_learnt(stale_generator(set(), [[1, 2]] * 3))


def test_nothing_leaves_ahead_of_a_swap_or_a_checkpoint(stage: MakeStage) -> None:
    made = stage(iterations=6, stale=1, swap_interval=2, checkpoints=3)
    hosts = made.begin_with((1,), (2,))
    made.finished(*hosts)
    for host in hosts:
        told = [kind for kind in host.message_kinds() if kind in ("BATCHES", "SWAP", "CHECKPOINT")]
        orders = [(m.kind, m.iteration) for m in host.seen if m.kind in told]
        last_batches = 0
        for kind, iteration in orders:
            if kind == "BATCHES":
                last_batches = iteration
            else:
                assert iteration == last_batches, orders
        assert {i for kind, i in orders if kind == "SWAP"} == {2, 4}
        assert {i for kind, i in orders if kind == "CHECKPOINT"} >= {3}
    assert made.has_learnt(stale_generator({2, 3, 4}, [[1, 2]] * 6))


def test_who_is_late_gets_no_more_batches(stage: MakeStage) -> None:
    made = stage(iterations=5, stale=1, deadline=(0.2, 0.0), quorum=0.5)
    one, slow = made.begin_with((1,), (2,))
    slow.take(BATCHES, 2)
    for i in range(1, 6):
        one.answer(i)
    made.finished(one)
    assert slow.take(Kind.STOP)
    assert slow.iterations() == [1, 2]
