"""How one setting is declared, spelt, typed and checked; `config.py` declares them all."""

import json
import re
from collections.abc import Collection
from dataclasses import Field, field, fields
from difflib import get_close_matches
from typing import Any

from mdgan.errors import BadInput

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""And halves of characters: no file or machine is called so."""


def setting(
    default: Any,
    help: str,
    *,
    metavar: str | None = None,
    choices: tuple[str, ...] = (),
    symbol: str | None = None,
    default_text: str | None = None,
) -> Any:
    """Declares one field of a configuration together with what the command line says of it.

    Args:
        default: the value without flag, file or dataset default.
        help: one sentence for `--help`.
        metavar: how the value is written in `--help`.
        choices: the only values allowed, if there are few.
        symbol: the papers' sign for it.
        default_text: what `--help` shows as the default where the value itself says little.

    Returns:
        A dataclass field.
    """
    metadata = {
        "help": help,
        "metavar": metavar,
        "choices": choices,
        "symbol": symbol,
        "default_text": default_text,
    }
    return field(default=default, metadata=metadata)


def flag(name: str) -> str:
    """The command line's spelling of a field: `batch_size` → `--batch-size`."""
    return "--" + name.replace("_", "-")


def check_types(settings: Any) -> None:
    """Checks that every field has its declared type, since values may come from a JSON file.

    Raises:
        BadInput: a value of another type, or not one of the choices.
    """
    for item in fields(settings):
        value = getattr(settings, item.name)
        choices = item.metadata["choices"]
        if choices and value not in choices and (value is not None or item.default is not None):
            raise BadInput(f"{flag(item.name)} {value}: must be one of {', '.join(choices)}")
        if isinstance(value, int) and not isinstance(value, bool) and float in kinds(item):
            try:
                object.__setattr__(settings, item.name, float(value))
            except OverflowError as error:
                raise BadInput(f"{flag(item.name)} {value}: too large a number") from error
        elif value in (None, "auto") and item.default == value:
            continue
        elif type(value) not in kinds(item):
            expected = " or ".join(kind.__name__ for kind in kinds(item))
            raise BadInput(f"{flag(item.name)} {json.dumps(value)}: must be {expected}")
        elif isinstance(value, str) and _CONTROL.search(value):
            shown = _CONTROL.sub(" ", value)
            raise BadInput(f"{flag(item.name)} {shown}: has control characters in it")


def kinds(item: Field[Any]) -> tuple[type, ...]:
    """The Python types that a field's value may have, None and "auto" aside."""
    text = str(item.type)
    return tuple(
        kind for kind in (bool, int, float, str) if re.search(rf"\b{kind.__name__}\b", text)
    )


def suggest(name: str, known: Collection[str]) -> str:
    """`; did you mean 'x'?` for the nearest known name, or nothing if none is near."""
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
