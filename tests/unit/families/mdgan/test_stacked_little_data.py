"""Workers at once and one after another agree, with options for little data."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from mdgan.families.mdgan.host import OneByOne
from mdgan.families.mdgan.variants.stacked import StackedWorkers
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.labels import Samples
from mdgan.gan.model_stack import CannotStack
from mdgan.gan.regularizers.contract import Regularizers
from mdgan.gan.regularizers.gradient_penalty import GradientPenalty
from mdgan.gan.regularizers.r1 import R1
from mdgan.gan.regularizers.spectral_norm import add_spectral_norm
from tests.unit.families.mdgan import test_stacked_workers as plain
from tests.unit.families.mdgan.test_stacked_workers import RANKS, Workers, asked, assert_close
from tests.unit.gan import conditional, small
from tests.unit.gan.test_little_data_state import CASES, Case

STACKED = {name: case for name, case in CASES.items() if not case.spectral_norm}


def make_workers(build: Callable[[], nn.Module], case: Case) -> Workers:
    workers = plain.make_workers(build, 2)
    for worker in workers.values():
        worker.rules = replace(worker.rules, **case.rules)
        worker.regularizers = Regularizers(case.regularizers())
    return workers


@pytest.mark.parametrize("name", STACKED)
@pytest.mark.parametrize("build", [plain.dense, plain.convolutions])
@pytest.mark.usefixtures("double_precision")
def test_it_computes_what_workers_one_by_one_compute(
    name: str, build: Callable[[], nn.Module]
) -> None:
    singly, together = (make_workers(build, STACKED[name]) for _ in range(2))
    groups: list[tuple[Workers, OneByOne]] = [
        (singly, OneByOne(singly)),
        (together, StackedWorkers(together, sample_shape=small.SHAPE)),
    ]
    for iteration in range(4):
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
    def build() -> nn.Module:
        model = plain.dense()
        add_spectral_norm(model)
        return model

    workers = make_workers(build, Case(list))
    with pytest.raises(CannotStack, match="out="):
        StackedWorkers(workers, sample_shape=small.SHAPE)


@pytest.mark.parametrize("kind", conditional.KINDS)
@pytest.mark.parametrize("name", ["none", "penalties"])
@pytest.mark.usefixtures("double_precision")
def test_conditional_discriminators_are_stacked(kind: str, name: str) -> None:
    penalties = [R1(1.0), GradientPenalty(2.0)] if name == "penalties" else []
    made = conditional.KINDS[kind]
    singly, together = (
        {rank: undisturbed(conditional.make_worker(made, rank, penalties)) for rank in RANKS}
        for _ in range(2)
    )
    groups: list[OneByOne] = [OneByOne(singly), StackedWorkers(together, sample_shape=small.SHAPE)]
    for iteration in range(6):  # every answer tells what was learnt before
        generated, assignment = asked(iteration)
        labels = [conditional.samples(10 * iteration + place).labels for place in range(3)]
        batches = Samples(generated.images, torch.stack([y for y in labels if y is not None]))
        answers = [plain.named(group.answer(batches, assignment)) for group in groups]
        assert_close(answers[0], answers[1], 1e-8)


def undisturbed(worker: Worker) -> Worker:
    """Without dropout, whose masks are others in a stack."""
    for layer in worker.discriminator.model.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    return worker
