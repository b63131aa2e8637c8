"""Numbers as files write them: one grammar, of ASCII digits, and one writing for a whole column.

A column of a file has one writing: which sign stands before decimals, which between thousands, and
which unit behind. All texts of the column decide it together. Where they allow two numbers, the
schema decides.
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
"""Units that may follow a number without a space; other letters make a code of it."""
_DIGITS = re.compile(r"[0-9]+")


LineOf = Callable[[str], int]


def number_of(text: str) -> float:
    """The number of a text with a decimal point at most; ValueError if it is none."""
    if _PLAIN.fullmatch(text) and isfinite(number := float(text)):
        return number
    raise ValueError("is no number")


def numbers_of(texts: Iterable[str]) -> set[float]:
    """Those of some texts that are numbers."""
    found = (float(text) for text in texts if _PLAIN.fullmatch(text))
    return {number for number in found if isfinite(number)}


def end_of(text: str, *, is_whole: bool) -> tuple[str, float]:
    """The sign of an end, `<` `<=` `>` `>=`, and its number, of a plain text; else ValueError.

    Args:
        is_whole: whether its column has whole numbers alone, so that >=90 is >89.
    """
    numeral = parsed(text)
    if numeral is None or not numeral.end or numeral.unit:
        raise ValueError(f"{text!r:.40} is no end such as >89")
    sign, bound = numeral.end, number_of(numeral.body + numeral.exponent)
    if is_whole and sign[1:] and bound.is_integer():
        return sign[0], bound - 1 if sign[0] == ">" else bound + 1
    return sign, bound


def number_text(text: str, commas: bool) -> str:
    """A number with a decimal point, where a comma may stand for it."""
    has_comma = commas and text.count(",") == 1 and "." not in text
    return text.replace(",", ".") if has_comma else text


def unwrapped(text: str) -> str:
    """A text without what spreadsheets keep it as it is by: `="00123"`, or `'` before a sign."""
    found = _FORMULA.fullmatch(text) if text[:1] in ("=", "'") else None
    return (found[1] or found[2] or "").strip() if found else text


def looks_like_code(text: str) -> bool:
    """Whether a number looks like a key: it begins with 0 as 01234, or is written as 12E4."""
    digits = text.lstrip("+-")
    return (digits[:1] == "0" and digits[1:2].isdigit()) or bool(_CODE.fullmatch(digits))


class Numeral(NamedTuple):
    """The parts of a number as it is written."""

    end: str  # `<`, `<=`, `>`, `>=`, or empty: whether all is meant that lies beyond
    body: str  # digits, with what stands between them
    exponent: str
    unit: str


def parsed(text: str) -> Numeral | None:
    """The parts of a text; None if it is no number, however written."""
    if len(text) > _LONGEST:
        return None
    found = _NUMERAL.fullmatch(text.translate(_SPACES))
    if found is None:
        return None
    end, before, body, exponent, more, space, unit = found.groups(default="")
    if exponent and not isfinite(float(f"1{exponent}") * 10.0 ** len(body)):
        return None
    if (before and unit) or (end and more) or (unit and not space and not _is_unit(unit)):
        return None
    end = ">=" if more else {"≤": "<=", "≥": ">="}.get(end, end)
    return Numeral(end, body, exponent, unit or before)


def _is_unit(letters: str) -> bool:
    return _BESIDE_DIGITS.fullmatch(letters) is not None


@dataclass(frozen=True)
class Writing:
    """How a column of a file writes numbers.

    Attributes:
        decimal: what stands before decimals, `.` or `,`.
        groups: what stands between thousands; empty for nothing.
        unit: what stands behind all numbers, or before them; empty for nothing.
    """

    decimal: str = "."
    groups: str = ""
    unit: str = ""

    def plain(self, numeral: Numeral) -> str | None:
        """The number with a decimal point, and its end, as `>89`; None if it is of another way."""
        if not _BODIES[self.decimal, self.groups].fullmatch(numeral.body):
            return None
        if numeral.exponent and self.groups and self.groups in numeral.body:
            return None
        digits = numeral.body.replace(self.groups, "") if self.groups else numeral.body
        return f"{numeral.end}{digits.replace(self.decimal, '.')}{numeral.exponent}"

    def read(self, text: str) -> str:
        """The plain number of a text; empty if it is none, or has another unit."""
        if self == _USUAL and _PLAIN.fullmatch(text):
            return text
        numeral = parsed(text)
        if numeral is None or numeral.unit != self.unit:
            return ""
        return self.plain(numeral) or ""

    def __str__(self) -> str:
        names = {".": "points", ",": "commas", " ": "spaces", "'": "apostrophes"}
        said = [f"decimal {names[self.decimal]}"] if self.decimal == "," else []
        said += [f"{names[self.groups]} between thousands"] if self.groups else []
        return " and ".join([*said, *([f"the unit {self.unit}"] if self.unit else [])])


_USUAL = Writing()
_WRITINGS = [(".", ""), (",", ""), *((".", g) for g in ", '"), *((",", g) for g in ". '")]
_BODIES = {
    (d, g): re.compile(
        rf"[+-]?(?:(?:[0-9]+{f'|[1-9][0-9]{{0,2}}(?:[{g}][0-9]{{3}})+' if g else ''})"
        rf"(?:[{d}][0-9]*)?|[{d}][0-9]+)"
    )
    for d, g in _WRITINGS
}


def is_number(text: str) -> bool:
    """Whether a text is a number in some writing."""
    numeral = parsed(text)
    return numeral is not None and any(Writing(*way).plain(numeral) for way in _WRITINGS)


class Undecided(ValueError):
    """Texts of a column may be two numbers each; the text is a line without file and column.

    Attributes:
        line: where the first such text stands.
    """

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


@dataclass
class _Example:
    text: str
    line: int
    numeral: Numeral
    number: int = 0  # of different texts like it


_KINDS: dict[str, Callable[[str], object]] = {
    "decimals": _NO_THOUSANDS.search,
    "points": lambda text: "." in text,
    "whole": lambda text: "." not in text,
}
"""Which texts with digits, points and signs tell whether points may stand between thousands."""


class Survey:
    """What all texts of a column of a file tell of its writing, in bounded memory.

    Attributes:
        others: the first texts that are no numbers, and the line of each.
    """

    def __init__(self) -> None:
        self._examples: dict[tuple[str, ...], _Example] = {}
        self.others: dict[str, int] = {}
        self._kinds = set[str]()
        self.is_plain = True

    def add_plain(self, texts: Sequence[str], line_of: LineOf = lambda _: 0) -> bool:
        """Takes in different texts, as `add`, if they have only digits, points, signs and spaces.

        Returns:
            Whether they have. It takes little time, since only one text of each kind is kept.
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
                self._note(text, line_of)
        return True

    def add(self, texts: Sequence[str], line_of: LineOf) -> None:
        """Takes in different texts that are not missing; `line_of` tells where a text stands."""
        if self.is_plain and not _ODD.search("\n".join(texts)) and self.add_plain(texts, line_of):
            return
        self.is_plain = False
        for text in texts:
            self._note(text, line_of)

    def _note(self, given: str, line_of: LineOf) -> None:
        text = unwrapped(given.strip())
        numeral = parsed(text)
        kind = () if numeral is None else (numeral.end, numeral.unit, _shape(numeral.body))
        if numeral is None or (kind not in self._examples and len(self._examples) > _MOST_EXAMPLES):
            if len(self.others) < _MOST_OTHERS and text not in self.others:
                self.others[text] = line_of(given)
            return
        if kind not in self._examples:
            self._examples[kind] = _Example(text, line_of(given), numeral)
        self._examples[kind].number += 1

    @property
    def has_points(self) -> bool:
        """Whether some text of `add_plain` has a point."""
        return "points" in self._kinds

    def may_be_thousands(self, *, commas: bool) -> bool:
        """Whether texts of `add_plain` may have points between thousands, as 1.250 beside 850.

        Args:
            commas: whether commas may stand before decimals, so that 1.250 may be so alone, too.
        """
        return self._kinds == {"points", "whole"} or (commas and self._kinds == {"points"})

    @property
    def has_numbers(self) -> bool:
        """Whether some text is a number, however written."""
        return bool(self._examples)

    @property
    def is_code(self) -> bool:
        """Whether all numbers have the same groups, as telephone numbers have, with one sign twice.

        No such number has commas or apostrophes in it.
        """
        shapes = {_shape(each.numeral.body).replace("z", "") for each in self._examples.values()}
        return len(shapes) == 1 and max(map(shapes.pop().count, " .")) > 1

    def writing(
        self, *, commas: bool, decimal: str = "", unit: str | None = None, whole: bool = False
    ) -> Writing:
        """The writing that fits all numbers, or else most.

        Args:
            commas: whether a comma may stand before decimals in this file.
            decimal: what the schema says of that; empty for nothing.
            unit: what the schema says; None: the first one of the file.
            whole: whether the column has whole numbers alone.

        Raises:
            Undecided: two writings fit, and numbers differ.
        """
        units = Counter[str]()
        for each in self._examples.values():
            units[each.numeral.unit] += each.number
        if unit is None or unit not in units:
            unit = units.most_common(1)[0][0] if units and unit is None else ""
        every = [e for e in self._examples.values() if e.numeral.unit == unit]
        has_commas = any("," in each.numeral.body for each in every)
        found = []
        for sign, groups in _WRITINGS:
            if (sign != decimal) if decimal else (sign == "," and has_commas and not commas):
                continue
            found.append(Writing(sign, groups, unit))
        fitting = [w for w in found if all(_fits(w, each, whole=whole) for each in every)]
        if not fitting:
            return max(found, key=lambda w: sum(e.number * _fits(w, e, whole=whole) for e in every))
        first = fitting[0]
        if first == _USUAL and every and not commas and all("." in e.numeral.body for e in every):
            return first  # with a fixed number of decimals, as programs write them
        for other in fitting[1:]:
            for each in every:
                one, two = first.plain(each.numeral), other.plain(each.numeral)
                pair = [one.lstrip("<>="), two.lstrip("<>=")] if one and two else ["0"]
                if len({*map(number_of, pair)}) > 1:
                    raise _undecided(each, every, pair, sign=first.decimal)
        return first


