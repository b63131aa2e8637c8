"""Precision and memory layout: what models compute in, and what stays exact."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mdgan.families.mdgan.worker import Worker
from mdgan.gan.arithmetic import finite_or_zero, loss_scale, prepare
from mdgan.gan.discriminator import Discriminator
from mdgan.gan.labels import Samples
from tests.unit.gan import small

PLAIN: dict[str, Any] = {"precision": "fp32", "channels_last": False, "compiled": False}


class Seen(nn.Module):
    """Remembers in what its inputs came."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: list[torch.dtype] = []
        self.strides: list[tuple[int, ...]] = []

    def forward(self, values: Tensor) -> Tensor:
        self.dtypes.append(values.dtype)
        self.strides.append(values.stride())
        return values


def convolutions() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), Seen(), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3), Seen(), nn.Flatten()
    )


def prepared(model: nn.Module, **how: Any) -> nn.Module:
    return prepare(copy.deepcopy(model), small.CPU, **{**PLAIN, **how})


IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_layers_compute_in_16_bits_but_for_the_last(precision: str) -> None:
    model = convolutions()
    half = prepared(model, precision=precision)
    result, exact = half(IMAGES), model(IMAGES)
    inner, last = (layer.dtypes for layer in half.modules() if isinstance(layer, Seen))
    assert inner == [{"bf16": torch.bfloat16, "fp16": torch.float16}[precision]]
    assert last == [torch.float32]
    assert result.dtype == torch.float32
    assert not torch.equal(result, exact)
    torch.testing.assert_close(result, exact, rtol=0.05, atol=0.05)
    assert list(half.state_dict()) == list(model.state_dict())
    assert {p.dtype for p in half.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("exact", "dtypes"),
    [
        (["3"], [torch.bfloat16, torch.float32]),
        (["0"], [torch.float32, torch.float32]),
        (["elsewhere", "[01]"], [torch.float32, torch.float32]),
    ],
)
def test_layers_that_are_named_stay_exact(exact: list[str], dtypes: list[torch.dtype]) -> None:
    half = prepared(convolutions(), precision="bf16", exact=exact)
    half(IMAGES)
    assert [layer.dtypes for layer in half.modules() if isinstance(layer, Seen)] == [
        [dtype] for dtype in dtypes
    ]
    everything = prepared(convolutions(), precision="bf16", exact=["*"])
    assert torch.equal(everything(IMAGES), convolutions()(IMAGES))


def test_channels_last_changes_the_layout_and_little_else() -> None:
    model = convolutions()
    other = prepared(model, channels_last=True)
    torch.testing.assert_close(other(IMAGES), model(IMAGES), rtol=1e-5, atol=1e-5)
    inner = next(layer for layer in other.modules() if isinstance(layer, Seen))
    assert inner.strides == [(288, 1, 48, 8)]


def workers(**how: Any) -> list[Worker]:
    """Two with convolutions, which compute in some way."""
    made = [small.make_worker(seed) for seed in (0, 1)]
    for seed, worker in enumerate(made):
        torch.manual_seed(seed)
        layers = (nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 1, 4))
        model = prepared(nn.Sequential(*layers, nn.Flatten()), **how)
        worker.discriminator = Discriminator(model, small.adam(model))
        scale = loss_scale(how.get("precision", "fp32"))
        worker.rules = replace(worker.rules, loss_scale=scale)
    return made


@pytest.mark.parametrize(
    "how", [{"channels_last": True}, {"precision": "bf16"}, {"precision": "fp16"}]
)
def test_a_worker_learns_and_swaps_whatever_it_computes_in(how: dict[str, Any]) -> None:
    feedbacks = []
    for one, other in (workers(), workers(**how)):
        for seed in range(3):
            for worker in (one, other):
                worker.learn(Samples(small.images(seed)))
            state = one.discriminator.state()
            one.take(other.discriminator.state())
            other.take(state)
        feedbacks.append(one.feedback(Samples(small.images(9)))[0])
    plain, result = feedbacks
    assert result.dtype == torch.float32
    assert (result - plain).norm() < 0.05 * plain.norm()


def test_gradients_too_small_for_fp16_survive() -> None:
    torch.manual_seed(0)
    first, last = nn.Linear(4, 4), nn.Linear(4, 1)
    tiny = 3e-8  # half of what fp16 can tell from 0
    wanted = (last.weight @ first.weight * tiny).detach()
    half = prepared(nn.Sequential(first, last), precision="fp16")
    values = torch.ones(1, 4, requires_grad=True)
    scale = loss_scale("fp16")
    (plain,) = torch.autograd.grad((half(values) * tiny).sum(), values)
    (scaled,) = torch.autograd.grad((half(values) * tiny * scale).sum(), values)
    finite_or_zero([scaled], scale)
    assert not torch.allclose(plain, wanted, rtol=0.1, atol=0)
    torch.testing.assert_close(scaled, wanted, rtol=0.02, atol=0)


def test_gradients_that_overflow_make_no_step() -> None:
    gradients = [torch.tensor([1.0, 2.0]), torch.tensor([float("inf")])]
    finite_or_zero(gradients, 1024.0)
    assert [g.tolist() for g in gradients] == [[0.0, 0.0], [0.0]]
    fine = [torch.tensor([1024.0, 2048.0])]
    finite_or_zero(fine, 1024.0)
    assert fine[0].tolist() == [1.0, 2.0]
    untouched = [torch.tensor([float("nan")])]
    finite_or_zero(untouched, 1.0)
    assert untouched[0].isnan().all()


@pytest.mark.slow  # compiling takes 20 s
def test_a_compiled_model_computes_the_same() -> None:
    model = convolutions()
    other = prepared(model, compiled=True)
    assert list(other.state_dict()) == list(model.state_dict())
    for images in (IMAGES, IMAGES * 2):
        torch.testing.assert_close(other(images), model(images), rtol=1e-4, atol=1e-5)
