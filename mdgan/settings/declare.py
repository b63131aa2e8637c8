"""Declares settings, each with its type, bounds and help in one place, and reads their values."""

import json
import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Self, TypeVar, cast

from mdgan.errors import BadInput
from mdgan.settings.layers import merged
from mdgan.spelling import Mention, flag, key

if TYPE_CHECKING:
    from mdgan.settings.excludes import Excludes

GROUPS = {
    "data": "Data",
    "tables": "Tables",
    "algorithm": "Algorithm",
    "models": "Models and optimizers",
    "network": "Network and processes",
    "faults": "Faults and checkpoints",
    "privacy": "Privacy",
    "output": "Output and scores",
    "speed": "Speed",
}
"""The groups of settings in `--help`, and their headings."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # no file or machine has such a name
_OF_JSON = (bool, int, float, str, list, dict, type(None))


def suggest(name: str, known: Collection[str]) -> str:
    """`; did you mean 'x'?` with the settings of another program's name, or a similar name."""
    items = known.items() if isinstance(known, Mapping) else ()
    renamed = [key for key, item in items if flag(name) in getattr(item, "other_names", ())]
    small = {text.lower(): text for text in sorted(known)}
    near = renamed or [small[n] for n in get_close_matches(name.lower(), small, n=1, cutoff=0.5)]
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def shortest(number: float) -> str:
    """The shortest text for exactly this number, without an exponent: 3, 0.5, 0.00001."""
    return format(Decimal(repr(number)), "f").removesuffix(".0")


@dataclass(frozen=True)
class ValueKind:
    """The values that a setting may have; made by the functions below, such as `whole`."""

    type: type  # of the value in JSON and on the command line: bool, int, float or str
    # Converts such a value to the one that mdgan uses; ValueError with the rest of the message.
    convert: Callable[[Any], Any] = lambda value: value
    choices: tuple[str, ...] = ()  # the only allowed values, if they are few
    word: str | None = None  # a word that is allowed beside numbers, such as `auto`
    several: bool = False  # whether the flag may be given several times; commas join the values
    # Lists values for a shell to complete, from the other settings of the command line.
    known: Callable[[Mapping[str, Any]], Iterable[str]] | None = None
    # Whether the dataset file may add values, which are then known only once it is loaded.
    grows: bool = False
    # The value that checks of other settings use until this one is known, if not the default.
    stand_in: str | None = None
    is_keyed: bool = False  # whether it is text with keys, given one by one; see `parts_of`
    # From a name to the keys that the name does not use.
    unused: Callable[[str], Container[str]] = lambda _name: ()

    @property
    def type_in_words(self) -> str:
        """What a value must be, for refusals: `a whole number or auto`."""
        words = {bool: "true or false", int: "a whole number", float: "a number"}
        return words.get(self.type, "text") + (f" or {self.word}" if self.word else "")

    def read(self, value: object, default: object) -> Any:
        """Checks a value from a flag, a JSON file or other `Settings`, and converts it.

        Raises:
            ValueError: the setting may not have this value; the text is the reason.
        """
        if value is None and default is None:
            return None
        if self.choices and value not in self.choices:
            raise ValueError(f"must be one of {', '.join(self.choices)}")
        if self.word is not None and value == self.word:
            return value
        if self.type is float and type(value) is int:
            try:
                value = float(value)
            except OverflowError as error:
                raise ValueError("too large a number") from error
        if self.type is str and not isinstance(value, _OF_JSON):
            value = str(value)  # an already converted value
        if type(value) is not self.type:
            raise ValueError(f"must be {self.type_in_words}")
        if isinstance(value, str) and _CONTROL.search(value):
            raise ValueError("has control characters in it")
        return self.convert(value)


def whole(
    least: int | None = None,
    most: int | None = None,
    *,
    otherwise: str | None = None,
    below: str | None = None,
    word: str | None = None,
) -> ValueKind:
    """A whole number from `least` to `most`.

    Args:
        otherwise: the message for a number out of bounds; by default it names the bounds.
        below: the message for a number below `least`.
    """
    or_word = f", or {word}" if word else ""

    def check(value: int) -> int:
        if least is not None and value < least:
            raise ValueError(otherwise or below or f"must be at least {least}{or_word}")
        if most is not None and value > most:
            raise ValueError(otherwise or f"at most {most:,}")
        return value

    return ValueKind(int, check, word=word)


def number(fits: Callable[[float], bool], otherwise: str) -> ValueKind:
    """A number for which `fits`, which must expect NaN, is true; `otherwise` is the refusal."""

    def check(value: float) -> float:
        if not fits(value):
            raise ValueError(otherwise)
        return value

    return ValueKind(float, check)