def _fits(writing: Writing, example: _Example, *, whole: bool) -> bool:
    plain = writing.plain(example.numeral)
    return plain is not None and (not whole or number_of(plain.lstrip("<>=")).is_integer())


def _undecided(
    example: _Example, every: Iterable[_Example], numbers: Iterable[str], sign: str
) -> Undecided:
    beside = next((each.text for each in every if sign not in each.text), "")
    other = {".": ",", ",": "."}[sign]
    return Undecided(
        example.line,
        f"{example.text!r} may be {' or '.join(f'{number_of(n):.12g}' for n in numbers)}"
        + (f", beside {beside!r}" if beside else "")
        + f'; write it otherwise, or let the schema say "decimal": "{sign}" of the column, or '
        f'"decimal": "{other}" if {sign!r} stands between thousands',
    )


def about_unit(unit: str, of_others: str, of_schema: str) -> str:
    """What is wrong with the unit of a number."""
    if not unit:
        return f"has no unit, and other rows have {of_others}; write it in all rows, or in none"
    if of_schema:
        return f"has the unit {unit}, and the schema has {of_schema}; convert it"
    return f'has the unit {unit}; leave it out, or agree on "unit": "{unit}"'


def _shape(body: str) -> str:
    """What a number looks like, whatever its digits: which signs stand where."""
    return _DIGITS.sub(_run, body.lstrip("+-"))


def _run(found: re.Match[str]) -> str:
    digits = found[0]
    if not found.start() and digits[0] == "0":
        return "0"
    length = len(digits)
    return ("3" if length == 3 else "1" if length < 3 else "4") + "z" * (not digits.strip("0"))
