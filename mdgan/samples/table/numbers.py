"""How files write numbers: a grammar of ASCII digits, and the number format of a whole column.

The number format of a column says which sign stands before decimals, which between thousands, and
which unit follows. `NumberSurvey` finds the format that fits all texts of the column. Where two
formats fit and give different numbers, the schema has to decide.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

_PLAIN = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DIGITS_AND_SIGNS = str.maketrans("", "", "0123456789.+-eE\n")
_NO_THOUSANDS = re.compile(r"\.(?!\d{3}(?![\deE]))|(?<!\d)0\d*\.|(?<!\d)\.|\d{4}\.")
_ODD = re.compile(r"\.[0-9]*\.|\+ *$", re.MULTILINE)
_CODE = re.compile(r"[0-9]+[eE][0-9]+")
_FORMULA = re.compile(r"""="([^"]*)"|'([+-].*)""")
_LONGEST, _MOST_EXAMPLES, _MOST_OTHERS = 60, 64, 5

_UNIT = r"(?:[%‰°$€£¥]|[^\W\d_])[^\s<>=\"']{0,15}(?: [^\W\d_][^\s<>=\"']{0,9})?"
_NUMERAL = re.compile(
    r"(?P<end>[<>]=?|[≤≥])? ?"
    r"(?P<before>[$€£¥]|(?:EUR|USD|GBP|CHF|JPY)(?= ))? ?"
    r"(?P<body>[+-]?(?:[0-9](?:[0-9.,' ]*[0-9.])?|[.,][0-9]+))"
    rf"(?P<exponent>[eE][+-]?[0-9]+)?(?P<more>\+)?(?P<space> ?)(?P<unit>{_UNIT})?"
)
_SPACES = str.maketrans(dict.fromkeys("\u00a0\u202f\u2009", " ") | {"’": "'", "μ": "µ"})
_BESIDE_DIGITS = re.compile(
    r"[%‰°$€£¥].*|[fpnuµmcdk]?(?:g|l|L|m|s|mol|U|IU|eq|Hz|V|J|cal|Gy|Pa)(?:[²³23]|/.+)?"
    r"|mmHg|bpm|min|h|d|y|yrs?|w"
)
"""Units that may follow a number without a space. `12X` is a code, not a number in X."""
_DIGITS = re.compile(r"[0-9]+")


LineOf = Callable[[str], int]
"""Finds the line of a file in which a text of the column first stands."""


def parse_number(text: str) -> float:
    """Reads a number of digits, sign, decimal point and exponent; ValueError if it is none."""
    if _PLAIN.fullmatch(text) and isfinite(number := float(text)):
        return number
    raise ValueError("is no number")


def parse_numbers(texts: Iterable[str]) -> set[float]:
    """Reads the texts that are plain numbers, and skips all others."""
    numbers = (float(text) for text in texts if _PLAIN.fullmatch(text))
    return {number for number in numbers if isfinite(number)}


def parse_end(text: str, *, is_whole: bool) -> tuple[str, float]:
    """Reads the end of a scale, `<` `<=` `>` or `>=` and a number; ValueError if it is none.

    Args:
        is_whole: whether the column has only whole numbers, so that >=90 is returned as >89.
    """
    numeral = parse_numeral(text)
    if numeral is None or not numeral.end or numeral.unit:
        raise ValueError(f"{text!r:.40} is no end such as >89")
    sign, bound = numeral.end, parse_number(numeral.body + numeral.exponent)
    if is_whole and sign[1:] and bound.is_integer():
        return sign[0], bound - 1 if sign[0] == ">" else bound + 1
    return sign, bound


def number_text(text: str, commas: bool) -> str:
    """Replaces a decimal comma by a point, if the file may write `commas` before decimals."""
    has_comma = commas and text.count(",") == 1 and "." not in text
    return text.replace(",", ".") if has_comma else text


def without_formula(text: str) -> str:
    """Takes off what keeps spreadsheets from changing a text: `="00123"`, or `'` before a sign."""
    match = _FORMULA.fullmatch(text) if text[:1] in ("=", "'") else None
    return (match[1] or match[2] or "").strip() if match else text


def looks_like_identifier(text: str) -> bool:
    """Whether a number looks like an identifier: it begins with 0 (01234), or reads 12E4."""
    digits = text.lstrip("+-")
    return (digits[:1] == "0" and digits[1:2].isdigit()) or bool(_CODE.fullmatch(digits))


class Numeral(NamedTuple):
    """The parts of a number as a file writes it."""

    end: str  # `<`, `<=`, `>` or `>=` for the end of a scale; empty for a single number
    body: str  # digits, with the signs between them
    exponent: str
    unit: str


