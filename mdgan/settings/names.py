"""The names that a setting may have as its value: mdgan's, and those that user code registers."""

import re
from typing import Any

from mdgan.errors import BadInput
from mdgan.settings.declare import ValueKind, suggest

_NAME = re.compile(r"[a-z][a-z0-9.-]*")


class Names:
    """The names of one kind of thing, such as losses or optimizers.

    Args:
        own: the names that come with mdgan.
        prefix: a text that may stand before a name in a setting.

    Attributes:
        registered: name → the user's object. A later object of the same name replaces it, as when
            a notebook's cell runs again.
    """

    def __init__(self, kind: str, *own: str, prefix: str = "") -> None:
        self.registered: dict[str, Any] = {}
        self.kind = kind
        self._own = own
        self._prefix = prefix

    @property
    def all(self) -> tuple[str, ...]:
        """Mdgan's names, then the registered ones."""
        return (*self._own, *self.registered)

    def add(self, name: str, thing: object) -> None:
        """Registers an object of the user's under a name."""
        if name in self._own:
            raise BadInput(f"{self.kind} {name!r}", "comes with mdgan", "register another name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadInput(f"{self.kind} {name!r:.80}", "a name has small letters, digits, - and .")
        self.registered[name] = thing

    def setting(self, stand_in: str | None = None) -> ValueKind:
        """The kind of value for a setting whose value is one of these names."""

        def names() -> list[str]:
            return [*self.all, *(self._prefix + name for name in self.all if self._prefix)]

        def read(text: str) -> str:
            known = names()
            if text not in known:
                or_prefix = f" or {self._prefix}NAME" if self._prefix else ""
                raise ValueError(
                    f"must be one of {', '.join(self.all)}{or_prefix}{suggest(text, known)}"
                )
            return text

        return ValueKind(str, read, known=lambda _others: names(), grows=True, stand_in=stand_in)
