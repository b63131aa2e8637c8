"""The page of questions quotes messages exactly as mdgan prints them."""

import ast
import re
from functools import cache

import pytest

from tests.processes import REPOSITORY

_PAGE = (REPOSITORY / "docs" / "faq.md").read_text(encoding="utf-8")
QUOTED = [line for line in re.findall(r"^\* `(.*?)`", _PAGE, re.MULTILINE) if "CUDA" not in line]
"""All messages but PyTorch's."""

_VALUE = re.compile(r"\S*[\d…/]\S*|--\S+|\b[A-Z]{3,}\b|matplotlib|[:;](?: |$)")
"""What differs from one message to the next, or joins its parts."""
_LEAST_WORDS = 2


@cache
def all_texts() -> str:
    """The texts in the code, a line each."""
    trees = (ast.parse(path.read_text()) for path in (REPOSITORY / "mdgan").rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return "\n".join(node.value for node in nodes if isinstance(node.value, str))


def runs_of_words(message: str) -> list[str]:
    """What a message says whatever its values are."""
    runs = [run.strip(" ,.") for run in _VALUE.split(message)]
    return [run for run in runs if len(run.split()) >= _LEAST_WORDS]


@pytest.mark.parametrize("message", QUOTED)
def test_a_quoted_message_is_in_the_code(message: str) -> None:
    result = runs_of_words(message)
    assert result
    assert not [run for run in result if run not in all_texts()]
