"""Zeros that fill up tiles, beside zeros that torch has added."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from mdgan.data.dataset_file import load
from mdgan.gan.build import Models
from mdgan.gan.labels import call
from mdgan.launch.models import settings_with_defaults
from mdgan.models.registry import architecture
from mdgan.plan.multiplications import multiplications
from mdgan.plan.padding import (
    PROCESSORS,
    Multiplication,
    Processor,
    near_multiples,
    num_zeros,
    padded,
    waste,
    worst_layer,
)
from mdgan.plan.padding_rows import padding_part

_SIDE = st.integers(1, 200)


def test_the_example_of_the_paper() -> None:
    assert num_zeros((100, 100), (128, 128)) == 6384
    unit = Processor("a unit of 128 × 128", (128, 128, 1))
    assert waste([Multiplication("", 100, 100, 7)], unit) == pytest.approx(0.39, abs=0.005)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 20)), min_size=1, max_size=3))
def test_zeros_are_those_that_a_padded_tensor_has(sizes: list[tuple[int, int]]) -> None:
    tensor = torch.ones([size for size, _ in sizes])
    missing = [amount for size, of in reversed(sizes) for amount in (0, -size % of)]
    zeros = F.pad(tensor, missing).eq(0).sum()
    assert num_zeros([size for size, _ in sizes], [of for _, of in sizes]) == zeros


@given(st.tuples(_SIDE, _SIDE, _SIDE), st.integers(1, 9), st.sampled_from(PROCESSORS))
def test_waste_is_a_share_and_gone_with_padded_sizes(
    sizes: tuple[int, int, int], times: int, processor: Processor
) -> None:
    one = Multiplication("layer", *sizes, times)
    assert 0 <= waste([one], processor) < 1
    assert waste([one, one], processor) == waste([one], processor)
    assert (worst_layer([one], processor) is None) == (waste([one], processor) == 0)
    rows, columns, inner = padded(sizes, processor.multiples)
    raised = Multiplication("layer", rows, columns, inner, times)
    assert waste([raised], processor) == 0
    assert worst_layer([raised], processor) is None


@given(st.integers(1, 2000))
def test_near_multiples_are_other_sizes_that_are_multiples(size: int) -> None:
    found = near_multiples(size, (8, 32))
    assert size not in found
    assert all(n % 8 == 0 and size <= 2 * n <= 4 * size for n in found)


class _Sharp(nn.Module):
    """Asks what its samples are."""

    def forward(self, z: Tensor) -> Tensor:
        return z if z.sum().item() > 0 else -z


@pytest.mark.parametrize(
    "name",
    [
        "digits",
        "cifar10",
        pytest.param("sngan", marks=pytest.mark.slow),
        pytest.param("biggan", marks=pytest.mark.slow),
    ],
)
def test_multiplications_are_those_that_torch_counts(name: str) -> None:
    made = {"sngan": ((3, 32, 32), 0, 8), "biggan": ((1, 32, 32), 10, 4)}
    models = architecture(name).make(*made[name]) if name in made else load(name, None).models
    every = multiplications(models, [3])
    assert every is not None
    found = every[3]
    with torch.device("meta"):
        labels = torch.zeros(3, dtype=torch.int64) if name == "biggan" else None
        pairs = (
            (models.generator().eval(), torch.empty(3, models.z_dim)),
            (models.discriminator().eval(), torch.empty(3, *models.shape)),
        )
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            for model, given_ in pairs:
                call(model, given_, labels)
    ours = sum(2 * one.rows * one.columns * one.inner * one.times for one in found)
    assert ours == counter.get_total_flops()
    assert {one.layer[:2] for one in found} == {"G ", "D "}


def test_models_that_need_numbers_are_left_out() -> None:
    models = Models("own.py", (1, 4, 4), 16, _Sharp, _Sharp)
    assert multiplications(models, [2]) is None


@pytest.mark.slow
def test_rows_name_what_wastes_less() -> None:
    digits = load("digits", None)
    layers = [{"architecture": "sngan", "width": 20, "batch_size": 10}]
    rows = {
        name: (share, note)
        for name, share, note in padding_part(settings_with_defaults(layers, digits), digits)[1]
    }
    assert rows.keys() == {processor.name for processor in PROCESSORS}
    share, note = rows["GPU from A100 on, 16 bits"]
    assert "→ 128 outputs" in note
    assert "; with --width 32 " in note
    assert int(share.removesuffix("%")) > int(note.rpartition(" ")[2].removesuffix("%"))


def test_batch_sizes_that_waste_less_are_named() -> None:
    digits = load("digits", None)
    rows = padding_part(settings_with_defaults([{"batch_size": 10}], digits), digits)[1]
    assert (
        "; with --batch-size 16 " in {name: note for name, _, note in rows}["GPU before, 16 bits"]
    )
