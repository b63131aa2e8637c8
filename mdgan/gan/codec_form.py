"""The names of the codecs in `codecs.py`; this module imports fast, as it needs no torch."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mdgan.settings.declare import ValueKind, parsed, shortest, suggest
from mdgan.settings.layers import joined, parts_of

IMAGE_FORMS = "fp32, bf16, int8"
CODEC_FORMS = f"{IMAGE_FORMS}, topk:F"
MOST_TOPK = 0.5
"""The largest F of topk: above it, values and places take more bytes than all values would."""
_FORM = re.compile(r"fp32|bf16|int8|topk:[0-9.eE+-]+")


@dataclass(frozen=True)
class CodecForm:
    """The name of a codec, and its `fraction`: F in ]0, 0.5] of topk, 1 of other codecs."""

    name: str = "fp32"
    fraction: float = 1.0

    def __str__(self) -> str:
        return f"topk:{shortest(self.fraction)}" if self.name == "topk" else self.name

    @property
    def is_exact(self) -> bool:
        """Whether every bit arrives."""
        return self.name == "fp32"


def parse_codec(text: str, forms: str) -> CodecForm:
    """Reads a codec; raises ValueError if it is not among the forms, such as `CODEC_FORMS`."""
    name, _, fraction = text.partition(":")
    if not _FORM.fullmatch(text) or name not in forms.replace(":F", "").split(", "):
        raise ValueError(f"not one of {forms}")
    try:
        form = CodecForm(name, float(fraction or 1.0))
    except ValueError:
        form = CodecForm(name, 0.0)
    if fraction and not 0 < form.fraction <= MOST_TOPK:
        raise ValueError(f"F must be above 0 and at most {MOST_TOPK}")
    return form


@dataclass(frozen=True)
class WireForm:
    """The codecs of an algorithm's images, feedback and models."""

    images: CodecForm = CodecForm()
    feedback: CodecForm = CodecForm()
    models: CodecForm = CodecForm()

    def __str__(self) -> str:
        """The text of `--wire`; `fp32` if all codecs are exact."""
        return joined("", {k: v for k, v in vars(self).items() if not v.is_exact}) or "fp32"


def wire_kind(forms: Mapping[str, str]) -> ValueKind:
    """The kind of value of `--wire`; `forms`: for what the algorithm sends, the possible codecs."""

    def parse(text: str) -> WireForm:
        head, texts = parts_of(text)
        if head not in ("", "fp32"):
            raise ValueError(f"write {','.join(f'{name}=CODEC' for name in forms)}")
        codecs = {}
        for name, codec in texts.items():
            if name not in forms:
                raise ValueError(f"must be of {', '.join(forms)}{suggest(name, forms)}")
            try:
                codecs[name] = parse_codec(codec, forms[name])
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        return WireForm(**codecs)

    return parsed(parse, several=True)
