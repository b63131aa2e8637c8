"""How conditional models learn: against textbook steps, and which classes are drawn."""

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from mdgan.families.mdgan.variants.ahead import GeneratorAhead
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.arithmetic import prepare
from mdgan.gan.labels import (
    Samples,
    call,
    draw_labels,
    even_labels,
    label_counts,
    num_classes_of,
    uniform_counts,
)
from mdgan.gan.randomness import RandomState, generator_for
from mdgan.gan.regularizers.gradient_penalty import GradientPenalty
from mdgan.gan.regularizers.r1 import R1
from mdgan.gan.sampling import draw_samples
from tests.unit.gan import small
from tests.unit.gan.conditional import (
    KINDS,
    NUM_CLASSES,
    ConditionalGenerator,
    LabelledData,
    make,
    make_learner,
    make_worker,
    samples,
)
from tests.unit.gan.stateful import assert_swapping_exchanges_shards

WEIGHT = 0.7

some_counts = st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any)


@given(some_counts, st.integers(0, 40))
def test_even_labels_follow_their_shares(counts: list[int], num_samples: int) -> None:
    weights = torch.tensor(counts)
    labels = even_labels(weights, num_samples)
    assert labels.dtype == torch.int64
    assert labels.shape == (num_samples,)
    assert torch.equal(even_labels(weights, 41)[:num_samples], labels)
    result = torch.bincount(labels, minlength=len(counts))
    wanted = weights / weights.sum() * num_samples
    assert (result - wanted).abs().max() <= max(1, len(counts) / 2)
    assert not result[weights == 0].any()


def test_labels_are_drawn_in_proportion() -> None:
    counts = torch.tensor([1, 0, 3])
    labels = draw_labels(counts, 4000, generator_for(0))
    result = torch.bincount(labels, minlength=3)
    assert result[1] == 0
    assert abs(int(result[0]) - 1000) < 120  # four standard deviations
    again = draw_labels(10 * counts, 4000, generator_for(1))
    assert again.bincount()[1] == 0


def test_counts_of_workers_are_added_and_cut() -> None:
    assert label_counts(3, [[1, 2], [0, 1, 5, 99], []]).tolist() == [1, 3, 5]
    assert label_counts(3, []).tolist() == [1, 1, 1]
    assert label_counts(2, [[0, 0, 7]]).tolist() == [1, 1]


def make_trained(kind: str, seed: int, **how: Any) -> tuple[Worker, nn.Module, small.RealData]:
    """A worker, and the model and the data that it has."""
    if kind == "plain":
        worker = small.make_worker(seed, **how)
        return worker, small.make_model(seed), small.RealData(seed)
    return make_worker(KINDS[kind], seed, **how), make(KINDS[kind], seed), LabelledData(seed)


def textbook_loss(output: Tensor | tuple[Tensor, Tensor], y: Tensor | None, sign: float) -> Tensor:
    """−log σ(±s), and WEIGHT times −log p(y|x) if D tells classes, written out."""
    logits, classes = output if isinstance(output, tuple) else (output, None)
    loss = -torch.log(torch.sigmoid(sign * logits)).mean()
    if classes is not None and y is not None:
        p = classes.exp() / classes.exp().sum(1, keepdim=True)
        loss = loss - WEIGHT * torch.log(p[torch.arange(len(y)), y]).mean()
    return loss


def slopes_of(model: nn.Module, x: Tensor, y: Tensor | None) -> tuple[Any, Tensor]:
    """What D says of samples, and ∂D(x)/∂x of each, [b, …]."""
    output = call(model, x, y)
    logits = output[0] if isinstance(output, tuple) else output
    return output, torch.autograd.grad(logits.sum(), x, create_graph=True)[0].flatten(1)


