"""All workers at once against one after another, with what helps where data are few."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from torch import nn

from mdgan.families.mdgan.discriminator_stack import CannotStack
from mdgan.families.mdgan.stacked_workers import StackedWorkers
from mdgan.families.mdgan.worker import OneByOne, WorkerGroup
from mdgan.gan.augmentation import Augmentation
from mdgan.gan.regularizers import with_spectral_norm
from tests.unit.families.mdgan import test_stacked_workers as plain
from tests.unit.families.mdgan.test_stacked_workers import RANKS, Workers, asked, assert_close
from tests.unit.gan import small
from tests.unit.gan.test_little_data_state import CASES, Case

STACKED = {name: case for name, case in CASES.items() if not case.spectral_norm}


def make_workers(build: Callable[[], nn.Module], case: Case) -> Workers:
    workers = plain.make_workers(build, 2)
    for worker in workers.values():
        worker.rules = replace(worker.rules, **case.rules)
        worker.augmentation = Augmentation(case.augment)
    return workers


@pytest.mark.parametrize("name", STACKED)
@pytest.mark.parametrize("build", [plain.dense, plain.convolutions])
@pytest.mark.usefixtures("double_precision")
def test_it_computes_what_workers_one_by_one_compute(
    name: str, build: Callable[[], nn.Module]
) -> None:
    singly, together = (make_workers(build, STACKED[name]) for _ in range(2))
    groups: list[tuple[Workers, WorkerGroup]] = [
        (singly, OneByOne(singly)),
        (together, StackedWorkers(together, small.SHAPE)),
    ]
    for iteration in range(6):
        ranks = {1: (4, 8), 3: (8,)}.get(iteration, RANKS)
        answers = [plain.named(group.answer(*asked(iteration, ranks))) for _, group in groups]
        assert_close(answers[0], answers[1], 1e-8)
        for workers, group in groups:
            if iteration % 2:
                group.learn_real_halves()
            if iteration in plain.BETWEEN:
                plain.BETWEEN[iteration](workers)
        assert_close(plain.states(singly), plain.states(together), 1e-8)


def test_spectral_norm_goes_one_by_one() -> None:
    workers = make_workers(lambda: with_spectral_norm(plain.dense), Case({}))
    with pytest.raises(CannotStack, match="out="):
        StackedWorkers(workers, small.SHAPE)
