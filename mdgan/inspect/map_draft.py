"""Drafts a site's map: which of its columns, spellings and units are which of a schema."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from unicodedata import normalize

from msgspec import UNSET

from mdgan.errors import printable
from mdgan.inspect.table_facts import ColumnFacts, facts_of_table
from mdgan.samples.table.columns import NumericColumn, ScaledColumn
from mdgan.samples.table.numbers import parse_numbers
from mdgan.samples.table.schema import AnyColumn, read_schema
from mdgan.samples.table.site_map import MappedColumn, SiteMap

_ABOUT = (
    "What this site calls the columns, values and units of {}. It stays here. Move entries of "
    '"unsure" to "columns" once they are right, and remove the others: until then it is refused.'
)
_WORDS = (
    "age alter edad età âge leeftijd",
    "sex gender geschlecht sexe sexo sesso geslacht",
    "weight gewicht poids peso körpergewicht",
    "height grösse größe körpergröße taille talla altezza lengte",
    "birth dob birthdate geburtsdatum naissance nacimiento nascita",
    "diagnosis diagnose diagnostic diagnóstico diagnosi",
    "smoker raucher fumeur fumador fumatore roker",
    "pulse puls pouls pulso polso",
    "female f w weiblich femme féminin mujer femenino femmina frau vrouw",
    "male m männlich homme masculin hombre masculino maschio mann man",
    "yes y ja j oui o si sí s 1 true",
    "no n nein non nee nej 0 false",
)
"""What names of columns, and then values, mean in several languages."""
_MEANINGS = {word: words.split()[0] for words in _WORDS for word in words.split()}
_FACTORS = {
    "lb to kg": 0.45359237,
    "in to cm": 2.54,
    "m to cm": 100.0,
    "mg/dL to mmol/L of glucose": 0.0555,
    "mg/dL to µmol/L of creatinine": 88.42,
}
_NO_VALUES = frozenset(["-9", "-99", "-999", "-9999", "999", "9999", "k.a.", "unknown"])

Key = Callable[[str], str]


def draft_map(schema_path: Path, path: Path) -> SiteMap:
    """Pairs the columns of files with those of a schema; what is not sure is named as such.

    Names are equal but for case and punctuation, or mean the same in another language; where they
    are not, values fit one column alone.
    """
    schema = read_schema(schema_path)
    site = {fact.name: fact for fact in facts_of_table(path)[0]}
    left = {column.name: column for column in schema.columns}
    found = SiteMap(about=_ABOUT.format(schema_path.name), columns={}, unsure={})
    names = [name for name in site if name not in {*(schema.ignore or ()), schema.person}]
    keys: list[Key | None] = [str, _folded, _meaning, None]
    for key in keys:
        pairs = {
            name: [column for column in left.values() if _may_be(site[name], column, key)]
            for name in names
            if name not in found.columns | found.unsure
        }
        claimed = Counter(column.name for twins in pairs.values() for column in twins)
        for name, twins in pairs.items():
            if len(twins) != 1 or claimed[twins[0].name] > 1:
                continue
            mapped = _mapped(site[name], left.pop(twins[0].name))
            if key not in (str, _folded):
                mapped.why = f"is it {mapped.name}?{'; ' if mapped.why else ''}{mapped.why}"
            (found.unsure if mapped.why else found.columns)[name] = mapped
    lacks = [*left, *([schema.person] if schema.person and schema.person not in site else [])]
    for name in names:
        if name not in found.columns | found.unsure:
            which = f'fill in "name" ({printable(", ".join(lacks), 200)}), or ' if lacks else ""
            why = f"which column is it? {which}leave it empty, and it is not read"
            found.unsure[name] = MappedColumn(name="", why=why)
    for name, mapped in list(found.columns.items()):
        if mapped == MappedColumn(name=name):  # nothing has to be said of it
            del found.columns[name]
    return found


def _folded(text: str) -> str:
    return re.sub(r"[\W_]+", "", normalize("NFC", text).casefold())


def _meaning(name: str) -> str:
    words = re.split(r"[\W\d_]+", normalize("NFC", name).casefold())
    return next((_MEANINGS[word] for word in words if word in _MEANINGS), _folded(name))


def _may_be(facts: ColumnFacts, column: AnyColumn, key: Key | None) -> bool:
    """Whether names are alike by a key; without one, whether all values fit."""
    if key is None:
        return bool(facts.texts) and not _misfits(facts, column)
    return key(facts.name) == key(column.name)


def _misfits(facts: ColumnFacts, column: AnyColumn) -> list[str]:
    """The texts of a site's column that are no values of one of the schema."""
    if not isinstance(column, ScaledColumn):
        choices = {*column.choices}
        return [text for text in facts.texts if choices.isdisjoint({text, text.removesuffix(".0")})]
    found = list[str]()
    for text in (facts.as_numbers or facts).texts:
        try:
            column.read(text)
        except ValueError:
            found.append(text)
    return found


def _mapped(facts: ColumnFacts, column: AnyColumn) -> MappedColumn:
    """What a site's column is; `why` says what is not sure of it."""
    mapped, whys = MappedColumn(name=column.name), list[str]()
    misfits = _misfits(facts, column)
    codes = [text for text in misfits if text.casefold() in _NO_VALUES]
    strange = [text for text in misfits if text not in codes]
    if codes:
        mapped.missing = tuple(codes)
        whys.append(f"are {', '.join(codes)} missing values?")
    if isinstance(column, NumericColumn):
        _add_unit(mapped, whys, facts, column, strange)
    if strange and not isinstance(column, ScaledColumn):
        keys = (_folded, _meaning)
        by_key = {text: [_alike(text, column.choices, key) for key in keys] for text in strange}
        mapped.values = {text: next(filter(None, each), "") for text, each in by_key.items()}
        if not all(sure for sure, _ in by_key.values()):
            lacks = ", and which are the empty ones" if "" in mapped.values.values() else ""
            shown = printable(", ".join(column.choices), 100)
            whys.append(f"are these spellings right{lacks} ({shown})?")
    mapped.why = "; ".join(whys)
    return mapped


def _alike(text: str, choices: Sequence[str], key: Key) -> str:
    """The one choice that is a text by a key; empty if there is none, or several."""
    found = [choice for choice in choices if key(choice) == key(text)]
    return found[0] if len(found) == 1 else ""


def _add_unit(
    mapped: MappedColumn,
    whys: list[str],
    facts: ColumnFacts,
    column: NumericColumn,
    strange: Sequence[str],
) -> None:
    """Adds in which unit a site's numbers are, and by which factor they may be the schema's."""
    numbers = facts.as_numbers or facts
    units = {writing.unit for writing in numbers.writings.values()} - {column.unit}
    mapped.unit = units.pop() if len(units) == 1 else ""
    values = parse_numbers(numbers.texts.keys() - {*mapped.missing})
    low, high = column.bounds
    fitting = {
        name: factor
        for name, factor in _FACTORS.items()
        if name.startswith(f"{mapped.unit} ".lstrip())
        and all(low <= factor * value <= high for value in values)
    }
    is_most = 2 * len(parse_numbers(strange)) >= len(facts.texts) > 0
    if mapped.unit or (is_most and fitting):
        mapped.factor = fitting.popitem()[1] if len(fitting) == 1 else UNSET
        of = f" in {printable(mapped.unit, 20)}" if mapped.unit else ""
        whys.append(
            f"its numbers{of} seem to be in another unit: by which factor are they the schema's?"
        )
