"""Stages on which federated algorithms train."""

from collections.abc import Callable
from functools import partial

import pytest

from tests.unit.families.federated.placing import PlacingStage


@pytest.fixture
def placing(rounds: Callable[..., PlacingStage]) -> Callable[..., PlacingStage]:
    """Makes stages whose clients are placed."""
    return partial(rounds, kind=PlacingStage)
