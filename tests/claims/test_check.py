"""`python -m tests.claims` finds each way in which pages and tests can differ."""

import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.claims.check import problems, quotes_of, read_repository
from tests.claims.pages import NO_PROMISES, NOT_YET, PAGES, PROMISE_WORDS
from tests.processes import REPOSITORY

PAGE = """# Safe

<a id="claim-no-sample"></a>No sample [ever](x.md) **leaves** `home`. The sky is blue.

* <a id="claim-refused"></a>Strangers are refused.

| what | limit |
|---|---|
| <a id="claim-calls"></a>calls | at most 8 |

So does this:<a id="claim-key"></a>

```bash
mdgan credentials new   # never overwrites a file
```

<a id="assumed-owner"></a>An owner never lies (assumed by the other owners).
"""

TESTS = """
from tests.claims.registry import claim

@claim("no-sample", "No sample ever leaves home.")
@claim("refused", "Strangers are "
       "refused.")
def test_secrecy(): ...

@claim("calls", "calls | at most 8")
@claim("key", "never overwrites a file")
@pytest.mark.slow
def test_limits(): ...
"""


def found(
    page: str = PAGE,
    tests: str = TESTS,
    no_promises: Mapping[str, tuple[str, ...]] | None = None,
    not_yet: tuple[str, ...] = (),
) -> list[str]:
    pages, files = {"page.md": page}, {"tests/test_it.py": tests}
    return problems(pages, files, PROMISE_WORDS, no_promises=no_promises, not_yet=not_yet)


def test_what_fits_is_left_alone() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (
            'claim-refused"></a>',
            'claim-other"></a>',
            ["claim-other: no test", "no page has <a id=", "'refused' promises"],
        ),
        ('<a id="claim-key"></a>', "", ["claim('key'): no page has", "14: 'never' promises"]),
        (
            "**leaves**",
            "**rarely** leaves",
            ["'no-sample'): page.md:3 says", "'No sample' promises"],
        ),
        ("at most 8", "at most 9", ["py:9: claim('calls'): page.md:9 says", "9: 'at most' prom"]),
        ("# never", "# never ever", ["claim('key'): page.md:14 says", "14: 'never' promises"]),
        ("sky is blue.", "sky never falls.", ["quotes it: The sky never falls."]),
        ("at most 8 |", "at most 8 | at most 9 |", ["page.md:9: 'at most' promises"]),
        ("# Safe", "# Always safe", ["page.md:1: 'Always' promises"]),
        (
            "claim-refused",
            "claim-no-sample",
            [
                "id of 2 anchors",
                "'refused'): no page",
                "'refused' prom",
                "'no-sample'): page.md:5 says",
            ],
        ),
        (" (assumed by the other owners)", "", ["say whose it is", "'never' promises"]),
        ("by the other owners", "by ", ["assumed-owner: end the assumption"]),
        ("assumed-owner", "claim-owner", ["claim-owner: no test", "'never' promises"]),
    ],
)
def test_a_page_that_changes_is_told(old: str, new: str, lines: list[str]) -> None:
    page = PAGE.replace(old, new)
    assert page != PAGE
    told = found(page)
    assert len(told) == len(lines), told
    for words in lines:
        assert any(words in line for line in told), (words, told)


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("test_limits", "limits", ["claim('calls') stands on a f", "claim('key') stands on a f"]),
        (
            '"refused", "Str',
            '"refuse", "Str',
            ["'refuse'): no page", "claim-refused: no t", "no test qu"],
        ),
        (
            '"refused", "Strangers are "',
            "NAME, ",
            ["claim(''): write the name", "claim-refused: no t", "no test qu"],
        ),
        ('"never overwrites a file"', '"never"', ["py:10: claim('key'): page.md:14 says"]),
    ],
)
def test_a_test_that_changes_is_told(old: str, new: str, lines: list[str]) -> None:
    assert old in TESTS
    told = found(tests=TESTS.replace(old, new))
    assert len(told) == len(lines), told
    for words in lines:
        assert any(words in line for line in told), (words, told)


def test_several_tests_may_quote_one_anchor() -> None:
    page = '<a id="claim-both"></a>It never lies. It never sleeps.\n'
    first, second = (
        f'@claim("both", "It never {case}.")\ndef test_{case}(): ...\n'
        for case in ("lies", "sleeps")
    )
    assert found(page, first + second) == []
    (line,) = found(page, first)
    assert "quotes it: It never sleeps." in line


SLOW = "@pytest.mark.slow\n"
FEW = "@pytest.mark.parametrize('x', [1, pytest.param(2, marks=pytest.mark.slow)])\n"


@pytest.mark.parametrize(
    ("before", "mark", "slow"),
    [
        ("", "", False),
        ("", SLOW, True),
        ("", FEW, False),
        ("pytestmark = pytest.mark.slow\n", "", True),
        ("pytestmark = [pytest.mark.slow, OTHER]\n", "", True),
    ],
)
def test_slow_tests_are_known(before: str, mark: str, slow: bool) -> None:
    source = f'{before}{mark}@claim("x", "It never sleeps.")\ndef test_x(): ...\n'
    (quote,) = quotes_of("tests/test_x.py", source)
    assert (quote.slow, quote.is_test) == (slow, True)


def test_a_phrase_without_a_promise_is_taken_from_the_list_when_it_goes() -> None:
    page, phrases = "You need nothing else.\n", {"page.md": ("You need nothing else.",)}
    assert found(page, "", phrases) == []
    (line,) = found("You need a computer.\n", "", phrases)
    assert "NO_PROMISES has what the page does not say" in line


def test_a_page_whose_turn_has_not_come_may_promise() -> None:
    page = 'It never sleeps.\n\n<a id="claim-lies"></a>It never lies.\n'
    (line,) = found(page, "", not_yet=("page.md",))
    assert "claim-lies: no test" in line


def test_this_repository_keeps_to_it() -> None:
    pages, tests = read_repository(REPOSITORY, PAGES)
    lines = problems(pages, tests, PROMISE_WORDS, no_promises=NO_PROMISES, not_yet=NOT_YET)
    assert not lines, "\n".join(lines)


def test_the_command_tells_what_is_wrong_and_needs_no_torch() -> None:
    script = (
        "import sys, tests.claims.__main__ as command\n"
        "command.PAGES, command.NOT_YET = ('README.md',), ()\n"
        "command.PROMISE_WORDS = ('server',)\n"
        "status = command.main()\n"
        "assert not {'torch', 'mdgan', 'pytest'} & sys.modules.keys()\n"
        "sys.exit(status)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "README.md:3: 'server' promises, and no test quotes it" in ran.stderr
