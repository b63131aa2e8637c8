"""Workers at once and one after another agree, but for rounding and dropout's masks."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mdgan.families.contract import HostNeeds
from mdgan.families.mdgan.algorithm import Assignment
from mdgan.families.mdgan.build import make_group
from mdgan.families.mdgan.host import OneByOne, WorkerAnswers
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.variants.learning_later import LearningLater
from mdgan.families.mdgan.variants.stacked import StackedWorkers
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.arithmetic import prepare
from mdgan.gan.build import Models
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.labels import Samples
from mdgan.gan.model_stack import CannotStack
from mdgan.gan.optimizer_settings import LOOKAHEAD, OPTIMIZERS, Policy, RateSchedule
from mdgan.gan.optimizers import make_optimizer
from mdgan.gan.randomness import RandomState
from mdgan.observe.tracer import Tracer
from tests.unit.gan import small
from tests.unit.gan.small import HalfUsed

RANKS = (3, 4, 7, 8)
Workers = dict[int, Worker]


def convolutions() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.LeakyReLU(0.2)),
        *(nn.Conv2d(6, 1, 4, bias=False), nn.Flatten()),
    )


def dense() -> nn.Module:
    """The small model without dropout."""
    return nn.Sequential(*(layer for layer in small.make_model() if type(layer) is not nn.Dropout))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "dense": dense,
    "convolutions": convolutions,
    "half used": HalfUsed,
}


def make_workers(
    build: Callable[[], nn.Module], local_steps: int = 1, policy: Policy | None = None
) -> Workers:
    """Workers that differ in everything."""
    made = {}
    for rank in RANKS:
        made[rank] = small.make_worker(rank, local_steps=local_steps)
        with RandomState(rank, small.CPU).in_place():
            model = build()
        optimizer = small.adam(model) if policy is None else make_optimizer(model, policy)
        made[rank].discriminator = Discriminator(model, optimizer, policy)
    return made


def both(
    build: Callable[[], nn.Module], local_steps: int = 1, policy: Policy | None = None
) -> list[tuple[Workers, OneByOne]]:
    """Equal workers twice: one by one, and all at once."""
    singly, together = (make_workers(build, local_steps, policy) for _ in range(2))
    return [
        (singly, OneByOne(singly)),
        (together, StackedWorkers(together, sample_shape=small.SHAPE)),
    ]


def asked(iteration: int, ranks: tuple[int, ...] = RANKS) -> tuple[Samples, dict[int, Assignment]]:
    generated = torch.stack([small.images(100 * iteration + place) for place in range(3)])
    return Samples(generated), {
        rank: Assignment(n % 3, (n + 1) % 3) for n, rank in enumerate(ranks)
    }


def rotate(workers: Workers) -> None:
    values = {rank: workers[rank].discriminator.moving() for rank in RANKS}
    for giver, taker in zip(RANKS, (*RANKS[1:], RANKS[0]), strict=True):
        workers[taker].take(values[giver])


def begin_again(workers: Workers) -> None:
    """As after a checkpoint, taken and loaded at any time."""
    for rank, seed in ((4, 3), (7, 7)):
        workers[rank].load_state(workers[seed].state())


BETWEEN: dict[int, Callable[[Workers], None]] = {2: rotate, 5: begin_again, 7: rotate}


def states(workers: Workers) -> dict[str, Tensor]:
    return {
        f"{rank}.{name}": tensor
        for rank, worker in workers.items()
        for name, tensor in worker.state().items()
    }


def assert_close(first: Mapping[str, Tensor], second: Mapping[str, Tensor], near: float) -> None:
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert tensor.dtype == second[name].dtype, name
        torch.testing.assert_close(second[name], tensor, rtol=near, atol=near, msg=name)


def named(answers: WorkerAnswers) -> dict[str, Tensor]:
    feedbacks = {f"feedback {rank}": tensor for rank, tensor in answers.feedbacks.items()}
    outputs = {f"outputs {rank}": tensor for rank, tensor in answers.outputs.items()}
    losses = {f"losses {rank}": tensor for rank, tensor in answers.losses.items()}
    return feedbacks | outputs | losses


@pytest.mark.parametrize("local_steps", [1, 2])
@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
@pytest.mark.usefixtures("double_precision")
def test_it_computes_what_workers_one_by_one_compute(
    build: Callable[[], nn.Module], local_steps: int
) -> None:
    """They agree through swaps, loading, and iterations in which only some workers are asked."""
    groups = both(build, local_steps)
    for iteration in range(10):
        ranks = {3: (4, 8), 6: (8,), 9: (7, 3)}.get(iteration, RANKS)
        answers = [group.answer(*asked(iteration, ranks)) for _, group in groups]
        assert list(answers[1].feedbacks) == list(answers[1].outputs) == list(ranks)
        assert_close(named(answers[0]), named(answers[1]), 1e-9)
        for workers, group in groups:
            if iteration % 2:  # a real half that is learnt early, and that a swap undoes
                group.learn_real_halves()
            if iteration in BETWEEN:
                BETWEEN[iteration](workers)
        assert_close(states(groups[0][0]), states(groups[1][0]), 1e-9)


@pytest.mark.parametrize("name", ["adam", "radam", "sgd"])
@pytest.mark.usefixtures("double_precision")
def test_optimizers_that_keep_all_by_parameter_step_at_once(name: str) -> None:
    """Each discriminator has its own norm, and its own number of steps."""
    policy = Policy(name, 0.01, clip_norm=0.2, schedule=RateSchedule("cosine", 2, 10))
    groups = both(HalfUsed, 2, policy)
    for iteration in range(1, 8):
        ranks = {3: (4, 8), 4: (8,)}.get(iteration, RANKS)
        for workers, group in groups:
            for worker in workers.values():
                worker.discriminator.at(iteration)
            group.answer(*asked(iteration, ranks))
            if iteration in BETWEEN:
                BETWEEN[iteration](workers)
    assert_close(states(groups[0][0]), states(groups[1][0]), 1e-9)


@pytest.mark.parametrize(
    "name", sorted({*OPTIMIZERS, f"{LOOKAHEAD}adam"} - {"adam", "radam", "sgd"})
)
def test_other_optimizers_step_one_discriminator_at_a_time(name: str) -> None:
    workers = make_workers(dense, policy=Policy(name))
    with pytest.raises(CannotStack, match="steps one model at a time"):
        StackedWorkers(workers, sample_shape=small.SHAPE)


@pytest.mark.parametrize("scale", [1.0, 1024.0])
@pytest.mark.usefixtures("double_precision")
def test_one_workers_overflow_is_its_own(scale: float) -> None:
    """With a scale, gradients that are not finite count as none."""
    workers = [make_workers(dense), make_workers(dense)]
    for worker in (*workers[0].values(), *workers[1].values()):
        worker.rules = replace(worker.rules, loss_scale=scale)
    groups = OneByOne(workers[0]), StackedWorkers(workers[1], sample_shape=small.SHAPE)
    generated, assignment = asked(0)
    images = torch.cat([generated.images, torch.full_like(generated[:1].images, torch.inf)])
    assignment[4] = Assignment(judge=1, train=3)
    for group in groups:
        group.answer(Samples(images), assignment)
    wanted, result = states(workers[0]), states(workers[1])
    for name, tensor in wanted.items():
        torch.testing.assert_close(result[name], tensor, rtol=1e-9, atol=1e-9, equal_nan=True)
    infinite = {name for name, tensor in result.items() if not tensor.isfinite().all()}
    weights = {name for name in infinite if "running" not in name}  # statistics have no scale
    assert all(name.startswith("4.") for name in infinite)
    assert bool(weights) is (scale == 1.0)


def test_workers_are_whole_between_two_calls() -> None:
    workers = make_workers(small.make_model)
    before, digests = states(workers), [w.discriminator.digest() for w in workers.values()]
    group = StackedWorkers(workers, sample_shape=small.SHAPE)
    assert [worker.discriminator.digest() for worker in workers.values()] == digests
    assert all(small.same_bits(states(workers)[name], tensor) for name, tensor in before.items())
    group.learn_real_halves()
    for name, tensor in states(workers).items():  # a state is that before the real half
        assert small.same_bits(tensor, before[name]), name
    first = group.answer(*asked(0))
    rotate(workers)  # which must not decide who gets which masks of dropout
    group.learn_real_halves()
    kept = states(workers)

    other = make_workers(small.make_model)
    for rank, worker in other.items():
        state = {n.split(".", 1)[1]: t for n, t in kept.items() if n.startswith(f"{rank}.")}
        assert worker.load_state(state)
    resumed = named(StackedWorkers(other, sample_shape=small.SHAPE).answer(*asked(1)))
    went_on = named(group.answer(*asked(1)))
    assert all(small.same_bits(resumed[name], tensor) for name, tensor in went_on.items())
    assert not torch.equal(first.feedbacks[3], went_on["feedback 3"])


def test_every_workers_dropout_has_masks_of_its_own() -> None:
    workers = {rank: small.make_worker(1) for rank in RANKS}
    torch.manual_seed(1)
    outside = torch.get_rng_state()
    group = StackedWorkers(workers, sample_shape=small.SHAPE)
    generated, _ = asked(0)
    answers = [
        group.answer(Samples(generated.images), dict.fromkeys(RANKS, Assignment(0, 1)))
        for _ in range(2)
    ]
    feedbacks = [feedback for answer in answers for feedback in answer.feedbacks.values()]
    for place, feedback in enumerate(feedbacks):
        assert not any(torch.equal(feedback, other) for other in feedbacks[:place])
    assert torch.equal(torch.get_rng_state(), outside)


def test_every_asked_worker_is_seen_in_every_stage() -> None:
    notes: list[tuple[int, str]] = []
    open_stages: list[int] = []

    def stage_of(rank: int) -> Callable[[str], object]:
        @contextmanager
        def stage(name: str) -> Iterator[None]:
            notes.append((rank, name))
            open_stages.append(rank)
            yield
            open_stages.remove(rank)

        return stage

    group = StackedWorkers(make_workers(dense), stage_of, sample_shape=small.SHAPE)  # type: ignore[arg-type]
    assert not notes
    group.answer(*asked(0, (8, 4)))
    names = ("real half", "fake half", "local step", "feedback")
    assert notes == [(rank, name) for name in names for rank in (4, 8)]
    notes.clear()
    group.learn_real_halves()
    assert notes == [(rank, "real half") for rank in RANKS]
    notes.clear()
    group.answer(*asked(1))
    assert {name for _, name in notes} == {*names[1:]}
    assert not open_stages


class Counts(nn.Module):
    """Replaces its buffer, which no stack can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 1)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, images: Tensor) -> Tensor:
        self.seen = self.get_buffer("seen") + 1
        logits: Tensor = self.layer(images.flatten(1))
        return logits


