"""How a host's workers compute together, by the settings."""

import logging
from typing import Any

import pytest
import torch

from mdgan.families.contract import HostNeeds
from mdgan.families.mdgan import grouping
from mdgan.families.mdgan.grouping import Tuning, make_group, thread_numbers
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.stacked_workers import StackedWorkers
from mdgan.families.mdgan.worker import OneByOne, Worker, WorkerGroup
from mdgan.gan.build import Models
from mdgan.observe.tracer import Tracer
from tests.unit.gan import small


@pytest.fixture(autouse=True)
def notes(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What people are told."""
    caplog.set_level(logging.INFO, "mdgan")
    return caplog


def needs_of(
    *,
    fixed_threads: bool = False,
    own_process: bool = True,
    device: torch.device = small.CPU,
    **settings: Any,
) -> HostNeeds[MDGANSettings]:
    models = Models("small", small.SHAPE, small.Z_DIM, small.make_generator, small.make_model)
    return HostNeeds(
        MDGANSettings.read(settings),
        models,
        {},
        device,
        Tracer(),
        own_process=own_process,
        fixed_threads=fixed_threads,
    )


def group_of(
    workers: dict[int, Worker], *, fixed_threads: bool = False, **settings: Any
) -> WorkerGroup:
    return make_group(workers, needs_of(fixed_threads=fixed_threads, **settings))


def make_workers(num: int = 3) -> dict[int, Worker]:
    return {rank: small.make_worker(rank) for rank in range(1, num + 1)}


@pytest.mark.parametrize(
    ("settings", "kind"), [({}, OneByOne), ({"vectorize": True}, StackedWorkers)]
)
def test_as_it_is_told(
    settings: dict[str, Any], kind: type[object], notes: pytest.LogCaptureFixture
) -> None:
    assert type(group_of(make_workers(), **settings)) is kind
    assert notes.messages == []


@pytest.mark.parametrize("settings", [{"vectorize": True}, {"tune": True, "fixed_threads": True}])
def test_a_worker_alone_has_nothing_to_choose(
    settings: dict[str, Any], notes: pytest.LogCaptureFixture
) -> None:
    assert type(group_of(make_workers(1), **settings)) is OneByOne
    assert notes.messages == []


def test_what_cannot_be_stacked_goes_one_by_one_and_it_says_so(
    notes: pytest.LogCaptureFixture,
) -> None:
    workers = make_workers()
    workers[2].discriminator.model.add_module("more", torch.nn.Identity())
    assert type(group_of(workers, vectorize=True)) is OneByOne
    assert notes.messages == ["the process of ranks 1..3 computes one by one: their models differ"]
    notes.clear()
    assert type(group_of(make_workers(), vectorize=True, compile=True)) is OneByOne
    assert "compiled models are called one by one" in notes.messages[0]


def test_measuring_what_is_fastest() -> None:
    tuning = group_of(make_workers(), tune=True, vectorize=True)
    assert isinstance(tuning, Tuning)
    words = [candidate.words for candidate in tuning._left]
    assert words[0].startswith("one by one with")
    assert "one by one with 1 thread" in words
    assert words[-1] == words[0].replace("one by one", "all at once")


def test_which_numbers_of_threads_are_worth_a_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(grouping, "num_cores", lambda: 8)
    assert thread_numbers(needs_of()) == [3, 1, 8]
    assert thread_numbers(needs_of(fixed_threads=True)) == [3]
    assert thread_numbers(needs_of(own_process=False)) == [3]
    assert thread_numbers(needs_of(device=torch.device("cuda"))) == [3]
    monkeypatch.setattr(grouping, "num_cores", lambda: 1)
    assert thread_numbers(needs_of()) == [3, 1]
