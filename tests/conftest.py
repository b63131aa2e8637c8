"""Fixtures that every test gets."""

import gc
import os
import signal
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, settings

# Threads that spin would slow down the tests that run beside these. Before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from mdgan.cli.logs import show_logs
from mdgan.errors import BadInput
from tests import forks, processes
from tests.gallery import common_folder
from tests.marks import EXAMPLES
from tests.misspelled import misspelled, room_that_refuses

# A shell makes what it runs in the background deaf to Ctrl-C, and that would be inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)
show_logs()  # tests see on the standard error what users of the command line see
# How long an example takes says more about the machine than about the example.
settings.register_profile(
    "any machine",
    deadline=None,
    max_examples=EXAMPLES,  # others with each run
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("slow tests", settings.get_profile("any machine"), max_examples=200)
settings.load_profile("any machine")
_numbers = count()


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read nor write the classifiers that a user has trained."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(common_folder(tmp_path_factory) / "cache"))
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_disk() -> Iterator[None]:
    """Tests kill processes and cut no power, so that what they write need not reach a disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", forks.reach_no_disk)
        yield


@pytest.fixture(autouse=True)
def _own_ledgers(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes what this user's samples have spent, or those of another test."""
    state = tmp_path_factory.getbasetemp() / f"state-{next(_numbers)}"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))


@pytest.fixture(autouse=True)
def _refusals_for_both_readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every refusal that a test meets reads well on the command line and in Python."""
    make, wrong = BadInput.__init__, list[str]()

    def make_and_read(error: BadInput, *parts: object, **named: object) -> None:
        make(error, *parts, **named)
        if room := room_that_refuses():
            wrong.extend(misspelled(error.marked, room))

    monkeypatch.setattr(BadInput, "__init__", make_and_read)
    yield
    assert not wrong, wrong


@pytest.fixture(autouse=True)
def _no_process_left() -> Iterator[None]:
    """A test that fails half-way leaves no process to disturb the next."""
    yield
    processes.end_all()


@pytest.fixture
def known_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of differential privacy comes from `--seed` in runs of this process."""
    from tests.known_noise import make_noise_known

    make_noise_known(monkeypatch)


def pytest_configure(config: pytest.Config) -> None:
    """Who runs the slow tests has time for more examples."""
    if "not slow" not in config.getoption("markexpr"):
        settings.load_profile("slow tests")


def pytest_collection() -> None:
    """Imports make hardly any garbage, and looking for it takes a sixth of their time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempts imported objects from garbage collection, since they stay to the end."""
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what needs a GPU where there is none."""
    if item.get_closest_marker("gpu") is not None:
        import torch  # the tests that need no torch do not wait for it

        if not torch.cuda.device_count():
            pytest.skip("needs a CUDA GPU")
