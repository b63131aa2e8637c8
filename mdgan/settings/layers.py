"""Layers of settings as one: flags before a file, a file before the defaults of a data set."""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mdgan.settings.declare import Setting


def merged(layers: Iterable[Mapping[str, Any]], declared: Iterable["Setting"]) -> dict[str, Any]:
    """Layers of settings as one; the first layer that names a setting wins.

    Two settings that stand for each other (`instead_of`) are one choice: an earlier layer's choice
    hides both of a later layer. Of a setting with keys each key is a choice of its own.

    Args:
        layers: from the strongest to the weakest; None stands for a value that was not given.
    """
    known = {item.name: item for item in declared}
    other = {n: item.instead_of for n, item in known.items() if item.instead_of is not None}
    other |= {second: first for first, second in other.items()}
    found: dict[str, Any] = {}
    for layer in layers:
        chosen_before = set(found)
        for name, value in layer.items():
            if value is None or other.get(name) in chosen_before:
                continue
            if name not in chosen_before:
                found[name] = value
            elif name in known and known[name].kind.is_keyed:
                found[name] = both(str(found[name]), str(value), known[name].kind.unused)
    return found


def parts_of(text: str) -> tuple[str, dict[str, str]]:
    """Reads `NAME:KEY=VALUE,KEY=VALUE`, in which the name or the keys may be missing.

    A flag that is given several times has commas between its values, so the name may also stand
    between commas.
    """
    name, values = "", dict[str, str]()
    for part in text.split(",") if text else ():
        before, equals, value = (piece.strip() for piece in part.partition("="))
        named, _, key = before.rpartition(":") if equals else (before, "", "")
        name = named or name
        if equals or not before:
            values[key] = value
    return name, values


def joined(name: str, values: Mapping[str, object]) -> str:
    """What `parts_of` reads."""
    return ":".join(filter(None, (name, ",".join(f"{key}={v}" for key, v in values.items()))))


def both(strong: str, weak: str, unused: Callable[[str], Container[str]] = lambda _: ()) -> str:
    """Two texts that `parts_of` reads as one; what the first says wins, also over unused keys."""
    name, values = parts_of(strong)
    other_name, others = parts_of(weak)
    others = {key: value for key, value in others.items() if key not in unused(name)}
    return joined(name or other_name, {**others, **values})
