"""What is said of conditional models that cannot be trained; all in one line."""

import pytest
import torch
from torch import Tensor, nn

from mdgan.errors import BadInput
from mdgan.gan.build import Models
from mdgan.models.check import check_models, tells_classes


def models(
    g_classes: object = 3, d_classes: object = 3, told: int = 0, takes_labels: bool = True
) -> Models:
    class Generator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 16)
            if g_classes is not None:
                self.num_classes = g_classes

        def forward(self, z: Tensor, *y: Tensor) -> Tensor:
            assert len(y) == (g_classes is not None)
            images: Tensor = self.layer(z).tanh().view(-1, 1, 4, 4)
            return images

    class Discriminator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 1 + told)
            if d_classes is not None:
                self.num_classes = d_classes

        def forward(self, x: Tensor, *y: Tensor) -> Tensor | tuple[Tensor, Tensor]:
            if not takes_labels and y:
                raise TypeError("takes no labels")
            output = self.layer(x.flatten(1))
            return (output[:, :1], output[:, 1:]) if told else output

    return Models("own.py", (1, 4, 4), 5, Generator, Discriminator)


def test_models_that_can_be_trained() -> None:
    check_models(models(None, None))
    check_models(models(), 3)
    check_models(models(told=3), 3)
    assert tells_classes(models(told=3))
    assert not tells_classes(models())
    assert not tells_classes(models(None, None))


@pytest.mark.parametrize(
    ("made", "num_classes", "says"),
    [
        (models(3, None), 3, "Generator has num_classes = 3 and Discriminator has no num_classes"),
        (models(None, 3), 3, "Generator has no num_classes and Discriminator has num_classes = 3"),
        (models(3, 4), 3, "Generator has num_classes = 3 and Discriminator has num_classes = 4"),
        (models(), None, "the dataset file says none; it must say NUM_CLASSES = 3, and its labels"),
        (models(), 10, "but the dataset file says NUM_CLASSES = 10"),
        (models(0, 0), 3, "the same whole number"),
        (models("3", "3"), 3, "the same whole number"),
        (models(torch.tensor(3), torch.tensor(3)), 3, "the same whole number"),
        (models(told=2), 3, "gives [2, 2] for the classes of 2 samples, must give [2, 3]"),
        (models(None, None, told=3), None, "Discriminator returns tuple, not a tensor"),
        (models(takes_labels=False), 3, "fails on a batch [b, *(1, 4, 4)] with labels [b]"),
    ],
)
def test_models_that_cannot(made: Models, num_classes: int | None, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_models(made, num_classes)
    assert says in str(caught.value)
    assert "own.py" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
