"""The promises of an extractor, for any network."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mdgan.metrics.extractor import Features, gather
from tests.unit.metrics.small import extractor_of, refusal_of


def images(num: int) -> Tensor:
    return torch.rand(num, 1, 4, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1


@pytest.mark.parametrize("num", [1, 6, 7, 8, 30])
def test_features_do_not_depend_on_the_pieces(num: int) -> None:
    features = extractor_of()(images(num))
    assert not features.values.requires_grad
    assert torch.equal(
        gather(map(extractor_of(), torch.split(images(num), 4))).values, features.values
    )
    assert features.values.dtype == torch.float64
    assert torch.equal(features.values, images(num).flatten(1).double())
    assert features.probabilities is None


def test_probabilities_are_the_softmax_of_the_logits_in_double() -> None:
    extractor = extractor_of(lambda x: (x.flatten(1), 40 * x.flatten(1)[:, :3]), num_classes=3)
    features = extractor(images(10))
    expected = (40 * images(10).flatten(1)[:, :3]).double().softmax(1)
    assert features.probabilities is not None
    assert features.probabilities.dtype == torch.float64
    torch.testing.assert_close(features.probabilities, expected, rtol=0, atol=0)
    assert isinstance(features, Features)


def test_a_network_that_draws_gives_the_same_and_leaves_random_numbers() -> None:
    noisy = extractor_of(lambda x: x.flatten(1) + torch.randn(len(x), 16))
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = noisy(images(9)).values
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(1)
    assert torch.equal(noisy(images(9)).values, first)


@pytest.mark.parametrize(
    ("function", "gives"),
    [
        (lambda x: x, "float32 [3, 1, 4, 4]"),
        (lambda x: x.flatten(1)[:2], "float32 [2, 16]"),
        (lambda x: x.flatten(1)[:, :1], "float32 [3, 1]"),
        (lambda x: x.flatten(1).long(), "int64 [3, 16]"),
        (lambda x: "text", "str"),
        (lambda x: (), "nothing"),
        (lambda x: (x.flatten(1), "text"), "float32 [3, 16], str"),
        (lambda x: (x.flatten(1), x.sum((1, 2, 3))), "float32 [3, 16], float32 [3]"),
        (lambda x: [x.flatten(1)] * 3, "float32 [3, 16], float32 [3, 16], float32 [3, 16]"),
    ],
)
def test_output_of_wrong_form(function: Callable[[Tensor], object], gives: str) -> None:
    message = refusal_of(lambda: extractor_of(function)(images(3)))
    assert message.startswith(f"pixels: gives {gives} for 3 images, must give features [n, d]")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_features_that_are_not_finite_are_named(value: float) -> None:
    def spoil(x: Tensor) -> Tensor:
        values = x.flatten(1).clone()
        values[x[:, 0, 0, 0] > 0, 5:] = value
        return values

    tensor = -images(20).abs()
    tensor[[4, 11, 19], 0, 0, 0] = 0.5
    message = refusal_of(lambda: extractor_of(spoil)(tensor))
    assert "3 of 20 samples have features that are not finite, first feature 5" in message
    assert "of sample 4" in message
    whole = extractor_of(lambda x: (x.flatten(1), x.flatten(1) / 0), num_classes=16)
    assert "20 of 20 samples" in refusal_of(lambda: whole(images(20)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_pixels_that_are_not_finite_are_named_even_if_the_network_hides_them(value: float) -> None:
    tensor = images(20)
    tensor[[3, 8], 0, 2, 1] = value
    hiding = extractor_of(lambda x: x.flatten(1).nan_to_num())
    message = refusal_of(lambda: hiding(tensor))
    assert "2 of 20 samples have pixels that are not finite, first sample 3" in message


def test_moving_leaves_the_first_where_it_is() -> None:
    extractor = extractor_of()
    moved = extractor.to(torch.device("meta"))
    assert moved.device.type == "meta"
    assert moved.describe() == extractor.describe()
    assert extractor.device.type == "cpu"
    assert extractor(images(2)).values.shape == (2, 16)