def text(known: Callable[[Mapping[str, Any]], Iterable[str]] | None = None) -> ValueKind:
    """Any text of one line, such as a path; see `ValueKind.known`."""
    return ValueKind(str, known=known)


def switch() -> ValueKind:
    """On or off."""
    return ValueKind(bool)


def one_of(*choices: str) -> ValueKind:
    """One of a few words."""
    return ValueKind(str, choices=choices)


def parsed(parse: Callable[[str], Any], *, several: bool = False) -> ValueKind:
    """Text that `parse` converts to a value of another type, and `str` back to an equal text.

    Args:
        several: whether the flag may be given several times; `parse` gets values with commas.
    """
    return ValueKind(str, parse, several=several)


@dataclass(frozen=True)
class Setting:
    """One declared setting."""

    default: Any  # the value without flag, file or dataset default, as on the command line
    help: str
    kind: ValueKind
    name: str = ""  # the component's attribute and the key in files; the flag has - for _
    metavar: str | None = None  # the name of the value in `--help`
    symbol: str | None = None  # the papers' sign for the setting
    # The default in the words of `--help`, if the value itself says little.
    default_text: str | None = None
    # Another setting that means the same in another unit; users may give only one of them.
    instead_of: str | None = None
    # Whether it must be equal on every rank. A setting that is not shared has no effect on results,
    # or only on those of its rank.
    shared: bool = True
    # Whether an algorithm without this setting refuses even its default. If not, the algorithm
    # ignores the default, so that files of settings may have it.
    is_choice: bool = False
    group: str = ""  # one of `GROUPS`, where `--help` lists it; by default the component's
    # Flags of other programs for it: if a user types one, `mdgan` suggests this setting.
    other_names: Collection[str] = ()
    is_usual: bool = False  # whether `--help` shows it, not only `--help-all`
    has_flag: bool = True  # whether it has a flag; otherwise only `--set NAME=VALUE` and files

    @property
    def spelled(self) -> str:
        """The setting in the table of exclusions: its flag, or its name if it has none."""
        return str(flag(self.name)) if self.has_flag else self.name

    def given(self, value: object) -> Mention:
        """The setting with a value in a sentence: `--batch-size 10`, `--set quorum=0.5`."""
        return flag(self.name, value) if self.has_flag else key(self.name, value)

    def read(self, value: object) -> Any:
        """Checks a value and converts it to the one that mdgan uses; raises BadInput."""
        try:
            return self.kind.read(value, self.default)
        except ValueError as error:
            raise BadInput(self.given(self._shown(value)), error) from error

    def _shown(self, value: object) -> str:
        """A refused value as text; as JSON if it is of a wrong type."""
        if self.kind.type is float and type(value) is int and abs(value) < 1e300:
            return f"{value}.0"
        is_misfit = not self.kind.choices and type(value) is not self.kind.type
        as_json = is_misfit and isinstance(value, _OF_JSON)
        return json.dumps(value) if as_json else _CONTROL.sub(" ", str(value))


def setting(default: Any, help: str, kind: ValueKind, **more: Any) -> Any:
    """Declares one setting of a component; `more` are fields of `Setting`.

    The default `metavar` is the papers' sign, or N for a whole number.
    """
    sign = more.get("symbol") or ("N" if kind.type is int else None)
    return Setting(default, help, kind, **{"metavar": None if kind.choices else sign, **more})


own_setting = partial(setting, shared=False)  # declares a setting that may differ from rank to rank
key_setting = partial(setting, has_flag=False)  # declares one that only `--set` and files have
own_key_setting = partial(own_setting, has_flag=False)

S = TypeVar("S", bound="Settings")


@dataclass(frozen=True)
class Section(Generic[S]):
    """The settings of a part within those of a component; made by `section`."""

    kind: type[S]
    is_offered: bool


def section(kind: type[S], *, is_offered: bool = True) -> S:
    """Declares a section of settings; if it is not `is_offered` to users, it keeps its defaults."""
    return cast(S, Section(kind, is_offered))


