"""Encodes generated images and feedback for sending: exactly, or in fewer bytes.

Hardy et al. name this as future work (section VII.2). A codec encodes every sample by itself, so
that its bytes do not depend on other samples in its message.

    codec      bytes a value     what is lost
    fp32       4                 nothing
    bf16       2                 all but 8 bits of the mantissa
    int8       1 (and 4 a sample) values are rounded to 255 steps of the sample's largest
    topk:F     8 F               all but the largest values of a sample, a fraction F of them
"""

from collections.abc import Mapping
from math import ceil, inf, prod

import torch
from torch import Tensor

from mdgan.gan.codec_form import CodecForm

_STEPS = 127


class Codec(CodecForm):
    """Encodes and decodes samples in one of these ways."""

    @classmethod
    def of(cls, form: CodecForm) -> "Codec":
        """The codec that a setting names."""
        return cls(form.name, form.fraction)

    def encode(self, samples: Tensor, under: str = "") -> dict[str, Tensor]:
        """Encodes samples, float32 or float64 [n, b, C, H, W], finite.

        Returns:
            `values`. With int8 also `scales`, float32 [n, b]. With topk also `places`, int32
            [n, b, k]: the place of each of the `values`, [n, b, k], in the flattened sample. All
            names have the prefix `under`.
        """
        if self.name == "bf16":
            return {f"{under}values": samples.to(torch.bfloat16)}
        if self.name == "int8":
            scales = samples.flatten(2).abs().amax(2).float() / _STEPS
            # A sample of zeros, or of values too small for float32 to divide by, becomes zeros.
            divisors = torch.where(scales > 0, scales, inf)
            steps = samples / _for_each_sample(samples, divisors)
            values = steps.round_().clamp_(-_STEPS, _STEPS).to(torch.int8)
            return {f"{under}values": values, f"{under}scales": scales}
        if self.name == "topk":
            flat, count = samples.flatten(2), ceil(self.fraction * prod(samples.shape[2:]))
            places = flat.abs().topk(count, dim=2, sorted=False).indices.sort(2).values
            values, places = flat.gather(2, places).float(), places.to(torch.int32)
            return {f"{under}values": values, f"{under}places": places}
        return {f"{under}values": samples}

    def decode(
        self, parts: Mapping[str, Tensor], sample_shape: tuple[int, ...], under: str = ""
    ) -> Tensor:
        """Decodes the parts that `encode` returned for samples of shape (b, C, H, W).

        The sender may be broken or hostile, so every part is checked.

        Returns:
            [n, b, C, H, W]; float32, or float64 if `fp32` encoded that. Holds NaN if `parts` do.

        Raises:
            ValueError, KeyError: this codec does not write such parts.
        """
        values = parts[f"{under}values"]
        if self.name == "topk":
            return _spread(values, parts[f"{under}places"], sample_shape)
        if self.name == "int8":
            scales = parts[f"{under}scales"]
            _check(values, sample_shape, torch.int8)
            if scales.shape != values.shape[:2] or scales.dtype != torch.float32:
                raise ValueError(f"scales {scales.dtype} {list(scales.shape)}")
            return values.float() * _for_each_sample(values, scales)
        if self.name == "bf16":
            _check(values, sample_shape, torch.bfloat16)
            return values.float()
        _check(values, sample_shape, torch.float32, torch.float64)
        return values


FP32 = Codec()


def _for_each_sample(samples: Tensor, values: Tensor) -> Tensor:
    """Reshapes one value for each sample, [n, b], so that it broadcasts over [n, b, …]."""
    return values.reshape(*values.shape, *(1 for _ in samples.shape[2:]))


def _spread(values: Tensor, places: Tensor, sample_shape: tuple[int, ...]) -> Tensor:
    size = prod(sample_shape[1:])
    fits = values.dim() == 3 and values.shape[1] == sample_shape[0] and places.shape == values.shape
    if not fits or values.dtype != torch.float32 or places.dtype != torch.int32:
        raise ValueError(f"values {values.dtype} {list(values.shape)}, places {list(places.shape)}")
    if places.numel() and not 0 <= int(places.min()) <= int(places.max()) < size:
        raise ValueError(f"a place outside of 0..{size - 1}")
    samples = values.new_zeros((*values.shape[:2], size)).scatter_(2, places.long(), values)
    return samples.view(-1, *sample_shape)


def _check(values: Tensor, sample_shape: tuple[int, ...], *dtypes: torch.dtype) -> None:
    if values.dim() != 1 + len(sample_shape) or values.shape[1:] != sample_shape:
        raise ValueError(f"shape {list(values.shape[1:])}, not {list(sample_shape)}")
    if values.dtype not in dtypes:
        raise ValueError(f"{values.dtype}, not {dtypes[0]}")