def parse_numeral(text: str) -> Numeral | None:
    """Splits a number in any format into its parts; None if the text is no number."""
    if len(text) > _LONGEST:
        return None
    match = _NUMERAL.fullmatch(text.translate(_SPACES))
    if match is None:
        return None
    end, before, body, exponent, more, space, unit = match.groups(default="")
    if exponent and not isfinite(float(f"1{exponent}") * 10.0 ** len(body)):
        return None
    if (before and unit) or (end and more):
        return None
    if unit and not space and not _BESIDE_DIGITS.fullmatch(unit):
        return None
    end = ">=" if more else {"≤": "<=", "≥": ">="}.get(end, end)
    return Numeral(end, body, exponent, unit or before)


@dataclass(frozen=True)
class NumberFormat:
    """How a column of a file writes numbers.

    Attributes:
        decimal: the sign before decimals, `.` or `,`.
        groups: the sign between thousands; empty for none.
        unit: the unit that follows every number, or precedes it; empty for none.
    """

    decimal: str = "."
    groups: str = ""
    unit: str = ""

    def plain(self, numeral: Numeral) -> str | None:
        """Writes a number with a decimal point, an end as `>89`; None if the format differs."""
        if not _BODIES[self.decimal, self.groups].fullmatch(numeral.body):
            return None
        if numeral.exponent and self.groups and self.groups in numeral.body:
            return None
        digits = numeral.body.replace(self.groups, "") if self.groups else numeral.body
        return f"{numeral.end}{digits.replace(self.decimal, '.')}{numeral.exponent}"

    def read(self, text: str) -> str:
        """Writes the number of a text plainly, as `plain` does; empty if format or unit differ."""
        if self == _USUAL and _PLAIN.fullmatch(text):
            return text
        numeral = parse_numeral(text)
        if numeral is None or numeral.unit != self.unit:
            return ""
        return self.plain(numeral) or ""

    def __str__(self) -> str:
        names = {".": "points", ",": "commas", " ": "spaces", "'": "apostrophes"}
        parts = [f"decimal {names[self.decimal]}"] if self.decimal == "," else []
        parts += [f"{names[self.groups]} between thousands"] if self.groups else []
        return " and ".join([*parts, *([f"the unit {self.unit}"] if self.unit else [])])


_USUAL = NumberFormat()
_FORMATS = [(".", ""), (",", ""), *((".", g) for g in ", '"), *((",", g) for g in ". '")]
_BODIES = {
    (d, g): re.compile(
        rf"[+-]?(?:(?:[0-9]+{f'|[1-9][0-9]{{0,2}}(?:[{g}][0-9]{{3}})+' if g else ''})"
        rf"(?:[{d}][0-9]*)?|[{d}][0-9]+)"
    )
    for d, g in _FORMATS
}


def is_number(text: str) -> bool:
    """Whether a text is a number in some format."""
    numeral = parse_numeral(text)
    return numeral is not None and any(NumberFormat(*signs).plain(numeral) for signs in _FORMATS)


class Undecided(ValueError):
    """Some text of a column could be two numbers; the message names neither file nor column.

    Attributes:
        line: the line of the file in which the first such text stands.
    """

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


@dataclass
class _Example:
    text: str
    line: int
    numeral: Numeral
    num_texts: int = 0  # how many different texts have the same end, unit and shape


_KINDS: dict[str, Callable[[str], object]] = {
    "decimals": _NO_THOUSANDS.search,
    "points": lambda text: "." in text,
    "whole": lambda text: "." not in text,
}
"""Kinds of plain text. Which of them a column has decides whether points may mark thousands."""


