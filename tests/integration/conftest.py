"""Fixtures of tests of whole programs."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mdgan.interface import child
from tests.forks import ForkedCommand
from tests.gallery import Gallery, common_folder
from tests.integration.exactness import MODELS, RETURN
from tests.integration.signed_runs import trained_apart
from tests.processes import environment, free_port, run_here


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    """Finished runs that tests only read."""
    return Gallery(common_folder(tmp_path_factory) / "gallery")


@pytest.fixture(scope="session", name="place")
def a_signed_run(gallery: Gallery) -> Path:
    """A folder with a run of two hosts that have certificates, and a bundle of it."""

    def make(folder: Path) -> None:
        trained_apart(folder)
        released = run_here("release", "run", "-o", "bundle", "--samples", "500", cwd=folder)
        assert released.status == 0, released

    return gallery.show("signed", make)


@pytest.fixture
def port() -> int:
    """A port on which no process listens."""
    return free_port()


@pytest.fixture(scope="session")
def conditional_sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with dataset files of conditional models, one for each kind of discriminator."""
    made = tmp_path_factory.mktemp("labels")
    for name, line in RETURN.items():
        (made / f"{name}.py").write_text(MODELS.replace("RETURN", line))
    unsaid = (made / "auxiliary.py").read_text().replace("NUM_CLASSES", "K")
    (made / "unsaid.py").write_text(unsaid)
    return made


@pytest.fixture
def quick_start() -> Iterator[None]:
    """Commands are forks of a process that has imported torch, as in other tests."""

    def start(command: Sequence[str], **options: Any) -> ForkedCommand:
        (events,) = options["pass_fds"]
        read, write = os.pipe()
        made = ForkedCommand(
            command[3:], Path.cwd(), environment(), merged=True, stdin_pipe=read, events=events
        )
        os.close(read)
        made.stdin = os.fdopen(write, "wb")  # type: ignore[attr-defined] # as a Popen has it
        return made

    with pytest.MonkeyPatch.context() as patch:
        tools = SimpleNamespace(Popen=start, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT)
        patch.setattr(child, "subprocess", tools)
        yield


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of the program, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
