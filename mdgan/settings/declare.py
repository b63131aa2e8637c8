"""How a setting is declared: its type, its bounds and what `--help` says of it, in one place."""

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
    """`; did you mean 'x'?` for settings that others call so, else the nearest name, if any is."""
    items = known.items() if isinstance(known, Mapping) else ()
    meant = [key for key, item in items if flag(name) in getattr(item, "other_names", ())]
    near = meant or get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def shortest(number: float) -> str:
    """The shortest text that means exactly this number, without an exponent: 3, 0.5, 0.00001."""
    return format(Decimal(repr(number)), "f").removesuffix(".0")


@dataclass(frozen=True)
class ValueKind:
    """What values a setting may have. Made by the functions below, such as `whole`."""

    type: type  # of the value as JSON and the command line have it: bool, int, float or str
    # From such a value to the one that is used; or ValueError with the message's rest.
    convert: Callable[[Any], Any] = lambda value: value
    choices: tuple[str, ...] = ()  # the only values allowed, if there are few
    word: str | None = None  # a word that is allowed beside numbers, such as `auto`
    # Whether the flag may be given several times; commas then stand between the values.
    several: bool = False
    # Lists what a shell may complete, given the other settings of the command line.
    known: Callable[[Mapping[str, Any]], Iterable[str]] | None = None
    # Whether the dataset file may add values, so that others can be known after it alone.
    grows: bool = False
    # What other settings are checked with until a value is known, if not the default.
    stand_in: str | None = None
    # Whether it is text of keys, each of which can be given alone; see `parts_of`.
    is_keyed: bool = False
    # Those keys that a name has no use for.
    unused: Callable[[str], Container[str]] = lambda _name: ()

    def read(self, value: object, default: object) -> Any:
        """Checks a value from a flag, a JSON file or other `Settings`; returns the one to use.

        Raises:
            ValueError: it cannot be used; the text says why.
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
            value = str(value)  # a value that was converted before
        if type(value) is not self.type:
            raise ValueError(f"must be {self.type.__name__}")
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
    """A whole number.

    Args:
        otherwise: the message for a number outside; made of the bounds if not given.
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
    """A number; `fits` says whether one is allowed, NaN too, `otherwise` is the refusal."""

    def check(value: float) -> float:
        if not fits(value):
            raise ValueError(otherwise)
        return value

    return ValueKind(float, check)


def text(known: Callable[[Mapping[str, Any]], Iterable[str]] | None = None) -> ValueKind:
    """Any text in one line, such as a path; `known` is as in `ValueKind`."""
    return ValueKind(str, known=known)


def switch() -> ValueKind:
    """On or off."""
    return ValueKind(bool)


def one_of(*choices: str) -> ValueKind:
    """One of a few words."""
    return ValueKind(str, choices=choices)


def parsed(parse: Callable[[str], Any], *, several: bool = False) -> ValueKind:
    """Text that stands for a value of another type, of which `str` gives a text of equal meaning.

    Args:
        several: whether the flag may be given several times; `parse` gets commas between them.
    """
    return ValueKind(str, parse, several=several)


@dataclass(frozen=True)
class Setting:
    """One declared setting."""

    default: Any  # the value without flag, file or dataset default, as the command line has it
    help: str
    kind: ValueKind
    name: str = ""  # the component's attribute, the key in files; the flag has - for _
    metavar: str | None = None  # stands for the value in `--help`
    symbol: str | None = None  # the papers' sign for it
    # What `--help` shows as the default where the value itself says little.
    default_text: str | None = None
    # Another setting that says the same in another unit; only one can be given.
    instead_of: str | None = None
    # Whether it must be equal on every rank. A setting that is not shared has no effect on results,
    # or only on those of its rank.
    shared: bool = True
    # Whether naming its default is a choice too, which an algorithm without this setting refuses.
    # Otherwise it passes over the default: files of settings may have it.
    is_choice: bool = False
    group: str = ""  # where `--help` lists it, one of `GROUPS`; that of the component if not given
    # That users of other programs may type; `mdgan` then suggests this one.
    other_names: Collection[str] = ()
    is_usual: bool = False  # whether `--help` shows it, and not `--help-all` alone
    # Whether it has one of its own; if not, `--set NAME=VALUE` and files have it.
    has_flag: bool = True

    @property
    def spelled(self) -> str:
        """What the table of exclusions calls it: its flag, or its name if it has none."""
        return str(flag(self.name)) if self.has_flag else self.name

    def given(self, value: object) -> Mention:
        """The setting with a value, in a sentence: `--batch-size 10`, `--set quorum=0.5`."""
        return flag(self.name, value) if self.has_flag else key(self.name, value)

    def read(self, value: object) -> Any:
        """Checks a value, and turns it into the one that is used; raises BadInput."""
        try:
            return self.kind.read(value, self.default)
        except ValueError as error:
            raise BadInput(self.given(self._shown(value)), error) from error

    def _shown(self, value: object) -> str:
        """A value that is refused; as JSON if it is of a wrong type."""
        if self.kind.type is float and type(value) is int and abs(value) < 1e300:
            return f"{value}.0"
        is_misfit = not self.kind.choices and type(value) is not self.kind.type
        as_json = is_misfit and isinstance(value, _OF_JSON)
        return json.dumps(value) if as_json else _CONTROL.sub(" ", str(value))


