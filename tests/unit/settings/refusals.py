"""Messages about settings that cannot be used."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.settings.declare import Settings

WRONG_TYPES: list[Any] = [[], {}, True, 0.5, 7, "text"]
"""One value of each type that JSON knows."""


def refused(read: Callable[[], object]) -> str:
    """The one line that the user is told."""
    with pytest.raises(BadInput) as caught:
        read()
    text = str(caught.value)
    assert len(text.splitlines()) == 1, text
    return text


def refusal(kind: type[Settings], values: Mapping[str, Any]) -> str:
    """The one line that the user is told of settings."""
    return refused(lambda: kind(**values))


def refusal_of(values: Mapping[str, Any]) -> str:
    """The one line that the user of the command line is told, once the dataset file is loaded."""
    return refused(lambda: registry.read_settings([values], {}))


def starts(kind: type[Settings], name: str, value: object) -> tuple[str, ...]:
    """How a refusal of a value may begin: with the value as it is, or as JSON."""
    declared = kind.declared()[name]
    return declared.given(str(value)), declared.given(json.dumps(value, default=str))


def misfits(kind: type[Settings], value: object) -> list[str]:
    """The names of the settings that are of another type than a value."""
    types = {name: item.kind for name, item in kind.declared().items()}
    is_whole = type(value) is int
    names = [
        name
        for name, declared in types.items()
        if type(value) is not declared.type and not (is_whole and declared.type is float)
    ]
    assert names
    return names
