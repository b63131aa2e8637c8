"""Reductions in common memory: what a process adds up and steps of both networks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mdgan.families.data_parallel.common_memory import CommonMemory, Room
from mdgan.families.data_parallel.meeting import Meeting, Order
from mdgan.families.data_parallel.replica import Reduction
from mdgan.families.data_parallel.shared_buffers import BuffersInOne
from mdgan.families.data_parallel.shared_network import (
    COUNT,
    NUMBERS,
    STEPPED,
    Piece,
    SharedNetwork,
)
from mdgan.gan.exact_sum import MeanOfRows
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import COUNTS, TrainedModel, make_optimizer


class Journal(NamedTuple):
    """Where a host keeps a piece as it was before the step that it takes."""

    values: Tensor
    """Weights, then each moment."""
    noted: np.ndarray


class SharedTraining:
    """Both networks in common memory, and where the processes meet that train them.

    Args:
        models: of the architectures, by network.
        hosts: all that may take part, each with its workers.
        memory: None only to find out how many bytes it takes.

    Attributes:
        buffers: by worker, the buffers of both models after its last iteration; `mean_buffers`:
            their mean.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        policies: Mapping[str, Policy],
        hosts: Mapping[int, Sequence[int]],
        memory: CommonMemory | None = None,
    ) -> None:
        room = Room(memory)
        self.meeting = Meeting(hosts, room)
        workers = list(self.meeting.host_of)
        self.networks = {
            name: SharedNetwork(model, policies[name], workers, len(hosts), room)
            for name, model in models.items()
        }
        count = BuffersInOne(*models.values()).count
        self.buffers = {worker: room.tensor(count) for worker in workers}
        self.mean_buffers = room.tensor(count, torch.float64)
        largest = max(
            (1 + len(network.moments)) * max((piece.count for piece in network.pieces), default=0)
            for network in self.networks.values()
        )
        num_noted = max(network.num_noted for network in self.networks.values())
        self.journals = {
            host: Journal(room.tensor(largest), room.array(np.float64, num_noted)) for host in hosts
        }
        self.num_bytes = room.num_bytes


class _PieceSteps:
    """The optimizer of one piece. Another process may have stepped the piece since."""

    def __init__(
        self, network: SharedNetwork, piece: Piece, gradient: Tensor, mean: MeanOfRows
    ) -> None:
        self.gradient = gradient
        self._mean = mean
        tensors = piece.tensors(piece.of(network.weights))
        self.parameters = [nn.Parameter(tensor) for tensor in tensors]
        for parameter, part in zip(self.parameters, piece.tensors(gradient), strict=True):
            parameter.grad = part
        model = nn.ParameterList(self.parameters)
        policy = replace(network.policy, clip_norm=None)  # that is of all pieces together
        self._trained = TrainedModel(model, make_optimizer(model, policy), policy)
        self._counts_steps = network.kept.counts_steps
        self._laid_down = {n: piece.of(network.gradients[row]) for n, row in network.row_of.items()}
        self._noted = network.noted[piece.number]
        self._parts = [piece.of(flat) for flat in (network.weights, *network.moments.values())]
        moments = {name: piece.tensors(piece.of(own)) for name, own in network.moments.items()}
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
        """Puts the mean of some workers' gradients in place."""
        rows = [self._laid_down[worker] for worker in sorted(weights)]
        self._mean.write(self.gradient, rows, weights)

    def save(self, journal: Journal) -> None:
        """Keeps everything that a step changes."""
        torch.cat(self._parts, out=journal.values[: len(self._parts) * len(self.gradient)])
        journal.noted[: len(self._noted)] = self._noted

    def restore(self, journal: Journal) -> None:
        """Takes everything back."""
        for n, part in enumerate(self._parts):
            part.copy_(journal.values[n * len(part) : (n + 1) * len(part)])
        self._noted[:] = journal.noted[: len(self._noted)]

    def step(self, iteration: int, rate: float) -> None:
        """One step with the gradient that is in place."""
        optimizer, noted = self._trained.optimizer, self._noted
        (group,) = optimizer.param_groups
        states = optimizer.state
        if noted.tolist() != self._noted_by_this:
            for parameter, kept in zip(self.parameters, self._kept, strict=True):
                for name, value in zip(self._numbers, noted[NUMBERS:], strict=True):
                    kept[name].fill_(float(value))
                states[parameter] = {**kept} if noted[STEPPED] else {}
            if self._counts_steps:
                group[COUNTS[0]] = int(noted[COUNT])
        self._trained.at(iteration, rate)
        self._trained.step()
        for parameter, kept in zip(self.parameters, self._kept, strict=True):
            for name, own in states[parameter].items():
                if own is kept[name]:
                    continue
                if name not in self._numbers:  # the first step has made it
                    states[parameter][name] = own = kept[name].copy_(own)
                kept[name] = own
        first = states[self.parameters[0]]
        noted[NUMBERS:] = [float(first[name]) for name in self._numbers]
        noted[COUNT] = group.get(COUNTS[0], 0)
        noted[STEPPED] = 1.0
        self._noted_by_this = noted.tolist()


