"""Docstrings, comments and messages are plain English: they name the actor, and hold no riddle."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

ROOMS = ("benchmarks", "datasets", "mdgan", "scripts", "tests")
"""Folders and files that are checked."""
BY_DATA = "tests"
"""A room whose strings are data: of these only docstrings are checked."""

NAME_THE_ACTOR = "name the actor: the server, the host, the worker, the user"
RIDDLES = {
    r"who(m|se)?(so)?ever": NAME_THE_ACTOR,
    r"nobody|no one|(some|any|every)(body|one)": NAME_THE_ACTOR,
    r"of who|who (is|are) to": NAME_THE_ACTOR,
    r"(of|with|by|from) whom": NAME_THE_ACTOR,
    r"(?-i:Who) (asks|comes|gives|goes|joins|says|takes|tells)": NAME_THE_ACTOR,
    r"those that (tell|told)": NAME_THE_ACTOR,
    r"(?-i:A) \w+ is gone(?=;)": "say who disconnected, or what ended",
    r"takes that of|goes on; see": "repeat the noun",
    r"(?-i:Times) as \w+ as|a byte a|where it is built": "make it a whole sentence",
    r"an? (folder|fork|pipe|process|session|stream|thread) of (its|their) own": "say 'its own …'",
    r"in vain|none too|least lately": "use ordinary words",
    r"so too": "say 'also' or 'as well'",
    r"in the place of": "say 'instead of', or what is replaced",
    r"(is|are) to be had": "say what is available",
    r"(is|are) no such": "say what is wrong with it",
    r"where (drawing|reading|training|writing) (is|was)": "say what the state holds",
    r"likewise|of late|befalls?|trusting nothing": "use ordinary words",
    r"(after|for|up to) so many": "say 'this many', or give the number",
    r"hereby|thereby|thereof|therein|whereby|wherein|whereupon|whence": "use ordinary words",
}
ANY = re.compile(rf"\b({'|'.join(RIDDLES)})\b", re.IGNORECASE)


def texts(source: str, *, messages: bool = True) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each docstring, message and run of comment lines."""
    for node in ast.walk(ast.parse(source)):
        text = node if messages else node.value if isinstance(node, ast.Expr) else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield text.lineno, text.value
    after_marks = (line.partition("#")[2].strip("# ") for line in source.splitlines())
    if not ANY.search(" ".join(after_marks)):
        return  # splitting code into tokens takes seconds
    comments: dict[int, str] = {}
    first = last = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line = token.start[0]
            first = first if line == last + 1 else line
            comments[first] = comments.get(first, "") + " " + token.string.lstrip("# ")
            last = line
    yield from comments.items()


def riddles(source: str, *, messages: bool = True) -> list[tuple[int, str]]:
    """Finds riddles in Python code: the line of the text, the phrase and what to say instead."""
    return [
        (line, f"{match[0]!r}: {advice}")
        for line, text in texts(source, messages=messages)
        if ANY.search(" ".join(text.split()))
        for pattern, advice in RIDDLES.items()
        for match in re.finditer(rf"\b({pattern})\b", " ".join(text.split()), re.IGNORECASE)
    ]


BEFORE_AND_AFTER = {
    "Callers of whom something is kept; then the one that was heard least lately is forgotten.": (
        "Most callers whose usage the guard remembers. Beyond that it forgets the caller it heard "
        "from longest ago."
    ),
    "Those that tell once stay until they have described their data for scores, if they do.": (
        "A host whose workers answer only once stays connected until it has sent the statistics "
        "for the scores."
    ),
    "The way of answers to the screening, which a family chooses where it is built.": (
        "What happens to a worker's answer between its learner and the server's screening. A "
        "family picks one when it is built."
    ),
    "A call shows what only few know, so that it is none too often.": (
        "The caller has shown a secret that only few know, so this call does not count against "
        "its quota."
    ),
    "Who asks again, since it could not join, gets the rank.": (
        "A host that asks again after a failed join gets the rank that was promised to it."
    ),
    "Times as long as a page took to write, nothing is written, so that training keeps cores.": (
        "The live report waits this many times as long as the last page took to write."
    ),
    "All answers are in: drops those that were taken on trust in vain.": (
        "All answers have arrived: drops the bytes that were reserved for answers that never came."
    ),
    "With whom the mean of two discriminators has been.": (
        "Ranks of the two workers whose discriminators were averaged."
    ),
    "With a byte a value, and four of feedback, 14 bytes instead of the paper's 12.": (
        "Ten int8 batches and float32 feedback are 14 bytes a pixel; the paper's are 12."
    ),
    "Reads in a thread of its own, so that the sender never waits for long.": (
        "Reads in its own thread. Otherwise a slow reader would block the sender."
    ),
    "A host is gone; the server is told if it does not know.": (
        "Removes a host that has disconnected, and tells the server if it has not noticed."
    ),
    "Makes the folder of a new run, or takes that of a run that goes on; see `Claim`.": (
        "Creates the folder of a new run, or locks the folder of a run that is resumed."
    ),
}
"""Docstrings of former versions, and what a colleague would say."""


@pytest.mark.parametrize("before", BEFORE_AND_AFTER)
def test_each_riddle_that_was_mended_is_found_and_its_better_half_is_not(before: str) -> None:
    assert riddles(repr(before))
    assert not riddles(repr(BEFORE_AND_AFTER[before]))


@pytest.mark.parametrize(
    "source",
    [
        '"""Lets in whoever knows the key."""',
        "def f():\n    '''So too with\n    the others.'''",
        "x = 1  # nobody waits",
        "# the newest of who\n# is to train",
        "raise ValueError(f'{x} is sent in the place\tof {y}')",
        "LIMIT = 3\n'''Up to so many are kept.'''",
    ],
)
def test_a_riddle_is_found(source: str) -> None:
    assert len(riddles(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        '"""The server lets in a host that knows the key; the host that does not is refused."""',
        "nobody = 'someones.txt'  # a name is not a text, and this file has one",
        "x = 1  # so\ny = 2\nz = 3  # too",
    ],
)
def test_plain_english_is_left_alone(source: str) -> None:
    assert riddles(source) == []


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_are_in_plain_english(room: str) -> None:
    files = {*(REPOSITORY / room).rglob("*.py")} - {Path(__file__)}
    assert files, f"{room} does not exist; correct ROOMS"
    lines = [
        f"{file.relative_to(REPOSITORY)}:{line}: {riddle}"
        for file in sorted(files)
        for line, riddle in riddles(file.read_text(encoding="utf-8"), messages=room != BY_DATA)
    ]
    assert not lines, "\n".join(lines)
