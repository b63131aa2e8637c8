"""Drafts a schema from the rows of one site, for `mdgan schema draft` and for DataFrames."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from unicodedata import normalize

from msgspec import UNSET

from mdgan.errors import BadInput
from mdgan.inspect import dates
from mdgan.inspect.identifying import refuse_identifying, warn_of_combinations, words_of
from mdgan.inspect.number_drafts import draft_numbers, words_as_missing
from mdgan.inspect.table_facts import (
    FEW,
    MANY,
    ColumnFacts,
    LeftOut,
    facts_of_table,
    num_equal_rows,
    rows_in_words,
    warn_of_formulas,
)
from mdgan.samples.table import schema
from mdgan.samples.table.numbers import is_number
from mdgan.samples.table.schema import AnyColumn, Schema
from mdgan.samples.table.signs import strange_sign
from mdgan.samples.table.texts import shown

_YES_NO = (
    *(("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"), ("0", "1"), ("nein", "ja")),
    *(("non", "oui"), ("no", "si"), ("no", "sí"), ("nee", "ja"), ("nej", "ja")),
)
_PERSON_WORDS = frozenset(
    {"case", "mrn", "participant", "patient", "patienten", "person", "pid", "proband", "subject"}
)
_KEY_WORDS = frozenset({"guid", "id", "ids", "key", "ssn", "uuid"})
_NUMBER_WORDS = frozenset({"code", "no", "nr", "num", "number"})
_MARKUP = re.compile(r"</?\w+ ?/?>|&#?\w+;|^[\"'`´‘’“”]+|[\"'`´‘’“”]+$")
_UNNAMED = re.compile(r"Unnamed: \d+(_level_\d+)?")
_DIGITS_AND_SIGNS = re.compile(r"(?=.*\d)\d*\W[\d\W]*")
_OTHER_DIGITS = re.compile(r"(?=.*[^\D0-9])[\d\W]+")
_LONG_TEXT = 60  # characters; texts that are longer on average are prose


@dataclass
class Draft:
    """A schema with its number of rows, and what its author should look at."""

    schema: Schema
    num_rows: int
    # A line for each column of the file that the schema ignores, with the reason.
    left_out: list[str] = field(default_factory=list)
    # A line for each thing that reveals few rows, or that may be a mistake.
    warnings: list[str] = field(default_factory=list)


def draft_schema(path: Path, *, no_header: bool = False) -> Draft:
    """Drafts a schema from a file, or a folder of files.

    Args:
        no_header: whether the first line of files has values. Columns are then column_1, column_2…

    Raises:
        BadInput: all columns are left out, or the first line looks like the rows below it.
    """
    columns: list[AnyColumn] = []
    left_out: list[str] = []
    ignored: list[str] = []
    person, about_persons = "", list[str]()
    columns_by_remark: dict[str, list[str]] = {}
    facts, skipped = facts_of_table(path, no_header=no_header)
    if not no_header:
        _refuse_header(path, facts)
    for fact in facts:
        if not person and _is_person_column(fact):
            person = fact.name
            about_persons.append(
                f"{person}: {len(fact.texts):,} values in {rows_in_words(fact.num_values)}, so "
                "rows are not people: the draft names it as the person, whose rows are one unit of "
                'privacy and stay with one worker; take out "person" if it is something else'
            )
            continue
        try:
            column, remarks = _draft_column(fact)
            columns.append(column)
            for line in remarks:
                columns_by_remark.setdefault(line, []).append(fact.name)
        except LeftOut as why:
            left_out.append(f"{fact.name or 'the first column'}: {why}")
            ignored.append(fact.name)
    if not columns:
        way_out = "" if len(facts) > 1 else "part columns by , ; or tabs"
        raise BadInput(path, f"no column is left for a schema: {'; '.join(left_out)}", way_out)
    drafted = Schema(columns=tuple(columns), person=person or UNSET, ignore=tuple(ignored) or UNSET)
    for problem in schema.problems_of(drafted):  # such as too many columns
        raise BadInput(path, f"no schema can hold it: {problem}")
    num_rows = facts[0].num_values + facts[0].missing.total()
    warnings = [f"{', '.join(names)}: {line}" for line, names in columns_by_remark.items()]
    warnings += filter(None, map(warn_of_formulas, columns))
    if not person and (equal := num_equal_rows(path, drafted.names, no_header=no_header)):
        about_persons.append(
            f"{rows_in_words(equal)} equal others; with differential privacy equal rows count as "
            'one person: say "rows_are_independent": true if they are of different people'
        )
    about_persons += warn_of_combinations(path, columns, person, no_header=no_header)
    return Draft(drafted, num_rows, left_out, warnings=[*skipped, *about_persons, *warnings])


def _refuse_header(path: Path, facts: list[ColumnFacts]) -> None:
    """Refuses a first line that looks like the rows below it rather than like names of columns."""
    names = [fact.name for fact in facts]
    if path.suffix.lower() == ".parquet" or names == [str(n) for n in range(len(names))]:
        return  # the names that pandas gives to columns without names
    alike = unlike = 0
    for fact in facts:
        numbers, header = fact.as_numbers or fact, ColumnFacts("", path)
        header.add_texts(Counter([fact.name]))
        half = fact.num_values / 2
        if numbers.num_numbers + numbers.num_ends > half:
            is_value = is_number(fact.name)
        elif fact.num_moments > half:
            is_value = bool(header.num_moments)
        else:
            is_value = fact.name in fact.texts or fact.name in fact.missing
            if not is_value and len(fact.texts) > half:
                continue  # every row has a text of its own, so any first one would differ
        alike, unlike = alike + is_value, unlike + (not is_value)
    if alike > unlike:
        raise BadInput(
            path,
            f"its first line, {', '.join(map(shown, names[:5]))}, looks like the rows below it",
            "let the first line name the columns; or --no-header names them column_1, column_2, …",
        )


def _draft_column(facts: ColumnFacts) -> tuple[AnyColumn, list[str]]:
    if not facts.name or _UNNAMED.fullmatch(facts.name):
        raise LeftOut("has no name, like an index that a program has written out")
    refuse_identifying(facts)
    if not facts.num_values:
        raise LeftOut("has no value in any row")
    if len(facts.texts) == 1:
        why = f"says {shown(next(iter(facts.texts)))!r} in every row"
        raise LeftOut("; ".join([why, *words_as_missing(facts)]))
    if (column := _draft_yes_no(facts)) is not None:
        return column, words_as_missing(facts)
    if (column_dates := dates.read_numbers(facts)) is not None:
        return dates.draft_column(facts, column_dates)
    if facts.why_undecided:
        raise LeftOut(facts.why_undecided)
    numbers = facts.as_numbers or facts
    if numbers.num_numbers + numbers.num_ends == facts.num_values and not numbers.is_coded:
        number_column, remarks = draft_numbers(numbers)
        return number_column, [*remarks, *dates.warn_of_numbers(numbers)]
    if facts.num_moments == facts.num_values:
        return dates.draft_column(facts, dates.read_texts(facts))
    dates.refuse_incomplete(facts)
    return _draft_categories(facts)


def _is_person_column(facts: ColumnFacts) -> bool:
    """Whether a column says whose row each is: by its name, and since its values repeat."""
    words = set(words_of(facts.name))
    is_key = words & _PERSON_WORDS and words & (_KEY_WORDS | _NUMBER_WORDS)
    if not (is_key or (words and words <= _PERSON_WORDS | _KEY_WORDS)) or facts.missing:
        return False
    repeats = len(facts.texts) < facts.num_values and not facts.has_more_texts
    # A key with few values, each in many rows, names groups and not people.
    fewest = 2 if words & _PERSON_WORDS else max(FEW, facts.num_values / 50)
    return repeats and len(facts.texts) >= fewest


def _draft_yes_no(facts: ColumnFacts) -> schema.YesNoColumn | None:
    # Programs that have only floats for numbers with gaps write 1 as 1.0.
    texts = {text.removesuffix(".0") for text in facts.texts}
    for no, yes in _YES_NO:
        if {text.casefold() for text in texts} == {no, yes} and len(texts) == 2:
            spelt = {text.casefold(): text for text in texts}
            return schema.YesNoColumn(
                name=facts.name, may_be_missing=bool(facts.missing), no=spelt[no], yes=spelt[yes]
            )
    return None


def _draft_categories(facts: ColumnFacts) -> tuple[AnyColumn, list[str]]:
    num_rows, num_texts = facts.num_values, len(facts.texts)
    if facts.has_more_texts or num_texts > schema.MOST_CATEGORIES:
        raise LeftOut(
            f"has more than {schema.MOST_CATEGORIES:,} different texts: names, keys or prose"
        )
    other_script = [text for text in facts.texts if _OTHER_DIGITS.fullmatch(text)]
    if 2 * len(other_script) > num_texts:
        where = facts.locate_text(other_script[0])
        raise LeftOut(f"has digits of another script, such as {where}; write 0 to 9")
    numbers = facts.as_numbers or facts
    num_numbers = numbers.num_numbers + numbers.num_ends
    other_texts = ""
    if 2 * num_numbers >= num_rows and not numbers.is_coded:
        other_texts = ", ".join(map(facts.locate_text, numbers.other_texts))
    if num_texts > MANY and other_texts:
        count = rows_in_words(num_rows - num_numbers)
        raise LeftOut(
            f"has numbers, but in {count} others, such as {other_texts}; correct or empty those"
        )
    if num_texts > max(FEW, num_rows / 2):
        hint = ""
        if all(map(_DIGITS_AND_SIGNS.fullmatch, facts.texts)):
            example = facts.locate_text(next(iter(facts.texts)))
            hint = f"; {example} is no number or date that is known"
        raise LeftOut(f"has another text in nearly every row: names, keys or prose{hint}")
    if sum(map(len, facts.texts)) > _LONG_TEXT * num_texts:
        raise LeftOut("has long texts: prose")
    if strange := [text for text in facts.texts if not text.isprintable()]:
        where, sign = facts.locate_text(strange[0]), strange_sign(strange[0])
        raise LeftOut(f"has characters that cannot be printed, in {where}{sign}")
    if alike := schema.written_alike(sorted(facts.texts)):
        raise LeftOut(f"has {shown(alike)}, which would be written alike as CSV")
    column = schema.CategoryColumn(
        name=facts.name, may_be_missing=bool(facts.missing), categories=tuple(sorted(facts.texts))
    )
    remarks = [*_rare(facts), *_spellings(facts), *_markup(facts), *words_as_missing(facts)]
    if 2 * num_numbers > num_rows and other_texts:
        remarks.append(
            f"taken as categories, since besides numbers in {rows_in_words(num_numbers)} there are "
            f'{other_texts}; empty those, or list them as "missing", if it is a column of numbers'
        )
    return column, remarks


def _rare(facts: ColumnFacts) -> Iterable[str]:
    """Warns of categories of few rows."""
    rare = sorted(text for text, count in facts.texts.items() if count < FEW)
    if rare:
        examples = ", ".join(repr(shown(text)) for text in rare[:3])
        more = f" and {len(rare) - 3:,} more" if len(rare) > 3 else ""
        noun = "category" if len(rare) == 1 else "categories"
        yield (
            f"{noun} {examples}{more} with fewer than {FEW} rows; join rare ones, here and in the "
            "files, or write all that your protocol has"
        )


def _spellings(facts: ColumnFacts) -> Iterable[str]:
    """Warns of two categories that differ in case, spaces or markup alone."""
    text_by_folded: dict[str, str] = {}
    for text in facts.texts:
        folded = _MARKUP.sub(" ", normalize("NFKC", text).casefold())
        other = text_by_folded.setdefault(" ".join(folded.split()), text)
        if other != text:
            yield f"{shown(other)!r} and {shown(text)!r} may be the same category"
            return


def _markup(facts: ColumnFacts) -> Iterable[str]:
    """Warns of quotes and tags that programs have written into texts."""
    for text in (facts.name, *facts.texts):
        if mark := _MARKUP.search(text):
            yield f"{shown(text)!r} has {mark[0]!r} in it; take it out if it is not meant"
            return
