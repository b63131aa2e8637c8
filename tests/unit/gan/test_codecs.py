"""How much codecs lose, and what they do with bytes that no codec wrote."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan.gan.codec_form import CODEC_FORMS, parse_codec
from mdgan.gan.codecs import FP32, Codec
from mdgan.gan.exact_sum import FEEDBACK, put_together
from tests.marks import examples

SHAPE = (3, 2, 4, 5)
quick = settings(deadline=None, max_examples=examples(32))
seeds = st.integers(0, 2**31)
scales = st.sampled_from([1e-30, 1e-8, 1e-4, 1.0, 1e6])


def samples(seed: int, scale: float = 1.0, count: int = 2) -> Tensor:
    return scale * torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(seed))


def there_and_back(codec: Codec, values: Tensor) -> Tensor:
    return codec.decode(codec.encode(values), SHAPE)


@quick
@given(seeds, scales)
def test_fp32_loses_nothing(seed: int, scale: float) -> None:
    tensor = samples(seed, scale)
    assert torch.equal(there_and_back(FP32, tensor), tensor)
    assert torch.equal(there_and_back(FP32, tensor.double()), tensor.double())


@quick
@given(seeds, scales)
def test_bf16_keeps_eight_bits(seed: int, scale: float) -> None:
    tensor = samples(seed, scale)
    assert ((there_and_back(Codec("bf16"), tensor) - tensor).abs() <= tensor.abs() / 2**8).all()


@quick
@given(seeds, scales)
def test_int8_is_within_half_a_step_of_each_sample(seed: int, scale: float) -> None:
    tensor = samples(seed, scale)
    tensor[0, 1] *= 1e-3  # a small sample beside a large one
    step = tensor.flatten(2).abs().amax(2)[..., None, None, None] / 127
    assert ((there_and_back(Codec("int8"), tensor) - tensor).abs() <= step * 0.501).all()


@pytest.mark.parametrize("value", [0.0, 1e-44, -3e38])
def test_int8_at_the_ends_of_float32(value: float) -> None:
    back = there_and_back(Codec("int8"), torch.full((1, *SHAPE), value))
    assert back.isfinite().all()
    assert torch.allclose(back, torch.full((1, *SHAPE), value), rtol=1e-2, atol=1e-43)


@quick
@given(seeds, st.sampled_from([1e-9, 0.01, 0.1, 0.3, 0.5]))
def test_topk_keeps_the_largest_of_each_sample_as_they_are(seed: int, fraction: float) -> None:
    tensor = samples(seed)
    back = there_and_back(Codec("topk", fraction), tensor)
    count = max(1, -(-int(fraction * 40 * 1e6) // 10**6))
    flat, kept = tensor.flatten(2), back.flatten(2)
    assert (kept != 0).sum(2).eq(count).all()
    assert torch.equal(kept[kept != 0], flat[kept != 0])
    least_kept = torch.where(kept != 0, kept.abs(), torch.inf).amin(2)
    most_lost = torch.where(kept == 0, flat.abs(), -torch.inf).amax(2)
    assert (least_kept >= most_lost).all()


@pytest.mark.parametrize("name", ["fp32", "bf16", "int8", "topk:0.25"])
def test_what_does_not_fit_is_refused(name: str) -> None:
    codec = Codec.of(parse_codec(name, CODEC_FORMS))
    honest = codec.encode(samples(0))
    for key, tensor in honest.items():
        for wrong in (tensor[..., :-1], tensor[0], tensor.long(), tensor.flatten(), tensor[:, :1]):
            with pytest.raises((ValueError, RuntimeError)):
                codec.decode({**honest, key: wrong}, SHAPE)
        with pytest.raises(KeyError):
            codec.decode({name: t for name, t in honest.items() if name != key}, SHAPE)


@pytest.mark.parametrize("place", [-1, 40, 2**31 - 1])
def test_no_place_is_outside_of_a_sample(place: int) -> None:
    codec = Codec("topk", 0.25)
    parts = codec.encode(samples(0))
    parts["places"][0, 0, 0] = place
    with pytest.raises(ValueError, match="outside"):
        codec.decode(parts, SHAPE)


@quick
@given(seeds, scales, st.permutations(range(7)))
def test_sums_do_not_depend_on_order_or_grouping(seed: int, scale: float, order: list[int]) -> None:
    parts = [samples(seed + n, min(scale, 1.0), 1)[0] for n in range(7)]
    whole = FEEDBACK.add_up(dict(enumerate(parts)), {})
    mixed = put_together(
        [parts[n] for n in order[:2]],
        [FEEDBACK.add_up({n: parts[n] for n in some}, {}) for some in (order[2:4], order[4:])],
    )
    assert mixed is not None
    assert torch.equal(mixed, whole)
    torch.testing.assert_close(whole, torch.stack(parts).double().sum(0), rtol=0, atol=1e-14)


def test_one_answer_is_itself() -> None:
    tiny = samples(1, 1e-20, 1)[0]
    assert torch.equal(put_together([tiny], []), tiny.double())  # type: ignore[arg-type] # None would not be equal
    assert put_together([], []) is None
    assert not torch.equal(FEEDBACK.add_up({1: tiny}, {}), tiny.double())
