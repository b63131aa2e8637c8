"""Real and generated samples in one pass: the gradients of two passes, up to rounding."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mdgan.families.mdgan.worker import Worker
from mdgan.gan.build import Models
from mdgan.gan.labels import Samples
from mdgan.gan.regularizers.augment import Augmentation
from mdgan.gan.regularizers.gradient_penalty import GradientPenalty
from mdgan.models.blocks import MinibatchDiscrimination
from mdgan.models.check import compares_samples
from tests.unit.gan import conditional, small


def _alone(layers: nn.Sequential) -> nn.Sequential:
    """The layers that judge each sample by itself, without random numbers."""
    return nn.Sequential(
        *(each for each in layers if not isinstance(each, nn.BatchNorm1d | nn.Dropout))
    )


def _model(kind: str) -> nn.Module:
    if kind == "plain":
        return _alone(small.make_model())
    model = conditional.make(conditional.KINDS[kind])
    model.layers = _alone(model.layers)  # type: ignore[arg-type] # both kinds have layers
    return model


def _worker(kind: str, **how: Any) -> Worker:
    data = small.RealData() if kind == "plain" else conditional.LabelledData()
    return small.make_worker(7, model=_model(kind), data=data, **how)


def _learnt(worker: Worker, fakes: list[Samples]) -> tuple[list[Tensor], list[Tensor]]:
    """J_disc of every step, and the gradients of all of them."""
    losses, gradients = [], []
    for fake in fakes:
        worker.learn_real_half()
        losses.append(worker.learn_both_halves(fake))
        gradients += [
            p.grad.clone() for p in worker.discriminator.model.parameters() if p.grad is not None
        ]
        worker.discriminator.step()
    return losses, gradients


@pytest.mark.parametrize("num_fake", [small.BATCH_SIZE, small.BATCH_SIZE + 2])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("plain", {}),
        ("projection", {}),
        ("auxiliary", {"class_weight": 0.5}),
        ("plain", {"regularizer": Augmentation}),
        ("plain", {"regularizer": lambda: Augmentation(0.6), "loss_scale": 1024.0}),
        (
            "projection",
            {"regularizer": lambda: GradientPenalty(10.0), "discriminator_loss": "wasserstein"},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value) or "nothing",
)
def test_one_pass_gives_the_gradients_of_two(
    kind: str, values: dict[str, Any], num_fake: int
) -> None:
    values = dict(values)
    make = values.pop("regularizer", None)
    if "discriminator_loss" in values:
        num_fake = small.BATCH_SIZE  # it mixes real and generated samples one by one
    fakes = [conditional.samples(seed, num_fake) for seed in range(4)]
    if kind == "plain":
        fakes = [fake.without_labels() for fake in fakes]
    apart, merged = (
        _worker(kind, regularizers=[make()] if make else [], **values, merges_halves=merges)
        for merges in (False, True)
    )
    expected, result = _learnt(apart, fakes), _learnt(merged, fakes)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)
    assert any(gradient.abs().max() > 1e-3 for gradient in expected[1])
    assert torch.equal(*(w.random_state.tensors()["cpu"] for w in (apart, merged)))


def test_worker_goes_on_where_its_state_was_taken() -> None:
    fakes = [Samples(small.images(seed)) for seed in range(4)]
    whole, first, second = (_worker("plain", merges_halves=True) for _ in range(3))
    _learnt(first, fakes[:2])
    first.learn_real_half()
    assert second.load_state(first.state())
    _learnt(whole, fakes)
    _learnt(second, fakes[2:])
    assert whole.discriminator.digest() == second.discriminator.digest()


@pytest.mark.parametrize(
    ("layers", "compares"),
    [
        ([nn.LeakyReLU(), nn.Dropout(0.5)], False),
        ([nn.LayerNorm(8), nn.GroupNorm(2, 8)], False),
        ([nn.BatchNorm1d(8)], True),
        ([MinibatchDiscrimination(8), nn.Flatten()], True),
    ],
)
def test_discriminators_that_judge_a_sample_by_others_are_found(
    layers: list[nn.Module], compares: bool
) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), *layers, nn.LazyLinear(1))

    models = Models("own.py", small.SHAPE, small.Z_DIM, small.make_generator, make)
    assert compares_samples(models) is compares
