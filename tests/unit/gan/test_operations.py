"""Counts arithmetic without doing it."""

from collections.abc import Callable
from math import inf

import torch
from torch import Tensor, nn

from mdgan.gan.build import Models, judging_operations

SHAPE = (3, 8, 8)


def models(discriminator: Callable[[], nn.Module]) -> Models:
    return Models("models.py", SHAPE, 5, nn.Identity, discriminator)


def test_a_multiplication_and_an_addition_for_each_weight_that_a_sample_meets() -> None:
    dense = models(lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 7), nn.Linear(7, 1)))
    assert judging_operations(dense, 10) == 2 * 10 * (192 * 7 + 7)
    filters = models(lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)))
    assert judging_operations(filters, 5) == 2 * 5 * (8 * 8) * (3 * 3 * 3 * 4)


class Conditional(nn.Module):
    num_classes = 4

    def __init__(self) -> None:
        super().__init__()
        self.of_class = nn.Embedding(4, 192)
        self.last = nn.Linear(192, 1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        out: Tensor = self.last(x.flatten(1) * self.of_class(y))
        return out


def test_a_conditional_model_is_told_classes() -> None:
    assert judging_operations(models(Conditional), 10) == 2 * 10 * 192


class Looking(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).sum(1) if float(x.sum()) > 0 else x.flatten(1).mean(1)


def test_a_model_that_looks_at_numbers_cannot_be_counted() -> None:
    assert judging_operations(models(Looking), 10) == inf


class Drawing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rand(1, device="cpu")


def test_the_random_numbers_of_the_process_stay_as_they_were() -> None:
    before = torch.get_rng_state()
    judging_operations(models(Drawing), 10)
    assert torch.equal(torch.get_rng_state(), before)
