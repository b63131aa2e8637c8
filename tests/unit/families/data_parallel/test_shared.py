"""Shared memory gives the bits of one process, however pieces are owned and whichever host dies."""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mdgan.families.data_parallel import shared_network
from mdgan.families.data_parallel.meeting import Meeting, Order
from mdgan.families.data_parallel.scaling import BatchSizes, WorkerShare
from mdgan.families.data_parallel.shared_network import BuffersInOne, LentModel
from mdgan.families.data_parallel.shared_steps import SharedTraining, Stepper, divide
from mdgan.families.data_parallel.step import OF_DISCRIMINATOR, OF_GENERATOR, Reduction
from mdgan.families.data_parallel.vectors import DISCRIMINATOR, GENERATOR, GradientVector
from mdgan.gan.exact_sum import average
from mdgan.gan.model_state import digest_of, optimizer_tensors
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import TrainedModel, make_optimizer
from mdgan.gan.regularizers.spectral_norm import add_spectral_norm

HOSTS = {1: (1,), 2: (2, 3)}
WEIGHTS = {1: 0.5, 2: 0.3, 3: 0.2}
ROUNDS = ((OF_DISCRIMINATOR, DISCRIMINATOR), (OF_GENERATOR, GENERATOR))


def networks() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 33))
    return {GENERATOR: generator, DISCRIMINATOR: nn.Sequential(nn.Conv2d(3, 5, 3), nn.Linear(9, 1))}


class Together:
    """Hosts of one process, one after the other, with a reference that steps as one process."""

    def __init__(self, policy: Policy) -> None:
        models = networks()
        self.reference = {
            name: TrainedModel(model, make_optimizer(model, policy), policy)
            for name, model in copy.deepcopy(models).items()
        }
        policies = dict.fromkeys(models, policy)
        self.shared = SharedTraining(models, policies, HOSTS)
        self.server = {
            name: TrainedModel(model, make_optimizer(model, policy), policy)
            for name, model in models.items()
        }
        for name, network in self.shared.networks.items():
            network.take_in(self.server[name])
        self.replicas = {worker: networks() for worker in WEIGHTS}
        self.lent = {
            worker: {
                name: LentModel(self.shared.networks[name], model, worker)
                for name, model in models.items()
            }
            for worker, models in self.replicas.items()
        }
        for lent in self.lent.values():
            for model in lent.values():
                model.lend()
        self.order = Order(
            0,
            0,
            dict.fromkeys(models, 1.0),
            {n: WorkerShare(BatchSizes(4, 4), weight) for n, weight in WEIGHTS.items()},
        )
        self.shared.meeting.convene(HOSTS, 1, 0)
        self.q = 0

    def give(self, reduction: Reduction, name: str, broken: Sequence[int] = ()) -> None:
        """All workers lay gradients down; the reference steps with their mean."""
        self.q += 1
        random = torch.Generator().manual_seed(self.q)
        results: dict[int, list[Tensor]] = {}
        for worker, models in self.replicas.items():
            parameters = list(models[name].parameters())
            results[worker] = [torch.randn(p.shape, generator=random) for p in parameters]
            for parameter, gradient in zip(parameters, results[worker], strict=True):
                parameter.grad = gradient * (float("nan") if worker in broken else 1.0)
            norm = float(torch.linalg.vector_norm(self.lent[worker][name].lay_down()))
            self.shared.meeting.note(1, worker, reduction, norm, [0.0, 0.0])
            self.shared.buffers[worker].zero_()
        used = [worker for worker in results if worker not in broken]
        for n, parameter in enumerate(self.reference[name].model.parameters()):
            parts = {worker: results[worker][n] for worker in used}
            parameter.grad = average(parts, (), WEIGHTS).float().view_as(parameter)
        self.reference[name].at(1)
        self.reference[name].step()
        for host in HOSTS:
            self.shared.meeting.give(host, self.q)

    def step(self, reduction: Reduction, stepper: Stepper, hosts: Sequence[int] = (1, 2)) -> None:
        for host in hosts:
            stepper.step(host, self.q, 1, reduction, self.order)
            self.shared.meeting.step(host, self.q)

    def same(self) -> bool:
        """Whether the server's state is the reference's."""
        for name, network in self.shared.networks.items():
            network.tell(self.server[name])
        return [digest(own) for own in self.server.values()] == [
            digest(own) for own in self.reference.values()
        ]


def digest(network: TrainedModel) -> str:
    weights = {name: p.detach() for name, p in network.model.named_parameters()}
    return digest_of({**weights, **optimizer_tensors(network.model, network.optimizer)})