class Asks(nn.Module):
    """Decides by a value, which torch.vmap refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 1)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layer(images.flatten(1))
        return logits if logits.sum() > 0 else 2 * logits


@pytest.mark.parametrize(("build", "why"), [(Counts, "seen is replaced"), (Asks, "RuntimeError")])
def test_models_that_cannot_be_stacked_are_left_alone(
    build: Callable[[], nn.Module], why: str
) -> None:
    workers, reference = make_workers(build), make_workers(build)
    with pytest.raises(CannotStack, match=why):
        StackedWorkers(workers, sample_shape=small.SHAPE)
    result, wanted = (named(OneByOne(own).answer(*asked(0))) for own in (workers, reference))
    assert all(small.same_bits(result[name], tensor) for name, tensor in wanted.items())
    result, wanted = states(workers), states(reference)
    assert all(small.same_bits(result[name], tensor) for name, tensor in wanted.items())


def another_model(worker: Worker) -> None:
    model = convolutions()
    worker.discriminator = Discriminator(model, small.adam(model))


def another_optimizer(worker: Worker) -> None:
    model = worker.discriminator.model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    worker.discriminator = Discriminator(model, optimizer)


def another_rate(worker: Worker) -> None:
    worker.discriminator.optimizer.param_groups[0]["lr"] = 1.0


def another_rule(worker: Worker) -> None:
    worker.rules = replace(worker.rules, local_steps=9)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (another_model, "models differ"),
        (another_optimizer, "optimizers differ"),
        (another_rate, "several settings"),
        (another_rule, "different ways"),
    ],
)
def test_workers_that_differ_cannot_be_stacked(change: Callable[[Worker], None], why: str) -> None:
    workers = make_workers(dense)
    change(workers[7])
    with pytest.raises(CannotStack, match=why):
        StackedWorkers(workers, sample_shape=small.SHAPE)


def test_models_that_compute_in_16_bits_are_stacked_too() -> None:
    def build() -> nn.Module:
        how = {"precision": "bf16", "channels_last": False, "compiled": False}
        return prepare(convolutions(), small.CPU, **how)  # type: ignore[arg-type]

    answers = [group.answer(*asked(0)) for _, group in both(build)]
    assert_close(named(answers[0]), named(answers[1]), 0.01)
    exact = both(convolutions)[0][1].answer(*asked(0))
    assert any(not torch.equal(exact.losses[rank], answers[1].losses[rank]) for rank in RANKS)


# Which way a host's workers compute, by the settings.


def group_of(workers: dict[int, Worker], **settings: Any) -> OneByOne:
    models = Models("small", small.SHAPE, small.Z_DIM, small.make_generator, small.make_model)
    needs = HostNeeds(MDGANSettings.read(settings), models, {}, small.CPU, Tracer())
    return make_group(workers, needs)


def small_workers(num: int = 3) -> dict[int, Worker]:
    return {rank: small.make_worker(rank) for rank in range(1, num + 1)}


@pytest.mark.parametrize(
    ("num", "settings", "kind"),
    [
        (3, {}, OneByOne),
        (3, {"vectorize": True}, StackedWorkers),
        (1, {"vectorize": True}, OneByOne),
        (3, {"updates": "async"}, LearningLater),
    ],
)
def test_as_it_is_told(
    num: int, settings: dict[str, Any], kind: type[object], caplog: pytest.LogCaptureFixture
) -> None:
    assert type(group_of(small_workers(num), **settings)) is kind
    assert caplog.messages == []


def test_what_cannot_be_stacked_goes_one_by_one_and_it_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    workers = small_workers()
    workers[2].discriminator.model.add_module("more", torch.nn.Identity())
    assert type(group_of(workers, vectorize=True)) is OneByOne
    expected = "the process of rank(s) 1, 2, 3 computes one by one: their models differ"
    assert caplog.messages == [expected]
    caplog.clear()
    assert type(group_of(small_workers(), vectorize=True, compile=True)) is OneByOne
    assert "compiled models are called one by one" in caplog.messages[0]
