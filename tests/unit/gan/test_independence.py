"""Every network that judges samples by each other is found."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mdgan.gan.independence import why_dependent
from tests.claims.registry import claim

SHAPE = (1, 4, 4)


class Flat(nn.Module):
    """A network without weights: a function of [b, 16]."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, samples: Tensor) -> Tensor:
        return self.function(samples.flatten(1))


class Counts(nn.Module):
    """A buffer tells how many samples have been seen."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, samples: Tensor) -> Tensor:
        self.seen += len(samples)
        return samples.flatten(1)


class Remembers(nn.Module):
    """The last sample of a call is added in the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(16)

    def forward(self, samples: Tensor) -> Tensor:
        result = samples.flatten(1) + self.last
        self.last = samples[-1].flatten()
        return result


class Trains(nn.BatchNorm1d):
    """Stays in training mode."""

    def train(self, mode: bool = True) -> "Trains":
        del mode
        return super().train(True)


def network(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), *layers).eval()


def dependence(model: nn.Module) -> str:
    with torch.no_grad():
        return why_dependent(model, lambda samples: [model(samples)], SHAPE)


def attention(rows: Tensor) -> Tensor:
    return (rows @ rows.T).softmax(1) @ rows


MIXING: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x - 1e-2 * x.mean(0),
    "softmax": lambda x: x.softmax(0),
    "sum of earlier ones": lambda x: x.cumsum(0),
    "next one": lambda x: x + 0.1 * x.roll(1, 0),
    "sorted": lambda x: x.sort(0).values,
    "rank": lambda x: x + x.argsort(0),
    "largest": lambda x: x / x.abs().max(),
    "size": lambda x: x / len(x),
    "place": lambda x: x + torch.arange(len(x))[:, None],
    "attention": attention,
    "spread": lambda x: x / (1e-5 + x.std(0)),
    "0 x others": lambda x: x + 0 * x.sum(),
    "a little": lambda x: x + 1e-6 * x.sum(0),
    "without gradient": lambda x: x + 0.1 * x.detach().sum(0),
    "of six or more": lambda x: x - x.mean(0) if len(x) > 5 else x,
}


@pytest.mark.parametrize("name", MIXING)
@claim(
    "judges-alone",
    "A discriminator or feature network must judge each sample by itself; mdgan tries that "
    "before it starts, and refuses one that does not.",
)
def test_functions_of_the_whole_batch_are_found(name: str) -> None:
    assert dependence(Flat(MIXING[name])).startswith("on the others of its batch")


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (network(nn.BatchNorm1d(8, track_running_stats=False)), "(layer 2, BatchNorm1d)"),
        (network(nn.Tanh(), Trains(8)), "(layer 3, Trains)"),
        (network(nn.Softmax(0)), "(layer 2, Softmax)"),
        (Remembers(), "on the others of its batch, or on earlier ones"),
        (Counts(), "on earlier ones (buffer seen changes)"),
    ],
)
def test_layers_are_named(model: nn.Module, says: str) -> None:
    assert says in dependence(model)


def of_pictures(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), *layers, nn.Flatten()).eval()


@pytest.mark.parametrize(
    "model",
    [
        network(nn.BatchNorm1d(8)),
        network(nn.LayerNorm(8), nn.Dropout(0.5), nn.Softmax(1)),
        network(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))),
        of_pictures(nn.GroupNorm(2, 4), nn.ReLU()),
        of_pictures(nn.InstanceNorm2d(4)),
        of_pictures(nn.InstanceNorm2d(4, track_running_stats=True)),
        of_pictures(nn.BatchNorm2d(4), nn.MaxPool2d(2)),
        Flat(lambda x: x / x.norm(dim=1, keepdim=True)),
        Flat(lambda x: 1e9 * x.detach().sign()),
        Flat(lambda x: x * 0),
    ],
    ids=str,
)
def test_networks_that_judge_each_sample_by_itself_pass(model: nn.Module) -> None:
    assert dependence(model) == ""
