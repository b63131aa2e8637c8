"""Bytes, against messages that are really encoded."""

from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mdgan.settings.experiment import Experiment

from mdgan.families.mdgan.algorithm import assign, resolve_kappa
from mdgan.families.mdgan.messages import Form, batches, feedback
from mdgan.plan.advice import Question, best_remedy
from mdgan.plan.layout import Link
from mdgan.plan.traffic import Paper, Traffic, iteration_bytes, mean_moved
from mdgan.transport.wire import encode
from tests.unit.plan.small import costs, hosts, layout

SHAPE = (3, 8, 8)
CODECS = ("fp32", "bf16", "int8")


@pytest.mark.parametrize(("num_workers", "carried"), [(1, 1), (5, 1), (8, 4), (7, 7), (9, 2)])
@pytest.mark.parametrize(("images", "answers"), [("fp32", "fp32"), ("int8", "topk:0.1")])
@pytest.mark.parametrize("rule", ["mean", "clip:1", "f2u"])
def test_bytes_are_those_of_encoded_messages(
    num_workers: int, carried: int, images: str, answers: str, rule: str
) -> None:
    experiment = Experiment(
        world_size=num_workers + 1,
        wire_images=images,
        wire_feedback=answers,
        aggregation="mean" if rule == "clip:1" and num_workers < 3 else rule,
    )
    form = Form.of(experiment, SHAPE)
    workers = list(range(1, num_workers + 1))
    kappa = resolve_kappa("auto", num_workers)
    assignment = assign(workers, kappa)
    generated = torch.randn(kappa, *form.sample_shape)
    sent, received = [], []
    for host in hosts(num_workers, carried):
        pairs = {worker: assignment[worker] for worker in host}
        message = batches(7, generated, pairs, swap_follows=False, last=False, codec=form.images)
        sent.append(sum(map(len, encode(message))))
        feedbacks = {worker: torch.randn(form.sample_shape) for worker in host}
        losses = {worker: torch.randn(2) for worker in host}
        judged = {worker: assignment[worker].judge for worker in host}
        verdicts = {worker: torch.randn(experiment.batch_size) for worker in host}
        answer = feedback(7, feedbacks, losses, judged, form, verdicts)
        received.append(sum(map(len, encode(answer))))
    counted = iteration_bytes(experiment, SHAPE, hosts(num_workers, carried))
    assert counted == (tuple(sent), tuple(received))


@pytest.mark.parametrize("codec", ["fp32", "int8"])
def test_many_hosts_repeat_the_pattern(codec: str) -> None:
    experiment = Experiment(world_size=1001, batch_size=1, kappa=3, wire_images=codec)
    out, back = iteration_bytes(experiment, (1, 2, 2), hosts(1000))
    assert len(out) == len(back) == 1000
    assert max(out) - min(out) < 64


@given(st.integers(1, 12), st.integers(1, 4), st.integers(4, 32), st.sampled_from(CODECS))
@settings(max_examples=25, deadline=None)
def test_fewer_bytes_a_value_are_never_more_bytes(
    num_workers: int, carried: int, batch_size: int, codec: str
) -> None:
    def counted(name: str) -> tuple[int, int]:
        experiment = Experiment(
            world_size=num_workers + 1, batch_size=batch_size, wire_images=name, wire_feedback=name
        )
        out, back = iteration_bytes(experiment, SHAPE, hosts(num_workers, carried))
        return sum(out), sum(back)

    exact, ours = counted("fp32"), counted(codec)
    assert ours[0] <= exact[0]
    assert ours[1] <= exact[1]


def test_table_iii() -> None:
    """Table IV's own figures: CIFAR-10 with b = 10 and 10 workers; 0.23 MB is its 2bd."""
    paper = Paper.of(10, 10, (3, 32, 32), 628_110)
    assert paper.out_worker == pytest.approx(0.2458e6, rel=1e-3)
    assert paper.out_server == 10 * paper.out_worker == 2 * paper.back_server
    assert paper.back_worker == 4 * 10 * prod((3, 32, 32))
    assert paper.swap == 4 * 628_110


@pytest.mark.parametrize(
    ("form", "spread", "moved"),
    [
        ("pairs", hosts(4), 4.0),
        ("pairs", hosts(5), 4.0),
        ("derangement", hosts(5), 5.0),
        ("pairs", hosts(4, 4), 0.0),
        ("pairs", hosts(4, 2), 8 / 3),
        ("pairs", hosts(1), 0.0),
    ],
)
def test_discriminators_that_change_their_host(
    form: str, spread: tuple[tuple[int, ...], ...], moved: float
) -> None:
    assert mean_moved(form, spread) == pytest.approx(moved)


def question(megabits: float, **changes: object) -> Question:
    experiment = Experiment(**changes)  # type: ignore[arg-type] # by name
    where = layout(4, shared=False)
    out, back = iteration_bytes(experiment, SHAPE, where.hosts)
    what = costs(real_half=0.01, learn=0.02, server=0.03, busy=0.03)
    return Question(
        experiment, SHAPE, where, Link(1e6 * megabits), what, Traffic(out, back, 1000, 4.0), 0
    )


def test_advice_for_a_slow_link_is_fewer_bytes() -> None:
    asked = question(1)
    forecast = asked.answer()
    assert forecast.bottleneck == "link"
    remedy = best_remedy(asked, forecast)
    assert remedy is not None
    assert "--wire-images int8" in remedy[0]
    assert remedy[1].iteration < 0.5 * forecast.iteration


def test_advice_for_a_slow_server_is_not_to_wait_for_it() -> None:
    asked = question(1000)
    remedy = best_remedy(asked, asked.answer())
    assert remedy is not None
    assert remedy[0] == "--stale 1"
    stale = question(1000, stale=1)
    assert best_remedy(stale, stale.answer()) is None
