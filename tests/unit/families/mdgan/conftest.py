"""Stages on which MD-GAN is trained."""

import pytest

from tests.unit.families.mdgan.played_server import PlayedServer
from tests.unit.families.mdgan.stage import Stage


@pytest.fixture
def stage_kind() -> type[Stage]:
    return Stage


@pytest.fixture
def server_kind() -> type[PlayedServer]:
    return PlayedServer