def setting(default: Any, help: str, kind: ValueKind, **more: Any) -> Any:
    """Declares one setting of a component; `Setting` says what else can be given.

    Without a `metavar` the papers' sign stands for the value, and N for a number.
    """
    sign = more.get("symbol") or ("N" if kind.type is int else None)
    return Setting(default, help, kind, **{"metavar": None if kind.choices else sign, **more})


own_setting = partial(setting, shared=False)  # declares a setting that may differ from rank to rank
key_setting = partial(setting, has_flag=False)  # declares one that `--set` and files alone have
own_key_setting = partial(own_setting, has_flag=False)

S = TypeVar("S", bound="Settings")


@dataclass(frozen=True)
class Section(Generic[S]):
    """Settings of a component within those of a larger one; made by `section`."""

    kind: type[S]
    is_offered: bool


def section(kind: type[S], *, is_offered: bool = True) -> S:
    """Declares a section of settings; unless `is_offered` to users, it has its defaults."""
    return cast(S, Section(kind, is_offered))


class Settings:
    """Checked settings that cannot be changed. Components derive from it.

    A component declares its own settings by `setting`, and those of its parts by `section`. Names
    are unique, so that a user need not know sections: they are given, listed and written as if all
    settings were one level. A component names their group in `--help`:
    `class DataSettings(Settings, group="data")`.

    Args:
        values: by name, of this component and its sections; the others have their defaults.

    Raises:
        BadInput: a value cannot be used; the text names the flag and the way out.
        TypeError: there is no setting of that name.
    """

    ignores_foreign: ClassVar[bool] = False
    """Whether settings of other algorithms are passed over instead of refused."""
    excludes: ClassVar[tuple["Excludes", ...]] = ()
    """What cannot be combined; a component's rows are added to those of the component above it."""
    _parts: ClassVar[Mapping[str, "Setting | Section[Settings]"]] = {}
    _declared: ClassVar[dict[str, Setting]] = {}

    def __init_subclass__(cls, group: str = "algorithm") -> None:
        """Collects what the component declares, and what it takes over from those above it."""
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
        above = (getattr(base, "excludes", ()) for base in cls.__bases__)
        rows = (*(row for own in above for row in own), *vars(cls).get("excludes", ()))
        cls.excludes = tuple(dict.fromkeys(rows))

    def __init__(self, **values: Any) -> None:
        for name, part in self._parts.items():
            if isinstance(part, Setting):
                self.__dict__[name] = part.read(values.pop(name, part.default))
            else:
                own = part.kind.names() & values.keys() if part.is_offered else ()
                self.__dict__[name] = part.kind(**{each: values.pop(each) for each in own})
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
        """Checks what several settings must fulfil together; components extend it."""

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
        """Defaults that hold because of what the user gave, by name."""
        del given
        return {}

    @classmethod
    def declared(cls) -> dict[str, Setting]:
        """All settings of a component and its sections, by name."""
        return dict(cls._declared)

    @classmethod
    def rows(cls) -> "list[tuple[Excludes, type[Settings]]]":
        """What cannot be combined in a component and its sections: rows, and whose they are."""
        found: list[tuple[Excludes, type[Settings]]] = [(row, cls) for row in cls.excludes]
        for part in cls._parts.values():
            if isinstance(part, Section) and part.is_offered:
                found += part.kind.rows()
        return found

    @classmethod
    def names(cls) -> set[str]:
        """The names of all settings of a component and its sections."""
        return set(cls.declared())

    @classmethod
    def read(cls, *layers: Mapping[str, Any]) -> Self:
        """Reads the component's settings out of layers; the first that names a setting wins.

        Args:
            layers: flags, then the config file, then the defaults of the algorithm and the dataset.
                None stands for a value that was not given; other names are passed over.
        """
        declared = cls.declared()
        return cls(**{n: v for n, v in merged(layers, declared.values()).items() if n in declared})

    def values(self) -> dict[str, Any]:
        """All settings, those of sections among them, by name."""
        found: dict[str, Any] = {}
        for name, part in self._parts.items():
            if isinstance(part, Setting):
                found[name] = getattr(self, name)
            elif part.is_offered:
                found |= getattr(self, name).values()
        return found

    def but(self, **changes: Any) -> Self:
        """The same settings, but for some; raises what making settings does."""
        return type(self)(**{**self.values(), **changes})

    def as_json(self, *, shared: bool = False) -> dict[str, Any]:
        """The settings, or the `shared` ones alone, as values that JSON knows, by name."""
        found, values = dict[str, Any](), self.values()
        for name, item in self.declared().items():
            value = values[name]
            if item.shared or not shared:
                plain = value is None or isinstance(value, bool | int | float | str)
                found[name] = value if plain else str(value)
        return found
