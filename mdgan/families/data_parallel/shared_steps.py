"""Reductions in common memory: each process averages and steps its share of both networks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mdgan.families.data_parallel import shared_network
from mdgan.families.data_parallel.meeting import (
    CommonMemory,
    Meeting,
    Order,
    shared_array,
    shared_tensor,
)
from mdgan.families.data_parallel.step import Reduction
from mdgan.gan.exact_sum import MeanOfRows
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import COUNTS, TrainedModel, make_optimizer


class Journal(NamedTuple):
    """The values of a piece before its step, which the server restores if the host then dies."""

    values: Tensor  # weights, then each moment
    noted: np.ndarray


class SharedTraining(CommonMemory):
    """The whole common memory: both networks, and the numbers by which processes keep in step.

    Args:
        models: networks of the architectures, by name.
        hosts: all that may take part, each with its workers.

    Attributes:
        buffers: by worker, the buffers of both models after its last iteration; `mean_buffers`:
            their mean.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        policies: Mapping[str, Policy],
        hosts: Mapping[int, Sequence[int]],
    ) -> None:
        super().__init__(hosts)
        self.meeting = Meeting(hosts)
        workers = list(self.meeting.host_of)
        self.networks = {
            name: shared_network.SharedNetwork(model, policies[name], workers, len(hosts))
            for name, model in models.items()
        }
        count = shared_network.BuffersInOne(*models.values()).count
        self.buffers = {worker: shared_tensor(count) for worker in workers}
        self.mean_buffers = shared_tensor(count, np.float64)
        largest = max(
            (1 + len(network.moments)) * max((piece.count for piece in network.pieces), default=0)
            for network in self.networks.values()
        )
        num_noted = max(network.num_noted for network in self.networks.values())
        self.journals = {
            host: Journal(shared_tensor(largest), shared_array(np.float64, num_noted))
            for host in hosts
        }


class _PieceSteps:
    """One process's optimizer of one piece. Another process may have stepped the piece since."""

    def __init__(
        self,
        network: shared_network.SharedNetwork,
        piece: shared_network.Piece,
        gradient: Tensor,
        mean: MeanOfRows,
    ) -> None:
        self.gradient = gradient
        self._mean = mean
        tensors = piece.tensors(piece.of(network.weights))
        self.parameters = [nn.Parameter(tensor) for tensor in tensors]
        for parameter, part in zip(self.parameters, piece.tensors(gradient), strict=True):
            parameter.grad = part
        model = nn.ParameterList(self.parameters)
        policy = replace(network.policy, clip_norm=None)  # `Stepper` clips all pieces together
        self._trained = TrainedModel(model, make_optimizer(model, policy), policy)
        self._counts_steps = network.kept.counts_steps
        self._laid_down = {n: piece.of(network.gradients[row]) for n, row in network.row_of.items()}
        self._noted = network.noted[piece.number]
        self._parts = [piece.of(flat) for flat in (network.weights, *network.moments.values())]
        moments = {name: piece.tensors(piece.of(flat)) for name, flat in network.moments.items()}
        self._kept = [
            {
                **{name: parts[n] for name, parts in moments.items()},
                **{name: torch.zeros(()) for name in network.kept.numbers},
            }
            for n in range(len(self.parameters))
        ]
        self._numbers = network.kept.numbers
        self._noted_by_this: list[float] = []

    def add_up(self, weights: Mapping[int, float]) -> None:
        rows = [self._laid_down[worker] for worker in sorted(weights)]
        self._mean.write(self.gradient, rows, weights)

    def save(self, journal: Journal) -> None:
        torch.cat(self._parts, out=journal.values[: len(self._parts) * len(self.gradient)])
        journal.noted[: len(self._noted)] = self._noted

    def restore(self, journal: Journal) -> None:
        for n, part in enumerate(self._parts):
            part.copy_(journal.values[n * len(part) : (n + 1) * len(part)])
        self._noted[:] = journal.noted[: len(self._noted)]

    def step(self, iteration: int, rate: float) -> None:
        optimizer, noted = self._trained.optimizer, self._noted
        (group,) = optimizer.param_groups
        states = optimizer.state
        if noted.tolist() != self._noted_by_this:
            for parameter, kept in zip(self.parameters, self._kept, strict=True):
                for name, value in zip(self._numbers, noted[shared_network.NUMBERS :], strict=True):
                    kept[name].fill_(float(value))
                states[parameter] = {**kept} if noted[shared_network.STEPPED] else {}
            if self._counts_steps:
                group[COUNTS[0]] = int(noted[shared_network.COUNT])
        self._trained.at(iteration, rate)
        self._trained.step()
        for parameter, kept in zip(self.parameters, self._kept, strict=True):
            for name, value in states[parameter].items():
                if value is kept[name]:
                    continue
                if name not in self._numbers:  # the optimizer's first step has made a new tensor
                    states[parameter][name] = value = kept[name].copy_(value)
                kept[name] = value
        first = states[self.parameters[0]]
        noted[shared_network.NUMBERS :] = [float(first[name]) for name in self._numbers]
        noted[shared_network.COUNT] = group.get(COUNTS[0], 0)
        noted[shared_network.STEPPED] = 1.0
        self._noted_by_this = noted.tolist()


