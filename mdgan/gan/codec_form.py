"""How users name the codecs of `codecs.py`; quickly, since it needs no torch."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mdgan.settings.declare import ValueKind, parsed, shortest, suggest
from mdgan.settings.layers import joined, parts_of

IMAGE_FORMS = "fp32, bf16, int8"
CODEC_FORMS = f"{IMAGE_FORMS}, topk:F"
MOST_TOPK = 0.5
"""The largest F of topk: beyond it, values and places take more than all values would."""
_FORM = re.compile(r"fp32|bf16|int8|topk:[0-9.eE+-]+")


@dataclass(frozen=True)
class CodecForm:
    """Which codec; with topk F in ]0, 0.5] as `fraction`, else 1."""

    name: str = "fp32"
    fraction: float = 1.0

    def __str__(self) -> str:
        return f"topk:{shortest(self.fraction)}" if self.name == "topk" else self.name

    @property
    def is_exact(self) -> bool:
        """Whether every bit arrives."""
        return self.name == "fp32"


def parse_codec(text: str, forms: str) -> CodecForm:
    """Reads a codec; raises ValueError if it is none of the forms, as `CODEC_FORMS` has them."""
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
    """How what an algorithm sends travels: images, feedback, models, of those that it has."""

    images: CodecForm = CodecForm()
    feedback: CodecForm = CodecForm()
    models: CodecForm = CodecForm()

    def __str__(self) -> str:
        """As the command line has it; `fp32` if every bit arrives."""
        return joined("", {k: v for k, v in vars(self).items() if not v.is_exact}) or "fp32"


def wire_kind(forms: Mapping[str, str]) -> ValueKind:
    """The kind of `--wire`, by what the algorithm sends: the codecs that each may have."""

    def parse(text: str) -> WireForm:
        head, given = parts_of(text)
        if head not in ("", "fp32"):
            raise ValueError(f"write {','.join(f'{what}=CODEC' for what in forms)}")
        found = {}
        for what, codec in given.items():
            if what not in forms:
                raise ValueError(f"must be of {', '.join(forms)}{suggest(what, forms)}")
            try:
                found[what] = parse_codec(codec, forms[what])
            except ValueError as error:
                raise ValueError(f"{what}: {error}") from error
        return WireForm(**found)

    return parsed(parse, several=True)
