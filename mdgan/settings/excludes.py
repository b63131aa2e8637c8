"""The table of settings that cannot be combined: `--help-all` prints it, `Settings` checks it."""

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
    """A condition on the values of settings, and how the table and messages name it."""

    words: str  # its name in the table: mostly flags
    holds: Callable[[Any], bool]
    # Its name in a message, with the user's values; `words` if None.
    shown: Callable[[Any], str] | None = None

    def said_of(self, settings: Settings) -> str:
        """The condition's name in a message about some settings."""
        return self.words if self.shown is None else self.shown(settings)


@dataclass(frozen=True)
class Excludes:
    """One row of the table: settings that cannot be combined with others.

    A column has entries with blanks between them. `name` means that a setting does not have its
    default, `!name` that it has, `name=value` and `name!=value` that it has or has not this value,
    and `one+other` that both entries hold. A `Condition` can say anything else.
    """

    when: str | Condition  # if any entry of this column holds,
    what: str | Condition  # and any entry of this one, the settings are refused
    # The refusal after `WHAT:`. In it {when} stands for the flags of `when` with their values, and
    # {updates=async}, {clients} or {set quorum=0.5} for other settings.
    text: str

    def check(self, settings: Settings) -> None:
        """Raises BadInput if the settings fulfil both columns."""
        for when in _conditions(self.when, type(settings)):
            for what in _conditions(self.what, type(settings)):
                if when.holds(settings) and what.holds(settings):
                    text = self.text.format_map(_Fields(when=when.said_of(settings)))
                    why, _, way_out = text.partition("; ")
                    raise BadInput(what.said_of(settings), why, way_out)

    def columns(self, kind: type[Settings]) -> tuple[str, str]:
        """The columns `what` and `when` as `--help-all` shows them for a component's settings."""
        what, when = (
            ", ".join(condition.words for condition in _conditions(column, kind))
            for column in (self.what, self.when)
        )
        return spelled(what), spelled(when)


class _Fields(dict[str, str]):
    """Replaces the fields in `Excludes.text` by flags."""

    def __missing__(self, entry: str) -> str:
        name, equals, value = entry.removeprefix("set ").partition("=")
        return (flag if entry.startswith(name) else key)(name, value if equals else None)


def table(text: str, **conditions: Condition) -> tuple[Excludes, ...]:
    """Reads rows of the form `when | what | text`; a row may go on in indented lines.

    Args:
        text: the rows. A row's text with a semicolon names the way out after it; a text without one
            is put between "with WHEN" and "leave out one of the two".
        conditions: the conditions that entries call `@name`.
    """
    rows = []
    for row in re.split(r"\n(?=\S)", dedent(text).strip()):
        when, what, refusal = (" ".join(column.split()) for column in row.split("|"))
        if ";" not in refusal and refusal.partition(" ")[0] not in ("is", "needs"):
            refusal = f"with {{when}} {refusal}; leave out one of the two"
        first, second = (conditions[c[1:]] if c[0] == "@" else c for c in (when, what))
        rows.append(Excludes(first, second, refusal))
    return tuple(rows)


def _conditions(column: str | Condition, kind: type[Settings]) -> tuple[Condition, ...]:
    """The entries of a column, without those that name a setting which a component lacks."""
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
        value_now = settings.values()[name]
        if sign:
            return (str(value_now) == value) == (sign == "=")
        return bool(value_now == default) == bool(is_absent)

    def shown(settings: Settings) -> str:
        value_now = settings.values()[name]
        if isinstance(value_now, float):
            value_now = f"{value_now:.15g}"
        return declared.given(value_now)

    words = declared.spelled + (f" {value}" if sign == "=" else "")
    if is_absent or sign == "!=":
        words = f"no {declared.spelled}" + (f" {value}" if sign else "")
    return Condition(words, holds, shown)
