"""The table of settings that cannot be combined: `--help-all` prints it, and refusals follow it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent
from typing import Any

from mdgan.errors import BadInput
from mdgan.settings.declare import Settings
from mdgan.spelling import flag, key, spelled

_ENTRY = re.compile(r"(!?)(\w+)(?:(!?=)(.+))?")


@dataclass(frozen=True)
class Condition:
    """Something that settings may say."""

    words: str  # what the table calls it: flags, mostly
    holds: Callable[[Any], bool]
    # The flags with the values that the user has given; `words` if not given.
    shown: Callable[[Any], str] | None = None

    def said_of(self, settings: Settings) -> str:
        """What a message calls it."""
        return self.words if self.shown is None else self.shown(settings)


@dataclass(frozen=True)
class Excludes:
    """One row: settings that cannot stand beside others.

    A column has entries with blanks between them: `name` stands for a setting that does not have
    its default, `!name` for one that has, `name=value` and `name!=value` for one with, or without,
    that value, and `one+other` for both. What these cannot say, a `Condition` does.
    """

    when: str | Condition  # any of these is there,
    what: str | Condition  # and any of these
    # What the user reads then after `WHAT:`. {when} becomes the flags with their values, and
    # {updates=async}, {clients} or {set quorum=0.5} other settings.
    text: str

    def check(self, settings: Settings) -> None:
        """Raises BadInput if settings stand beside each other that cannot."""
        for when in _conditions(self.when, type(settings)):
            for what in _conditions(self.what, type(settings)):
                if when.holds(settings) and what.holds(settings):
                    text = self.text.format_map(_Fields(when=when.said_of(settings)))
                    why, _, way_out = text.partition("; ")
                    raise BadInput(what.said_of(settings), why, way_out)

    def columns(self, kind: type[Settings]) -> tuple[str, str]:
        """`what` and `when` for people, as far as a component has such settings."""
        what, when = (
            ", ".join(condition.words for condition in _conditions(column, kind))
            for column in (self.what, self.when)
        )
        return spelled(what), spelled(when)


class _Fields(dict[str, str]):
    """What the fields of a text stand for; see `Excludes`."""

    def __missing__(self, entry: str) -> str:
        name, equals, value = entry.removeprefix("set ").partition("=")
        return (flag if entry.startswith(name) else key)(name, value if equals else None)


def table(text: str, **conditions: Condition) -> tuple[Excludes, ...]:
    """Rows `when | what | text`; a text may go on in indented lines.

    Args:
        text: the rows. A text that names no way out, after a semicolon, is put between "with WHEN"
            and "leave out one of the two".
        conditions: those that entries call `@name`.
    """
    rows = []
    for row in re.split(r"\n(?=\S)", dedent(text).strip()):
        when, what, said = (" ".join(column.split()) for column in row.split("|"))
        if ";" not in said and said.partition(" ")[0] not in ("is", "needs"):
            said = f"with {{when}} {said}; leave out one of the two"
        first, second = (conditions[c[1:]] if c[0] == "@" else c for c in (when, what))
        rows.append(Excludes(first, second, said))
    return tuple(rows)


def _conditions(column: str | Condition, kind: type[Settings]) -> tuple[Condition, ...]:
    """The entries of a column, of which a component has all settings."""
    if isinstance(column, Condition):
        return (column,)
    entries = [[_part(part, kind) for part in entry.split("+")] for entry in column.split()]
    return tuple(_all([part for part in parts if part]) for parts in entries if all(parts))


def _all(parts: list[Condition]) -> Condition:
    if len(parts) == 1:
        return parts[0]
    return Condition(
        " ".join(f"{part.words}" for part in parts),
        lambda settings: all(part.holds(settings) for part in parts),
        lambda settings: " ".join(f"{part.said_of(settings)}" for part in parts),
    )


def _part(entry: str, kind: type[Settings]) -> Condition | None:
    match = _ENTRY.fullmatch(entry)
    assert match is not None, entry
    is_absent, name, sign, value = match.groups()
    declared = kind.declared().get(name)
    if declared is None:
        return None
    default = declared.read(declared.default)

    def holds(settings: Settings) -> bool:
        found = settings.values()[name]
        if sign:
            return (str(found) == value) == (sign == "=")
        return bool(found == default) == bool(is_absent)

    def shown(settings: Settings) -> str:
        found = settings.values()[name]
        if isinstance(found, float):
            found = f"{found:.15g}"
        return declared.given(found)

    words = declared.spelled + (f" {value}" if sign == "=" else "")
    if is_absent or sign == "!=":
        words = f"no {declared.spelled}" + (f" {value}" if sign else "")
    return Condition(words, holds, shown)
