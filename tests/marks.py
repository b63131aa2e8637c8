"""Decides how much of a test runs by default, and how much with the slow tests."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings

EXAMPLES = 25
"""What Hypothesis tries by default where a test names no number; `make test-all` tries more."""


def mostly_slow(cases: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Parameters of a test, of which only a few are tried by default."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if case in quick else pytest.mark.slow,
        )
        for case in cases
    ]


def examples(number: int) -> int:
    """So many examples by default, and as many times more with the slow tests as elsewhere."""
    return number * settings().max_examples // EXAMPLES
