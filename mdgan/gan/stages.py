"""How the mathematics lets itself be watched: each stage runs inside a block with a name."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

Stage = Callable[[str], AbstractContextManager[Any]]
"""From a stage's name to the block that it runs in."""


def unobserved(_name: str) -> AbstractContextManager[None]:
    """Nobody watches."""
    return nullcontext()
