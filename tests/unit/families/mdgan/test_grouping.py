"""How a host's workers compute together, by the settings."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from mdgan.settings.deployment import Deployment
from mdgan.settings.experiment import Experiment

from mdgan.families.mdgan.grouping import make_group, thread_numbers
from mdgan.families.mdgan.stacked_workers import StackedWorkers
from mdgan.families.mdgan.tuning import Tuning
from mdgan.families.mdgan.worker import Worker
from mdgan.families.mdgan.worker_group import OneByOne, WorkerGroup
from mdgan.launch import machine
from mdgan.launch.prepare import Plan
from mdgan.observe.tracer import Tracer
from tests.unit.gan import small


def group_of(workers: dict[int, Worker], *, compiles: bool = False, **settings: Any) -> WorkerGroup:
    plan = SimpleNamespace(
        deployment=Deployment(**settings),
        experiment=Experiment(compile=compiles),
        dataset=SimpleNamespace(shape=small.SHAPE),
    )
    return make_group(workers, cast(Plan, plan), Tracer(), small.CPU, own_process=True)


def make_workers(num: int = 3) -> dict[int, Worker]:
    return {rank: small.make_worker(rank) for rank in range(1, num + 1)}


@pytest.mark.parametrize(
    ("settings", "kind"), [({}, OneByOne), ({"vectorize": True}, StackedWorkers)]
)
def test_as_it_is_told(
    settings: dict[str, Any], kind: type[object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert type(group_of(make_workers(), **settings)) is kind
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("settings", [{"vectorize": True}, {"tune": True, "threads": 1}])
def test_a_worker_alone_has_nothing_to_choose(
    settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert type(group_of(make_workers(1), **settings)) is OneByOne
    assert capsys.readouterr().err == ""


def test_what_cannot_be_stacked_goes_one_by_one_and_it_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    workers = make_workers()
    workers[2].discriminator.model.add_module("more", torch.nn.Identity())
    assert type(group_of(workers, vectorize=True)) is OneByOne
    assert capsys.readouterr().err == (
        "mdgan: the process of ranks 1..3 computes one by one: their models differ\n"
    )
    assert type(group_of(make_workers(), vectorize=True, compiles=True)) is OneByOne
    assert "compiled models are called one by one" in capsys.readouterr().err


def test_measuring_what_is_fastest() -> None:
    tuning = group_of(make_workers(), tune=True, vectorize=True)
    assert isinstance(tuning, Tuning)
    words = [candidate.words for candidate in tuning._left]
    assert words[0].startswith("one by one with")
    assert "one by one with 1 thread" in words
    assert words[-1] == words[0].replace("one by one", "all at once")


def test_which_numbers_of_threads_are_worth_a_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(machine, "num_cores", lambda: 8)
    cuda = torch.device("cuda")
    assert thread_numbers(Deployment(), small.CPU, own_process=True) == [3, 1, 8]
    assert thread_numbers(Deployment(threads=3), small.CPU, own_process=True) == [3]
    assert thread_numbers(Deployment(), small.CPU, own_process=False) == [3]
    assert thread_numbers(Deployment(), cuda, own_process=True) == [3]
    monkeypatch.setattr(machine, "num_cores", lambda: 1)
    assert thread_numbers(Deployment(), small.CPU, own_process=True) == [3, 1]
