"""What tests of whole programs share."""

import socket
from pathlib import Path

import pytest

from tests.integration.exactness import MODELS, RETURN


@pytest.fixture
def port() -> int:
    """A port on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def conditional_sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with dataset files of conditional models, one for each kind of discriminator."""
    made = tmp_path_factory.mktemp("labels")
    for name, line in RETURN.items():
        (made / f"{name}.py").write_text(MODELS.replace("RETURN", line))
    unsaid = (made / "auxiliary.py").read_text().replace("NUM_CLASSES", "K")
    (made / "unsaid.py").write_text(unsaid)
    return made
