"""Two models become one tensor and come back, bit for bit."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mdgan.gan.model_vector import BLOCK, ModelVector
from tests.marks import examples
from tests.unit.gan.small import (
    BATCH_SIZE,
    Z_DIM,
    equal_bits,
    images,
    make_generator,
    make_model,
    same_bits,
)

quick = settings(deadline=None, max_examples=examples(40))
STRANGE = [float("nan"), float("inf"), float("-inf"), -0.0, 1e-45, 3.4028234e38]


class Whole(nn.Module):
    """One weight, and buffers that are no float32 numbers."""

    counts: Tensor

    def __init__(self, **buffers: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.5]))
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)


def bits(*models: nn.Module) -> list[Tensor]:
    return [tensor.clone() for model in models for tensor in model.state_dict().values()]


def models_of(seed: int) -> tuple[nn.Sequential, nn.Sequential]:
    """Both models, whose statistics are no longer those of the start."""
    generator, discriminator = make_generator(seed), make_model(seed)
    for _ in range(seed + 1):
        generator(torch.randn(BATCH_SIZE, Z_DIM))
        discriminator(images(seed))
    return generator, discriminator


def wholes(*values: int) -> Whole:
    return Whole(counts=torch.tensor(values))


def assert_copied(sources: Sequence[nn.Module], targets: Sequence[nn.Module]) -> None:
    """The targets become the sources, bit for bit."""
    ModelVector(*targets).write(ModelVector(*sources).read())
    assert equal_bits(bits(*sources), bits(*targets))


def mean_of(vectors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    scaled = [w * vector.double() for w, vector in zip(weights, vectors, strict=True)]
    return torch.stack(scaled).sum(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_one_pair_of_models_is_another_becomes(dtype: torch.dtype) -> None:
    source, target = models_of(3), models_of(0)
    with torch.no_grad():
        next(source[0].parameters()).view(-1)[: len(STRANGE)] = torch.tensor(STRANGE)
    assert not equal_bits(bits(*source), bits(*target))
    ModelVector(*target).write(ModelVector(*source).read().to(dtype))
    assert equal_bits(bits(*source), bits(*target))


def test_weights_buffers_and_counts_have_blocks_of_their_own() -> None:
    generator, discriminator = models_of(1)
    vector = ModelVector(generator, discriminator)
    assert vector.shape == (3, BLOCK)
    assert vector.read().shape == vector.shape
    assert vector.read().dtype == torch.float32
    weights = [p.detach().reshape(-1) for m in (generator, discriminator) for p in m.parameters()]
    flat = torch.cat(weights)
    assert same_bits(vector.read()[0, : len(flat)], flat)
    assert not vector.read()[0, len(flat) :].any(), "the rest is zeros"
    # Two layers of BatchNorm have seen two batches each: 0 · 2²⁴ + 2.
    assert vector.read()[2, :4].tolist() == [0, 2, 0, 2]


def test_a_full_block_needs_no_second_one() -> None:
    for size, blocks in ((1, 1), (BLOCK - 1, 1), (BLOCK, 1), (BLOCK + 1, 2)):
        model = nn.Linear(size, 1, bias=False)
        vector = ModelVector(model)
        assert vector.shape == (blocks, BLOCK)
        other = nn.Linear(size, 1, bias=False)
        assert_copied([model], [other])


@pytest.mark.parametrize(
    "buffer",
    [
        torch.tensor([True, False, True]),
        torch.tensor([[1, 255], [0, 128]], dtype=torch.uint8),
        torch.tensor(-5, dtype=torch.int32),
        torch.empty(0, dtype=torch.int64),
    ],
    ids=lambda buffer: str(buffer.dtype),
)
def test_buffers_of_other_types(buffer: Tensor) -> None:
    source, target = Whole(kept=buffer), Whole(kept=torch.zeros_like(buffer))
    assert_copied([source], [target])


def test_a_buffer_that_the_model_has_replaced_since() -> None:
    inner = Whole(counts=torch.tensor([1, 2]))
    vector = ModelVector(nn.Sequential(inner))
    before = vector.read()
    inner.counts = inner.counts + 7
    assert not same_bits(vector.read(), before)
    vector.write(before)
    assert inner.counts.tolist() == [1, 2]


def test_models_without_buffers_and_buffers_that_do_not_last() -> None:
    source, target = nn.Linear(2, 2), nn.Linear(2, 2)
    for model in (source, target):
        model.register_buffer("passing", torch.zeros(3), persistent=False)
    vector = ModelVector(source)
    assert vector.shape == (1, BLOCK)
    assert_copied([source], [target])


def test_weights_that_two_layers_share_travel_once() -> None:
    def tied(seed: int) -> nn.Sequential:
        torch.manual_seed(seed)
        first, second = nn.Linear(3, 3), nn.Linear(3, 3)
        second.weight = first.weight
        return nn.Sequential(first, second)

    source, target = tied(1), tied(2)
    assert_copied([source], [target])
    assert int(ModelVector(source).read().count_nonzero()) == 9 + 3 + 3


@quick
@given(st.lists(st.integers(-(2**47), 2**47), min_size=1, max_size=6), st.data())
def test_whole_numbers_of_either_sign_are_averaged_and_rounded(
    values: list[int], data: st.DataObject
) -> None:
    shares = data.draw(st.lists(st.integers(1, 8), min_size=len(values), max_size=len(values)))
    shares[-1] += 2 ** sum(shares).bit_length() - sum(shares)  # weights that float64 holds exactly
    weights = [share / sum(shares) for share in shares]
    target = wholes(0)
    vectors = [ModelVector(wholes(value)).read() for value in values]
    ModelVector(target).write(mean_of(vectors, weights))
    total = sum(share * value for share, value in zip(shares, values, strict=True))
    assert abs(int(target.counts) * sum(shares) - total) * 2 <= sum(shares), "the nearest"