POLICIES = [
    Policy(),
    Policy(clip_norm=0.1),
    Policy("sgd", betas=(0.9, 0.0)),
    Policy("radam"),
    Policy("adabelief"),
    Policy("lars", betas=(0.9, 0.0)),
    Policy("lamb"),
]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_owners_step_as_one_process_does(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_network, "PIECE", 32)
    together = Together(policy)
    steppers = {host: Stepper(together.shared) for host in HOSTS}
    for _ in range(4):
        for reduction, name in ROUNDS:
            together.give(reduction, name)
            for host, stepper in steppers.items():
                together.step(reduction, stepper, [host])
    assert together.same()


def test_gradients_that_are_not_finite_are_left_out() -> None:
    together = Together(Policy())
    together.give(OF_DISCRIMINATOR, DISCRIMINATOR, broken=[2])
    together.step(OF_DISCRIMINATOR, Stepper(together.shared))
    assert together.same()
    assert list(together.shared.meeting.refusals(1)) == [2]


class _Died(Exception):
    """In place of a process that is killed."""


@pytest.mark.parametrize("policy", [POLICIES[0], POLICIES[-1]], ids=str)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_another_process_ends_the_step_in_which_one_has_died(
    policy: Policy, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_network, "PIECE", 32)
    together = Together(policy)
    first, dying, server = (Stepper(together.shared) for _ in range(3))
    for reduction, name in ROUNDS:
        together.give(reduction, name)
        together.step(reduction, first)
    together.give(OF_DISCRIMINATOR, DISCRIMINATOR)
    together.step(OF_DISCRIMINATOR, first, [1])
    steps = 0

    def die(step: Callable[[], None]) -> Callable[[], None]:
        def dies() -> None:
            nonlocal steps
            step()  # it has changed its piece, but told no other process
            steps += 1
            if steps > at:
                raise _Died

        return dies

    for piece in dying._pieces[DISCRIMINATOR]:
        monkeypatch.setattr(piece._trained, "step", die(piece._trained.step))
    with pytest.raises(_Died):
        dying.step(2, together.q, 1, OF_DISCRIMINATOR, together.order)
    assert not together.shared.meeting.have_stepped(together.q)
    together.shared.meeting.bury(2)
    assert together.shared.meeting.owes_step(2) == together.q
    together.step(OF_DISCRIMINATOR, server, [2])
    assert together.shared.meeting.have_stepped(together.q)
    assert together.same()


def test_nobody_waits_for_a_host_that_died_before_it_gave() -> None:
    meeting = Meeting(HOSTS)
    meeting.convene(HOSTS, 1, 0)
    meeting.give(1, 1)
    assert not meeting.have_given(1)
    meeting.bury(2)
    assert meeting.have_given(1)
    assert meeting.members(1) == (1,)
    assert not meeting.have_stepped(1)
    meeting.step(1, 1)
    assert meeting.have_stepped(1)


def test_pieces_are_shared_out_evenly() -> None:
    owned = divide([5, 1, 4, 3, 3], 2)
    assert sorted(piece for pieces in owned for piece in pieces) == list(range(5))
    assert [sum(np.array([5, 1, 4, 3, 3])[pieces]) for pieces in owned] == [8, 8]


def test_each_owner_has_as_many_pieces_of_one_size() -> None:
    """A network smaller than a piece would else be stepped by one process alone."""
    together = Together(Policy())
    for network in together.shared.networks.values():
        sizes = [piece.count for piece in network.pieces]
        assert len(sizes) == len(HOSTS)
        assert max(sizes) - min(sizes) < 32


def test_buffers_in_one_are_those_of_a_gradient_vector() -> None:
    models = [nn.Sequential(nn.BatchNorm1d(7), nn.BatchNorm1d(5)), nn.Linear(2, 2)]
    for n, buffer in enumerate(buffer for model in models for buffer in model.buffers()):
        buffer.copy_(torch.rand(buffer.shape) + (1 << 30 + n))
    copies = copy.deepcopy(models)
    vector, in_one = GradientVector([], copies), BuffersInOne(*models)
    values = torch.zeros(in_one.count)
    in_one.read(values)
    theirs = vector.read().flatten()
    assert torch.equal(values[values != 0].sort().values, theirs[theirs != 0].sort().values)
    for model in models:
        for buffer in model.buffers():
            buffer.zero_()
    in_one.write(values.double())
    for ours, before in zip(models[0].buffers(), copies[0].buffers(), strict=True):
        assert torch.equal(ours, before)


def test_a_gradient_may_be_computed_after_other_buffers_have_changed() -> None:
    first, second = nn.BatchNorm1d(7), nn.Linear(7, 7)
    add_spectral_norm(second)
    BuffersInOne(first, second)
    samples = torch.randn(5, 7, requires_grad=True)
    loss = first(samples).square().sum()
    second(samples)
    loss.backward()
    assert samples.grad is not None
