"""Docstrings, comments and messages are plain English: they name the actor, and hold no riddle."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

ROOMS = ("benchmarks", "datasets", "mdgan")
"""Folders and files that are checked."""

NAME_THE_ACTOR = "name the actor: the server, the host, the worker, the user"
RIDDLES = {
    r"who(m|se)?(so)?ever": NAME_THE_ACTOR,
    r"nobody|no one|(some|any|every)(body|one)": NAME_THE_ACTOR,
    r"of who|who (is|are) to": NAME_THE_ACTOR,
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


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each docstring, message and run of comment lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
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


def riddles(source: str) -> list[tuple[int, str]]:
    """Finds riddles in Python code: the line of the text, the phrase and what to say instead."""
    return [
        (line, f"{found[0]!r}: {advice}")
        for line, text in texts(source)
        if ANY.search(" ".join(text.split()))
        for pattern, advice in RIDDLES.items()
        for found in re.finditer(rf"\b({pattern})\b", " ".join(text.split()), re.IGNORECASE)
    ]


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
    path = REPOSITORY / room
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert files, f"{room} does not exist; correct ROOMS"
    found = [
        f"{name}:{line}: {riddle}"
        for name, file in ((str(file.relative_to(REPOSITORY)), file) for file in files)
        for line, riddle in riddles(file.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)