def _steps_of(network: shared_network.SharedNetwork, mean: MeanOfRows) -> list[_PieceSteps]:
    largest = max((piece.count for piece in network.pieces), default=0)
    one, is_clipped = torch.zeros(largest), network.policy.clip_norm is not None
    return [
        # The norm of all gradients needs them at the same time: each piece has its own memory.
        _PieceSteps(network, piece, torch.zeros(n) if is_clipped else one[:n], mean=mean)
        for piece, n in ((piece, piece.count) for piece in network.pieces)
    ]


_Task = tuple[str, _PieceSteps | None]  # a network and a piece of it; None: the buffers of both


class Stepper:
    """Averages and steps the share of one host: a host calls it, or the server for a dead one."""

    def __init__(self, shared: SharedTraining) -> None:
        self._shared = shared
        self._meeting = shared.meeting
        self._mean = MeanOfRows()
        self._pieces = {n: _steps_of(network, self._mean) for n, network in shared.networks.items()}
        self._divided: dict[tuple[Reduction, tuple[int, ...]], list[list[_Task]]] = {}

    @torch.no_grad()
    def step(self, host: int, q: int, iteration: int, reduction: Reduction, order: Order) -> None:
        """Steps the rest of a host's share in reduction q, once all hosts have given gradients."""
        meeting, members = self._meeting, self._meeting.members(q)
        workers = [n for n in order.shares if meeting.host_of[n] in members]
        usable = meeting.usable(workers, reduction)
        for worker in workers:
            if worker not in usable and meeting.host_of[worker] == host:
                meeting.refuse(iteration, worker)
        if not usable:
            return
        weights = {n: order.shares[n].weight for n in usable}
        networks = self._shared.networks
        most_norms = {name: network.policy.clip_norm for name, network in networks.items()}
        for name in reduction.networks:
            if (most := most_norms[name]) is not None:
                for piece in self._pieces[name]:
                    piece.add_up(weights)
                parameters = [p for piece in self._pieces[name] for p in piece.parameters]
                nn.utils.clip_grad_norm_(parameters, most)
        journal = self._shared.journals[host]
        tasks = self._share(reduction, members, host)
        begin, is_saved = meeting.position(host, q)
        for n, (name, task) in enumerate(tasks[begin:], begin):
            if task is None:
                rows = [self._shared.buffers[worker] for worker in sorted(weights)]
                self._mean.write(self._shared.mean_buffers, rows, weights)
                continue
            if is_saved:
                task.restore(journal)
                is_saved = False
            if most_norms[name] is None:
                task.add_up(weights)
            task.save(journal)
            meeting.note_saved(host, q, n)
            task.step(iteration, order.rates[name])
            meeting.note_stepped(host, q, n + 1)

    def _share(self, reduction: Reduction, members: tuple[int, ...], host: int) -> list[_Task]:
        """The tasks of a host in a reduction."""
        key = reduction, members
        if key not in self._divided:
            pieces = [(n, piece) for n in reduction.networks for piece in self._pieces[n]]
            sizes = [len(piece.gradient) for _, piece in pieces]
            tasks: list[_Task] = [*pieces]
            if reduction.last and len(self._shared.mean_buffers):
                tasks.append(("", None))
                sizes.append(self._shared.mean_buffers.numel())
            shares = divide(sizes, len(members))
            self._divided[key] = [[tasks[n] for n in owned] for owned in shares]
        return self._divided[key][members.index(host)]


def divide(sizes: Sequence[int], num_owners: int) -> list[list[int]]:
    """Deals out pieces, the largest first, each to the owner with the least (Graham 1969)."""
    owned: list[list[int]] = [[] for _ in range(num_owners)]
    load = [0] * num_owners
    for piece in sorted(range(len(sizes)), key=lambda piece: (-sizes[piece], piece)):
        owner = load.index(min(load))
        owned[owner].append(piece)
        load[owner] += sizes[piece]
    return [sorted(pieces) for pieces in owned]
