"""Stages on which MD-GAN is trained."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.unit.families.mdgan.played_server import PlayedServer
from tests.unit.families.mdgan.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    """Makes stages, each in a folder of its own, and clears them away."""
    made: list[Stage] = []
    numbers = count(1)

    def make(folder: Path | None = None, **how: Any) -> Stage:
        made.append(Stage(folder or tmp_path / f"run-{next(numbers)}", **how))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PlayedServer]:
    made = PlayedServer(tmp_path / "checkpoints")
    yield made
    made.close()
