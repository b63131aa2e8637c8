"""How a host's workers compute together, by the settings."""

from typing import Any

import pytest
import torch

from mdgan.families.contract import HostNeeds
from mdgan.families.mdgan.build import make_group
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.families.mdgan.worker import LearningLater, OneByOne, StackedWorkers, Worker
from mdgan.gan.build import Models
from mdgan.observe.tracer import Tracer
from tests.unit.gan import small


def group_of(workers: dict[int, Worker], **settings: Any) -> OneByOne:
    models = Models("small", small.SHAPE, small.Z_DIM, small.make_generator, small.make_model)
    needs = HostNeeds(MDGANSettings.read(settings), models, {}, small.CPU, Tracer())
    return make_group(workers, needs)


def make_workers(num: int = 3) -> dict[int, Worker]:
    return {rank: small.make_worker(rank) for rank in range(1, num + 1)}


@pytest.mark.parametrize(
    ("num", "settings", "kind"),
    [
        (3, {}, OneByOne),
        (3, {"vectorize": True}, StackedWorkers),
        (1, {"vectorize": True}, OneByOne),
        (3, {"updates": "async"}, LearningLater),
    ],
)
def test_as_it_is_told(
    num: int, settings: dict[str, Any], kind: type[object], caplog: pytest.LogCaptureFixture
) -> None:
    assert type(group_of(make_workers(num), **settings)) is kind
    assert caplog.messages == []


def test_what_cannot_be_stacked_goes_one_by_one_and_it_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    workers = make_workers()
    workers[2].discriminator.model.add_module("more", torch.nn.Identity())
    assert type(group_of(workers, vectorize=True)) is OneByOne
    expected = "the process of rank(s) 1, 2, 3 computes one by one: their models differ"
    assert caplog.messages == [expected]
    caplog.clear()
    assert type(group_of(make_workers(), vectorize=True, compile=True)) is OneByOne
    assert "compiled models are called one by one" in caplog.messages[0]