class NumberSurvey:
    """Collects all texts of a column of a file, in bounded memory, to find its number format.

    Attributes:
        others: the first texts that are no numbers, and the line of each.
    """

    def __init__(self) -> None:
        self._examples: dict[tuple[str, ...], _Example] = {}
        self.others: dict[str, int] = {}
        self._kinds = set[str]()
        self.is_plain = True

    def add_plain(self, texts: Sequence[str], line_of: LineOf = lambda _: 0) -> bool:
        """Adds different texts fast, if they have only digits, points, signs and spaces.

        Returns:
            Whether they have. Otherwise nothing is added, and the caller has to use `add`.
        """
        joined = "\n".join(texts)
        if " " in joined:
            joined = "\n".join(map(str.strip, texts))
        if joined.translate(_DIGITS_AND_SIGNS):
            return False
        points = joined.count(".")
        for kind, is_one in _KINDS.items():
            if kind in self._kinds or not (points < len(texts) if kind == "whole" else points):
                continue
            if (text := next(filter(is_one, texts), None)) is not None:
                self._kinds.add(kind)
                self._add_example(text, line_of)
        return True

    def add(self, texts: Sequence[str], line_of: LineOf) -> None:
        """Adds different texts, none of which stands for a missing value."""
        if self.is_plain and not _ODD.search("\n".join(texts)) and self.add_plain(texts, line_of):
            return
        self.is_plain = False
        for text in texts:
            self._add_example(text, line_of)

    def _add_example(self, raw_text: str, line_of: LineOf) -> None:
        text = without_formula(raw_text.strip())
        numeral = parse_numeral(text)
        kind = () if numeral is None else (numeral.end, numeral.unit, _shape(numeral.body))
        if numeral is None or (kind not in self._examples and len(self._examples) > _MOST_EXAMPLES):
            if len(self.others) < _MOST_OTHERS and text not in self.others:
                self.others[text] = line_of(raw_text)
            return
        if kind not in self._examples:
            self._examples[kind] = _Example(text, line_of(raw_text), numeral)
        self._examples[kind].num_texts += 1

    @property
    def has_points(self) -> bool:
        """Whether some text that `add_plain` added has a point."""
        return "points" in self._kinds

    def may_be_thousands(self, *, commas: bool) -> bool:
        """Whether points could stand between thousands: 1.250 in a column that also has 850.

        Args:
            commas: whether the file may write decimal commas; then 1.250 needs no 850 beside it.
        """
        return self._kinds == {"points", "whole"} or (commas and self._kinds == {"points"})

    @property
    def has_numbers(self) -> bool:
        """Whether some text is a number in any format."""
        return bool(self._examples)

    @property
    def is_phone_like(self) -> bool:
        """Whether the texts look like telephone numbers: equal groups, with the same sign twice.

        Only spaces and points count as such a sign.
        """
        shapes = {_shape(each.numeral.body).replace("z", "") for each in self._examples.values()}
        return len(shapes) == 1 and max(map(shapes.pop().count, " .")) > 1

    def number_format(
        self, *, commas: bool, decimal: str = "", unit: str | None = None, whole: bool = False
    ) -> NumberFormat:
        """Finds the number format that fits all numbers, or else most of them.

        Args:
            commas: whether the file may write decimal commas.
            decimal: the decimal sign that the schema names; empty if it names none.
            unit: the unit that the schema names; None to take the most frequent one of the file.
            whole: whether the column has only whole numbers.

        Raises:
            Undecided: two formats fit, and give different numbers.
        """
        units = Counter[str]()
        for each in self._examples.values():
            units[each.numeral.unit] += each.num_texts
        if unit is None or unit not in units:
            unit = units.most_common(1)[0][0] if units and unit is None else ""
        every = [e for e in self._examples.values() if e.numeral.unit == unit]
        has_commas = any("," in each.numeral.body for each in every)
        allowed = []
        for sign, groups in _FORMATS:
            if (sign != decimal) if decimal else (sign == "," and has_commas and not commas):
                continue
            allowed.append(NumberFormat(sign, groups, unit))
        fitting = [w for w in allowed if all(_fits(w, each, whole=whole) for each in every)]
        if not fitting:
            sizes = [sum(e.num_texts * _fits(w, e, whole=whole) for e in every) for w in allowed]
            return allowed[sizes.index(max(sizes))]
        first = fitting[0]
        if first == _USUAL and every and not commas and all("." in e.numeral.body for e in every):
            return first  # a program wrote all numbers with the same number of decimals
        for other in fitting[1:]:
            for each in every:
                one, two = first.plain(each.numeral), other.plain(each.numeral)
                pair = [one.lstrip("<>="), two.lstrip("<>=")] if one and two else ["0"]
                if len({*map(parse_number, pair)}) > 1:
                    raise _undecided(each, every, pair, sign=first.decimal)
        return first


def _fits(number_format: NumberFormat, example: _Example, *, whole: bool) -> bool:
    plain = number_format.plain(example.numeral)
    return plain is not None and (not whole or parse_number(plain.lstrip("<>=")).is_integer())


def _undecided(
    example: _Example, every: Iterable[_Example], numbers: Iterable[str], sign: str
) -> Undecided:
    beside = next((each.text for each in every if sign not in each.text), "")
    other = {".": ",", ",": "."}[sign]
    return Undecided(
        example.line,
        f"{example.text!r} may be {' or '.join(f'{parse_number(n):.12g}' for n in numbers)}"
        + (f", beside {beside!r}" if beside else "")
        + f'; write it otherwise, or let the schema say "decimal": "{sign}" of the column, or '
        f'"decimal": "{other}" if {sign!r} stands between thousands',
    )


def unit_problem(unit: str, of_others: str, of_schema: str) -> str:
    """Says what is wrong with a number's unit, beside those of other rows and of the schema."""
    if not unit:
        return f"has no unit, and other rows have {of_others}; write it in all rows, or in none"
    if of_schema:
        return f"has the unit {unit}, and the schema has {of_schema}; convert it"
    return f'has the unit {unit}; leave it out, or agree on "unit": "{unit}"'


def _shape(body: str) -> str:
    """The signs of a number in order, with each run of digits replaced by its `_run_code`."""
    return _DIGITS.sub(_run_code, body.lstrip("+-"))


def _run_code(run: re.Match[str]) -> str:
    """Encodes what thousands depend on: a first 0; under, exactly or over 3 digits; all zeros."""
    digits = run[0]
    if not run.start() and digits[0] == "0":
        return "0"
    length = len(digits)
    return ("3" if length == 3 else "1" if length < 3 else "4") + "z" * (not digits.strip("0"))
