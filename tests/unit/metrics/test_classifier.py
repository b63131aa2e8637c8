"""The classifier learns in seconds, the same way every time, for images of any shape."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from mdgan.data.dataset_file import load
from mdgan.data.partitioner import Partitioner
from mdgan.errors import BadInput
from mdgan.metrics.chosen import cached_classifier
from mdgan.metrics.classifier import Classifier, train_classifier
from mdgan.metrics.extractor import Extractor
from tests.unit.metrics.small import MoreStripes, OneClass, Stripes


@pytest.fixture(scope="module")
def digits() -> Extractor:
    dataset = load("digits", None)
    # Other tests of this process score digits, too.
    return cached_classifier(dataset, dataset.open(Path()), dataset.open_held_out(Path()))


def everything(source: Partitioner) -> Tensor:
    return source.images(torch.arange(len(source)))


def test_digits_are_told_apart(digits: Extractor) -> None:
    assert digits.accuracy is not None
    assert digits.accuracy >= 0.97
    held_out = load("digits", None).open_held_out(Path())
    probabilities = digits(everything(held_out)).probabilities
    assert probabilities is not None
    measured = (probabilities.argmax(1) == held_out.labels).double().mean()
    assert float(measured) == pytest.approx(digits.accuracy)


def test_the_same_data_give_the_same_weights_and_random_numbers_are_left() -> None:
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first = train_classifier("stripes", Stripes(), MoreStripes())
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    with torch.no_grad():
        again = train_classifier("stripes", Stripes(), MoreStripes())
    assert first.sha256 == again.sha256
    assert torch.equal(first(everything(Stripes())).values, again(everything(Stripes())).values)


def test_without_held_out_samples_a_tenth_is_kept_back() -> None:
    class Counted(Stripes):
        """Counts how often each sample is read, and how many are at most at once."""

        def __init__(self) -> None:
            super().__init__()
            self.counts = torch.zeros(len(self), dtype=torch.int64)
            self.most_at_once = 0

        def images(self, indices: Tensor) -> Tensor:
            self.counts += torch.bincount(indices, minlength=len(self))
            self.most_at_once = max(self.most_at_once, len(indices))
            return super().images(indices)

    source = Counted()
    assert train_classifier("stripes", source, None).accuracy == 1.0
    assert int((source.counts <= 2).sum()) == 9  # once for the accuracy, once for the shape at most
    assert source.most_at_once == 64


def test_one_class_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        train_classifier("scans", OneClass(), None)
    assert str(caught.value) == (
        "--dataset scans has one class only; name an extractor with --extractor FILE"
    )


@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (3, 2, 5), (1, 8, 8), (1, 28, 28), (3, 32, 32), (2, 1, 40), (3, 64, 48), (4, 9, 7)],
)
def test_any_shape(shape: tuple[int, int, int]) -> None:
    features, logits = Classifier(shape, 5)(torch.randn(3, *shape))
    assert features.shape == (3, 64)
    assert logits.shape == (3, 5)


@pytest.mark.parametrize("shape", [(3, 65, 64), (3, 256, 256), (1, 1, 1000), (3, 300, 200)])
def test_large_images_cost_no_more_than_those_of_64(shape: tuple[int, int, int]) -> None:
    model = Classifier(shape, 5)
    assert model(torch.randn(2, *shape))[0].shape == (2, 64)
    assert model.num_multiplications <= Classifier((3, 64, 64), 5).num_multiplications
