"""Which hosts a plan simulates, and that its bytes are those of a run's messages."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mdgan.data import dataset_file
from mdgan.engine.stages.contract import pack_answers
from mdgan.families import registry
from mdgan.families.mdgan.algorithm import assign
from mdgan.families.mdgan.messages import OUTPUTS, batches, feedback_form, image_codec
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.gan.labels import Samples
from mdgan.plan.measurement import Measurement, Stages, bytes_of_hosts, hosts_to_play
from mdgan.plan.phases import HostStages
from mdgan.plan.prediction import Costs
from mdgan.transport.frames import encode
from tests import forks
from tests.unit.plan.test_prediction import layout


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=30),
    st.integers(1, 9),
    st.integers(1, 50),
    st.integers(1, 8),
)
def test_hosts_that_play(asked: list[int], carried: int, enough: int, most: int) -> None:
    sizes = hosts_to_play(asked, carried, enough, most)
    assert sum(sizes) >= min(enough, sum(asked))
    assert len(sizes) <= len(asked)
    assert {size for size in asked if size <= carried} <= set(sizes)
    pairs = zip(sorted(sizes, reverse=True), sorted(asked, reverse=True), strict=False)
    assert all(size <= size_of_run for size, size_of_run in pairs)


def test_bytes_above_the_largest_host_that_played_grow_evenly() -> None:
    assert bytes_of_hosts({3: 30.0, 4: 32.0, 1: 9.0}, [1, 4, 10]) == (9.0, 32.0, 44.0)


def test_a_host_has_a_message_for_all_its_workers() -> None:
    server, busy = {"send": 0.25, "wait": 0.25, "step": 2.0}, {"send": 1.0, "step": 4.0}
    worker = HostStages({"receive": 0.5, "learn": 3.0, "send": 0.5}, {"learn": 2.0})
    costs = Stages(server, busy, worker, questions=2).costs([1, 3])
    assert costs == Costs((3.0 + 2.0, 9.0 + 2.0), (2.0, 6.0), 2 * 0.5 + 2.0, 2 * 1.0 + 4.0)


@pytest.fixture(scope="module")
def fresh() -> Iterator[Executor]:
    """A process that has never computed; forks of one that has used several threads may hang."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        yield pool


def settings_with(num_workers: int, changes: Mapping[str, str | int]) -> MDGANSettings:
    return MDGANSettings.read({"world_size": 1 + num_workers, "batch_size": 4, **changes})


def count(
    num_workers: int, carried: int, changes: Mapping[str, str | int]
) -> tuple[list[float], list[float]]:
    """What a short run sends to every host, and gets from it."""
    settings = settings_with(num_workers, changes)
    dataset = dataset_file.load("digits", None)
    entry = registry.algorithm(settings.algorithm)
    planning = entry.build().planning(settings, dataset.models, None)
    where = layout(num_workers, carried=carried)
    measurement = Measurement(entry, dataset, where, planning)
    forks.measure_shortly()
    counted = measurement.traffic(measurement.play((1, 0.0)))
    return list(counted.out), list(counted.back)


@pytest.mark.parametrize(
    ("num_workers", "carried", "changes"),
    [
        (9, 2, {"wire": "images=int8,feedback=topk:0.1"}),
        pytest.param(8, 4, {"aggregation": "f2u"}, marks=pytest.mark.slow),
        (12, 12, {"kappa": 2, "batch_size": 16}),
        pytest.param(3, 1, {}, marks=pytest.mark.slow),
    ],
    ids=["codecs", "verdicts", "added up", "small batches"],
)
def test_bytes_are_those_of_encoded_messages(
    fresh: Executor, num_workers: int, carried: int, changes: dict[str, str | int]
) -> None:
    settings = settings_with(num_workers, changes)
    dataset = dataset_file.load("digits", None)
    where = layout(num_workers, carried=carried)
    out, back = fresh.submit(count, num_workers, carried, changes).result()

    form = feedback_form(settings, dataset.shape)
    kappa = settings.batches.kappa_for(num_workers)
    assignment = assign(range(1, num_workers + 1), kappa)
    generated = torch.randn(settings.batches.plan(kappa).generated, *form.shape)
    codec = image_codec(settings)
    for place, host in enumerate(where.hosts):
        pairs = {worker: assignment[worker] for worker in host}
        sent = batches(
            *(7, Samples(generated), pairs),
            swap_follows=False,
            last=False,
            codec=codec,
            train_on_all=settings.batches.trains_on_all,
        )
        answer = pack_answers(
            7,
            {worker: torch.randn(form.shape) for worker in host},
            {worker: torch.randn(2) for worker in host},
            {worker: pair.judge for worker, pair in pairs.items()},
            form,
            {OUTPUTS: {worker: torch.randn(settings.training.batch_size) for worker in host}},
        )
        assert out[place] == pytest.approx(len(encode(sent).body), rel=0.02, abs=70)
        assert back[place] == pytest.approx(len(encode(answer).body), rel=0.02, abs=70)
