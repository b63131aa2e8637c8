"""How tensors are encoded for sending, as a setting; `codecs.py` encodes them."""

import re
from dataclasses import dataclass

from mdgan.settings.declare import Kind, parsed, shortest

IMAGE_FORMS = "fp32, bf16, int8"
CODEC_FORMS = f"{IMAGE_FORMS}, topk:F"
MOST_TOPK = 0.5
"""The largest F of topk: beyond it, values and places take more than all values would."""
_FORM = re.compile(r"fp32|bf16|int8|topk:[0-9.eE+-]+")


@dataclass(frozen=True)
class CodecForm:
    """Which codec, with which number.

    Attributes:
        name: fp32, bf16, int8 or topk.
        fraction: F of topk, in ]0, 0.5]; 1 for the others.
    """

    name: str = "fp32"
    fraction: float = 1.0

    def __str__(self) -> str:
        """As the command line has it."""
        return f"topk:{shortest(self.fraction)}" if self.name == "topk" else self.name

    @property
    def is_exact(self) -> bool:
        """Whether every bit arrives."""
        return self.name == "fp32"


def codec_kind(forms: str) -> Kind:
    """The kind of a setting that names a codec.

    Args:
        forms: `IMAGE_FORMS` or `CODEC_FORMS`, those that are allowed.
    """

    def parse(text: str) -> CodecForm:
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

    return parsed(parse)