class Settings:
    """Checked, immutable settings of a component; each component derives a class from it.

    A component declares its own settings by `setting`, and those of its parts by `section`. Names
    are unique across sections, so users, files and `--help` see one flat list of settings. A
    component names its group in `--help`: `class DataSettings(Settings, group="data")`.

    Args:
        values: by name, of this component and its sections; the others have their defaults.

    Raises:
        BadInput: a value cannot be used; the text names the flag and the way out.
        TypeError: there is no setting of that name.
    """

    ignores_foreign: ClassVar[bool] = False
    """Whether the component ignores settings of other algorithms instead of refusing them."""
    excludes: ClassVar[tuple["Excludes", ...]] = ()
    """The settings that cannot be combined: the component's rows, after those of its bases."""
    _parts: ClassVar[Mapping[str, "Setting | Section[Settings]"]] = {}
    _declared: ClassVar[dict[str, Setting]] = {}

    def __init_subclass__(cls, group: str = "algorithm") -> None:
        """Collects the settings and rows that the component declares or inherits."""
        parts: dict[str, Setting | Section[Settings]] = {}
        for base in reversed(cls.__bases__):
            parts |= getattr(base, "_parts", {})
        for name, item in vars(cls).items():
            if isinstance(item, Setting):
                parts[name] = replace(item, name=name, group=item.group or group)
            elif isinstance(item, Section):
                parts[name] = item
        cls._parts = parts
        cls._declared = {}
        for name, part in parts.items():
            if isinstance(part, Setting):
                cls._declared[name] = part
            elif part.is_offered:
                cls._declared |= part.kind._declared
        inherited = (row for base in cls.__bases__ for row in getattr(base, "excludes", ()))
        rows = (*inherited, *vars(cls).get("excludes", ()))
        cls.excludes = tuple(dict.fromkeys(rows))

    def __init__(self, **values: Any) -> None:
        for name, part in self._parts.items():
            if isinstance(part, Setting):
                self.__dict__[name] = part.read(values.pop(name, part.default))
            else:
                names = part.kind.names() & values.keys() if part.is_offered else ()
                self.__dict__[name] = part.kind(**{key: values.pop(key) for key in names})
        if values:
            raise TypeError(f"{type(self).__name__} has no setting {', '.join(values)}")
        for item in self._parts.values():
            if isinstance(item, Setting) and item.instead_of is not None:
                value, other = getattr(self, item.name), getattr(self, item.instead_of)
                if value is not None and other is not None:
                    both = f"{flag(item.name, value)} and {flag(item.instead_of, other)}"
                    raise BadInput(both, "give one of them")
        for row in self.excludes:
            row.check(self)
        self.check()

    def check(self) -> None:
        """Checks conditions on several settings together; components extend it."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name}: settings do not change; `but` makes others")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        declared, values = self.declared(), self.values()
        changed = {n: v for n, v in values.items() if v != declared[n].read(declared[n].default)}
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in changed.items())})"

    @classmethod
    def defaults_beside(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults, by name, that depend on the settings that the user has given."""
        del given
        return {}

    @classmethod
    def declared(cls) -> dict[str, Setting]:
        """All settings of a component and its sections, by name."""
        return dict(cls._declared)

    @classmethod
    def rows(cls) -> "list[tuple[Excludes, type[Settings]]]":
        """The table of exclusions of a component and its sections: each row with its component."""
        rows: list[tuple[Excludes, type[Settings]]] = [(row, cls) for row in cls.excludes]
        for part in cls._parts.values():
            if isinstance(part, Section) and part.is_offered:
                rows += part.kind.rows()
        return rows

    @classmethod
    def names(cls) -> set[str]:
        """The names of all settings of a component and its sections."""
        return set(cls.declared())

    @classmethod
    def read(cls, *layers: Mapping[str, Any]) -> Self:
        """Reads the component's settings from layers; the first layer that names a setting wins.

        Args:
            layers: flags, then the config file, then the defaults of the algorithm and the dataset.
                None is a value that the user did not give; names of no setting are ignored.
        """
        declared = cls.declared()
        return cls(**{n: v for n, v in merged(layers, declared.values()).items() if n in declared})

    def values(self) -> dict[str, Any]:
        """All settings by name, with those of sections."""
        values: dict[str, Any] = {}
        for name, part in self._parts.items():
            if isinstance(part, Setting):
                values[name] = getattr(self, name)
            elif part.is_offered:
                values |= getattr(self, name).values()
        return values

    def but(self, **changes: Any) -> Self:
        """A copy with some settings changed; raises what the class raises."""
        return type(self)(**{**self.values(), **changes})

    def as_json(self, *, shared: bool = False) -> dict[str, Any]:
        """The settings by name, or only the `shared` ones, as JSON values."""
        plain_values, values = dict[str, Any](), self.values()
        for name, item in self.declared().items():
            value = values[name]
            if item.shared or not shared:
                plain = value is None or isinstance(value, bool | int | float | str)
                plain_values[name] = value if plain else str(value)
        return plain_values
