"""Merges layers of settings: flags win over a file, a file over the defaults of a data set."""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mdgan.settings.declare import Setting


def merged(layers: Iterable[Mapping[str, Any]], declared: Iterable["Setting"]) -> dict[str, Any]:
    """Merges layers of settings; the first layer that names a setting wins.

    Of two settings that exclude each other (`instead_of`), an earlier layer's choice hides both of
    a later layer. In a setting with keys, the layers are merged key by key.

    Args:
        layers: from the strongest to the weakest; None is a value that the user did not give.
    """
    known = {item.name: item for item in declared}
    other = {n: item.instead_of for n, item in known.items() if item.instead_of is not None}
    other |= {second: first for first, second in other.items()}
    values: dict[str, Any] = {}
    for layer in layers:
        chosen_before = set(values)
        for name, value in layer.items():
            if value is None or other.get(name) in chosen_before:
                continue
            if name not in chosen_before:
                values[name] = value
            elif name in known and known[name].kind.is_keyed:
                values[name] = both(str(values[name]), str(value), known[name].kind.unused)
    return values


def parts_of(text: str) -> tuple[str, dict[str, str]]:
    """Reads `NAME:KEY=VALUE,KEY=VALUE`, in which the name or the keys may be missing.

    The values of a flag that is given several times are joined by commas, so the name may also
    stand between commas.
    """
    name, values = "", dict[str, str]()
    for part in text.split(",") if text else ():
        before, equals, value = (piece.strip() for piece in part.partition("="))
        new_name, _, key = before.rpartition(":") if equals else (before, "", "")
        name = new_name or name
        if equals or not before:
            values[key] = value
    return name, values


def joined(name: str, values: Mapping[str, object]) -> str:
    """Writes a name and keys as one text, which `parts_of` reads."""
    return ":".join(filter(None, (name, ",".join(f"{key}={v}" for key, v in values.items()))))


def both(strong: str, weak: str, unused: Callable[[str], Container[str]] = lambda _: ()) -> str:
    """Merges two such texts: `strong` wins, and keys of `weak` that its name does not use drop."""
    name, values = parts_of(strong)
    other_name, others = parts_of(weak)
    others = {key: value for key, value in others.items() if key not in unused(name)}
    return joined(name or other_name, {**others, **values})