@pytest.mark.parametrize("local_steps", [1, 2])
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(("r1", "between"), [(2.0, 0.0), (0.0, 5.0), (2.0, 5.0)])
@pytest.mark.parametrize("kind", ["plain", *KINDS])
def test_learning_is_the_textbook_step(
    kind: str, r1: float, between: float, early: bool, local_steps: int
) -> None:
    penalties = [*([R1(r1)] if r1 else []), *([GradientPenalty(between)] if between else [])]
    how = {"class_weight": WEIGHT, "local_steps": local_steps, "regularizers": penalties}
    worker, model, data = make_trained(kind, 1, **how)
    optimizer, state = small.adam(model), RandomState(2001, small.CPU)
    for iteration in range(3):
        fake = samples(iteration) if kind != "plain" else Samples(small.images(iteration))
        if early:
            worker.learn_real_half()
        told = worker.learn(fake)
        for _ in range(local_steps):
            optimizer.zero_grad()
            with state.in_place():
                real = data.next_batch(small.BATCH_SIZE)
                x = real.images.requires_grad_()
                output, slopes = slopes_of(model, x, real.labels)
                total = textbook_loss(output, real.labels, 1)
                torch.autograd.backward(total + r1 / 2 * slopes.pow(2).sum() / len(x))
                generated = textbook_loss(call(model, fake.images, fake.labels), fake.labels, -1)
                torch.autograd.backward(generated)
                if between:  # with the generated samples' labels
                    share = torch.rand(len(x), 1, 1, 1)
                    mixed = (share * x.detach() + (1 - share) * fake.images).requires_grad_()
                    _, slopes = slopes_of(model, mixed, fake.labels)
                    torch.autograd.backward(between * (slopes.norm(dim=1) - 1).pow(2).mean())
            optimizer.step()
        torch.testing.assert_close(told, (total + generated).detach(), rtol=1e-5, atol=1e-6)
    for name, wanted in model.named_parameters():
        if not name.endswith("1.bias"):  # BatchNorm takes it away: its gradient is rounding alone
            found = worker.discriminator.model.get_parameter(name)
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert worker.batches.state()["generator"].equal(data.state()["generator"])


@pytest.mark.parametrize("kind", KINDS)
def test_feedback_is_the_derivative_of_the_whole_loss(kind: str) -> None:
    worker, judged = make_worker(KINDS[kind], 1, class_weight=WEIGHT), samples(4)
    worker.discriminator.model.eval()
    images = judged.images.clone().requires_grad_()
    output = worker.discriminator.model(images, judged.labels)
    (wanted,) = torch.autograd.grad(textbook_loss(output, judged.labels, 1), images)
    torch.testing.assert_close(worker.feedback(judged).feedback, wanted, rtol=1e-4, atol=1e-7)


def test_labels_are_drawn_after_the_noise() -> None:
    """So an unconditional generator draws what it did."""
    learner, noise = make_learner(3), generator_for(3, "noise")
    plain = small.make_learner(3)
    generated = learner.generate(2)
    z = torch.randn(2 * small.BATCH_SIZE, small.Z_DIM, generator=noise)
    y = draw_labels(uniform_counts(NUM_CLASSES), len(z), noise)
    assert generated.labels is not None
    assert generated.labels.flatten().tolist() == y.tolist()
    model = make(ConditionalGenerator, 3)
    with RandomState(1003, small.CPU).in_place():
        assert small.same_bits(model(z, y).detach(), generated.images.flatten(0, 1))
    assert plain.generate(2).labels is None


def test_batches_generated_ahead_have_labels() -> None:
    learner, now = make_learner(kind=GeneratorAhead), make_learner()
    first, second = (learner.generate(2) for _ in range(2))
    for each in (first, second):
        assert each.labels is not None
        assert each.labels.shape == (2, small.BATCH_SIZE)
    assert small.same_bits(first.images, now.generate(2).images)
    learner.backward(torch.ones_like(first.images))


@pytest.mark.parametrize("kind", KINDS)
def test_a_swap_equals_exchanging_the_data(kind: str) -> None:
    assert_swapping_exchanges_shards(partial(make_worker, KINDS[kind]), draw=samples)


def test_samples_are_of_the_classes_asked_for() -> None:
    model = make(ConditionalGenerator).eval()
    labels = torch.tensor([2, 2, 0, 1])
    noise = generator_for(5, "samples")
    z = torch.stack([torch.randn(small.Z_DIM, generator=noise) for _ in labels])
    result = draw_samples(model, 4, small.Z_DIM, 5, labels)
    torch.testing.assert_close(result, model(z, labels).detach())
    in_turn = draw_samples(model, 4, small.Z_DIM, 5)
    assert torch.equal(in_turn, draw_samples(model, 4, small.Z_DIM, 5, torch.tensor([0, 1, 2, 0])))


def test_16_bits_and_pixel_order_keep_pairs_and_labels() -> None:
    for precision in ("fp32", "bf16"):
        for kind in (*KINDS.values(), ConditionalGenerator):
            model = make(kind, 1)
            how = {"precision": precision, "channels_last": True, "compiled": False}
            prepared = prepare(model, small.CPU, **how)  # type: ignore[arg-type] # by name
            assert num_classes_of(prepared) == NUM_CLASSES
            first = (
                torch.zeros(2, small.Z_DIM)
                if kind is ConditionalGenerator
                else samples(0, 2).images
            )
            output = prepared(first, torch.tensor([0, 1]))
            for part in output if isinstance(output, tuple) else (output,):
                assert part.dtype == torch.float32
