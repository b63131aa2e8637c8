"""What every test gets."""

from collections.abc import Iterator

import pytest

from tests import processes


@pytest.fixture(autouse=True)
def _no_process_left() -> Iterator[None]:
    """A test that fails half-way leaves no process to disturb the next."""
    yield
    processes.end_all()
