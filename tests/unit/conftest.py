"""Fixtures that every unit test gets."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.engine.played_server import PlayedServer
from tests.unit.engine.stage import Stage
from tests.unit.families.federated.rounds import RoundStage


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Bits are compared here, and how sums are split over threads decides bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def stage_kind() -> type[Stage]:
    """What `stage` makes; tests of a family have their own."""
    return Stage


@pytest.fixture
def server_kind() -> type[PlayedServer]:
    """What `server` is; tests of a family have their own."""
    return PlayedServer


@pytest.fixture
def stage(tmp_path: Path, stage_kind: type[Stage]) -> Iterator[Callable[..., Stage]]:
    """Makes stages, each in its own folder, and clears them away."""
    made: list[Stage] = []
    numbers = count(1)

    def make(folder: Path | None = None, **how: Any) -> Stage:
        made.append(stage_kind(folder or tmp_path / f"run-{next(numbers)}", **how))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def server(tmp_path: Path, server_kind: type[PlayedServer]) -> Iterator[PlayedServer]:
    made = server_kind(tmp_path / "checkpoints")
    yield made
    made.close()


@pytest.fixture
def rounds(tmp_path: Path) -> Iterator[Callable[..., RoundStage]]:
    """Makes stages of federated algorithms, each in its own folder, and clears them away."""
    made: list[RoundStage] = []
    numbers = count(1)

    def make(
        folder: Path | None = None, kind: type[RoundStage] = RoundStage, **how: Any
    ) -> RoundStage:
        made.append(kind(folder or tmp_path / f"round-{next(numbers)}", **how))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def double_precision() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