class _NetworkSteps:
    """What a process steps of one network."""

    def __init__(self, network: SharedNetwork, mean: MeanOfRows) -> None:
        self.sizes = [piece.count for piece in network.pieces]
        self.clip_norm = network.policy.clip_norm
        largest = max(self.sizes, default=0)
        one, self.pieces = torch.zeros(largest), []
        for piece, size in zip(network.pieces, self.sizes, strict=True):
            # The norm of all gradients together needs them all at a time.
            gradient = one[:size] if self.clip_norm is None else torch.zeros(size)
            self.pieces.append(_PieceSteps(network, piece, gradient, mean))

    def clip(self, weights: Mapping[int, float]) -> None:
        """Adds up all gradients, and scales them down together."""
        for piece in self.pieces:
            piece.add_up(weights)
        parameters = [parameter for piece in self.pieces for parameter in piece.parameters]
        nn.utils.clip_grad_norm_(parameters, float(self.clip_norm or 0.0))


class _Task(NamedTuple):
    """A piece of a network; of none the buffers of both."""

    network: str
    piece: int = 0


_BUFFERS = _Task("")


class Stepper:
    """What one process adds up and steps: its own share, or that of a host that has died."""

    def __init__(self, shared: SharedTraining) -> None:
        self._shared = shared
        self._meeting = shared.meeting
        self._mean = MeanOfRows()
        self._networks = {n: _NetworkSteps(own, self._mean) for n, own in shared.networks.items()}
        self._divided: dict[tuple[Reduction, tuple[int, ...]], list[list[_Task]]] = {}

    @torch.no_grad()
    def step(self, host: int, q: int, iteration: int, reduction: Reduction, order: Order) -> None:
        """Steps a host's share in reduction q, from where that host has got to.

        All hosts have given their gradients.
        """
        meeting, members = self._meeting, self._meeting.members(q)
        given = [n for n in order.shares if meeting.host_of[n] in members]
        usable = meeting.usable(given, reduction)
        for worker in given:
            if worker not in usable and meeting.host_of[worker] == host:
                meeting.refuse(iteration, worker)
        if not usable:
            return
        weights = {n: order.shares[n].weight for n in usable}
        for name in reduction.networks:
            if self._networks[name].clip_norm is not None:
                self._networks[name].clip(weights)
        journal = self._shared.journals[host]
        tasks = self._share(reduction, members, host)
        begin, is_saved = meeting.position(host, q)
        for n, task in enumerate(tasks[begin:], begin):
            if task == _BUFFERS:
                rows = [self._shared.buffers[worker] for worker in sorted(weights)]
                self._mean.write(self._shared.mean_buffers, rows, weights)
                continue
            network = self._networks[task.network]
            piece = network.pieces[task.piece]
            if is_saved:
                piece.restore(journal)
                is_saved = False
            if network.clip_norm is None:
                piece.add_up(weights)
            piece.save(journal)
            meeting.note_saved(host, q, n)
            piece.step(iteration, order.rates[task.network])
            meeting.note_stepped(host, q, n + 1)

    def _share(self, reduction: Reduction, members: tuple[int, ...], host: int) -> list[_Task]:
        """What a host steps in a reduction."""
        key = reduction, members
        if key not in self._divided:
            tasks = [
                _Task(name, n)
                for name in reduction.networks
                for n in range(len(self._networks[name].pieces))
            ]
            sizes = [self._networks[task.network].sizes[task.piece] for task in tasks]
            if reduction.last and len(self._shared.mean_buffers):
                tasks.append(_BUFFERS)
                sizes.append(self._shared.mean_buffers.numel())
            shares = divide(sizes, len(members))
            self._divided[key] = [[tasks[n] for n in owned] for owned in shares]
        return self._divided[key][members.index(host)]


def divide(sizes: Sequence[int], num_owners: int) -> list[list[int]]:
    """Shares out pieces: which ones each owner has, in increasing order.

    The largest first, each to the owner with the least so far (Graham 1969).
    """
    owned: list[list[int]] = [[] for _ in range(num_owners)]
    load = [0] * num_owners
    for piece in sorted(range(len(sizes)), key=lambda piece: (-sizes[piece], piece)):
        owner = load.index(min(load))
        owned[owner].append(piece)
        load[owner] += sizes[piece]
    return [sorted(pieces) for pieces in owned]
