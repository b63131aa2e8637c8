"""Drafts a site's map from its columns, spellings and units to a schema's: `mdgan schema map`."""

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
_SYNONYMS = (
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
"""Words of one meaning in several languages: names of columns, then values."""
_MEANINGS = {word: words.split()[0] for words in _SYNONYMS for word in words.split()}
_FACTORS = {
    "lb to kg": 0.45359237,
    "in to cm": 2.54,
    "m to cm": 100.0,
    "mg/dL to mmol/L of glucose": 0.0555,
    "mg/dL to µmol/L of creatinine": 88.42,
}
_MISSING_CODES = frozenset(["-9", "-99", "-999", "-9999", "999", "9999", "k.a.", "unknown"])

_Key = Callable[[str], str]


def draft_map(schema_path: Path, path: Path) -> SiteMap:
    """Pairs the columns of files with those of a schema; a pair that needs a look is `unsure`.

    Two columns pair if their names are equal, then if they are equal but for case and punctuation,
    then if they mean the same in another language, and last if the values fit that column alone.
    """
    schema = read_schema(schema_path)
    site = {facts.name: facts for facts in facts_of_table(path)[0]}
    free = {column.name: column for column in schema.columns}
    drafted = SiteMap(about=_ABOUT.format(schema_path.name), columns={}, unsure={})
    names = [name for name in site if name not in {*(schema.ignore or ()), schema.person}]
    keys: list[_Key | None] = [str, _folded, _meaning, None]
    for key in keys:
        pairs = {
            name: [column for column in free.values() if _can_be(site[name], column, key)]
            for name in names
            if name not in drafted.columns | drafted.unsure
        }
        claimed = Counter(column.name for fitting in pairs.values() for column in fitting)
        for name, fitting in pairs.items():
            if len(fitting) != 1 or claimed[fitting[0].name] > 1:
                continue
            mapped = _map_column(site[name], free.pop(fitting[0].name))
            if key not in (str, _folded):
                mapped.why = f"is it {mapped.name}?{'; ' if mapped.why else ''}{mapped.why}"
            (drafted.unsure if mapped.why else drafted.columns)[name] = mapped
    lacking = [*free, *([schema.person] if schema.person and schema.person not in site else [])]
    for name in names:
        if name not in drafted.columns | drafted.unsure:
            which = f'fill in "name" ({printable(", ".join(lacking), 200)}), or ' if lacking else ""
            why = f"which column is it? {which}leave it empty, and it is not read"
            drafted.unsure[name] = MappedColumn(name="", why=why)
    for name, mapped in list(drafted.columns.items()):
        if mapped == MappedColumn(name=name):  # both call it alike, so the map need not name it
            del drafted.columns[name]
    return drafted


def _folded(text: str) -> str:
    return re.sub(r"[\W_]+", "", normalize("NFC", text).casefold())


def _meaning(name: str) -> str:
    words = re.split(r"[\W\d_]+", normalize("NFC", name).casefold())
    return next((_MEANINGS[word] for word in words if word in _MEANINGS), _folded(name))


def _can_be(facts: ColumnFacts, column: AnyColumn, key: _Key | None) -> bool:
    """Whether both names have the same key; without a key, whether all values fit the column."""
    if key is None:
        return bool(facts.texts) and not _misfits(facts, column)
    return key(facts.name) == key(column.name)


def _misfits(facts: ColumnFacts, column: AnyColumn) -> list[str]:
    """The texts of a site's column that are no values of the schema's `column`."""
    if not isinstance(column, ScaledColumn):
        choices = {*column.choices}
        return [text for text in facts.texts if choices.isdisjoint({text, text.removesuffix(".0")})]
    misfits = list[str]()
    for text in (facts.as_numbers or facts).texts:
        try:
            column.read(text)
        except ValueError:
            misfits.append(text)
    return misfits


def _map_column(facts: ColumnFacts, column: AnyColumn) -> MappedColumn:
    """Maps a site's column to one of the schema; `why` has the questions that remain open."""
    mapped, questions = MappedColumn(name=column.name), list[str]()
    misfits = _misfits(facts, column)
    codes = [text for text in misfits if text.casefold() in _MISSING_CODES]
    strange = [text for text in misfits if text not in codes]
    if codes:
        mapped.missing = tuple(codes)
        questions.append(f"are {', '.join(codes)} missing values?")
    if isinstance(column, NumericColumn):
        _guess_unit(mapped, questions, facts, column, strange)
    if strange and not isinstance(column, ScaledColumn):
        keys = (_folded, _meaning)
        matches = {t: [_only_match(t, column.choices, key) for key in keys] for t in strange}
        mapped.values = {text: next(filter(None, each), "") for text, each in matches.items()}
        if not all(folded for folded, _ in matches.values()):
            empty_ones = ", and which are the empty ones" if "" in mapped.values.values() else ""
            shown = printable(", ".join(column.choices), 100)
            questions.append(f"are these spellings right{empty_ones} ({shown})?")
    mapped.why = "; ".join(questions)
    return mapped


def _only_match(text: str, choices: Sequence[str], key: _Key) -> str:
    """The one choice with the same key as a text; empty if there is none, or several."""
    matches = [choice for choice in choices if key(choice) == key(text)]
    return matches[0] if len(matches) == 1 else ""


def _guess_unit(
    mapped: MappedColumn,
    questions: list[str],
    facts: ColumnFacts,
    column: NumericColumn,
    strange: Sequence[str],
) -> None:
    """Adds the unit of a site's numbers, and the factor that may convert them to the schema's."""
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
        unit = f" in {printable(mapped.unit, 20)}" if mapped.unit else ""
        questions.append(
            f"its numbers{unit} seem to be in another unit: by which factor are they the schema's?"
        )
