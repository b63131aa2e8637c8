from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.unit.transport.networks import GrpcNetwork


@pytest.fixture
def opened_with() -> Mapping[str, Any]:
    """How `network` is opened; files that want it otherwise override this."""
    return {}


@pytest.fixture
def network(opened_with: Mapping[str, Any]) -> Iterator[GrpcNetwork]:
    opened = GrpcNetwork(**opened_with)
    yield opened
    opened.close()
