"""How the server and the hosts of one machine keep in step, by numbers in memory that they share.

The launcher makes the memory before it forks, so only its children have it: it has no name that
another program could open, and the system frees it when the last child ends.

Reductions (see `step.py`) have numbers over the whole run: q = 1, 2, … In each, every host lays the
gradients of its workers in the memory (it *gives* them), waits until all hosts have given theirs,
steps its share of the weights, and waits until all have stepped. One process alone writes a number.

The server lets hosts begin an iteration, at most the one after that which it waits for. While the
server reads the generator of an iteration, hosts work on the next one, up to the step that would
change the generator.

A host whose process has ended is *over*: no process waits for it. It takes part in a reduction if
it had given its gradients before. All others agree on that, since it can give no more.
"""

import mmap
import multiprocessing
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf, isfinite, isnan, prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mdgan.engine.stages.screen import ABSURD_FACTOR, LEAST_VOTES
from mdgan.families.data_parallel.scaling import BatchSizes, WorkerShare
from mdgan.families.data_parallel.step import Reduction
from mdgan.families.data_parallel.vectors import DISCRIMINATOR, GENERATOR

SERVER = 0  # the number of the server's bell; a host's bell has the number of the host
_LOOK_SECONDS = 0.1
_NETWORKS = (DISCRIMINATOR, GENERATOR)
_KINDS = ((DISCRIMINATOR,), (GENERATOR,), _NETWORKS)
"""The kinds of reductions, by their networks; each has its own usual norm."""
_AT_ONCE = 2  # iterations that have a place in the arrays: the present one, and the next
_STEPS = 1 << 24  # more than one process takes in a reduction
_NO_END = 1 << 62
UNTIL, END, LOOKED_AT, GIVEN_UP = range(4)
"""The places in `Meeting.server`: the last iteration that hosts may begin; the last one before they
part, that is, answer, and listen to the server's messages again; the last one whose generator the
server has read; and 1 if hosts must part at once, wherever they are."""


def shared_array(dtype: type[np.generic], *shape: int) -> npt.NDArray[Any]:
    """Zeros that this process shares with its forks; only those that are written take memory.

    Raises:
        OSError: the system has no such memory.
    """
    memory = mmap.mmap(-1, max(1, prod(shape) * np.dtype(dtype).itemsize))
    return np.ndarray(shape, dtype, memory)


def shared_tensor(count: int, dtype: type[np.generic] = np.float32) -> Tensor:
    """A `shared_array` as a tensor of one dimension."""
    return torch.from_numpy(shared_array(dtype, count))


class CommonMemory:
    """The part of the memory that does not depend on networks: a bell for each process.

    Args:
        hosts: those that share it with the server, each with its workers.

    Attributes:
        token: a secret by which a host shows the server that it has this memory.

    Raises:
        OSError: the system has no such memory, or no semaphores.
    """

    def __init__(self, hosts: Mapping[int, Sequence[int]]) -> None:
        forks = multiprocessing.get_context("fork")
        self.hosts = {host: tuple(workers) for host, workers in hosts.items()}
        self.token = secrets.token_hex(16)
        self._bells = {number: forks.Semaphore(0) for number in (SERVER, *hosts)}

    def wake(self, numbers: Iterable[int]) -> None:
        """Rings the bells of some processes, whether they wait or not."""
        for number in numbers:
            self._bells[number].release()

    def wait(self, number: int, is_over: Callable[[], bool]) -> bool:
        """Waits for a condition on numbers that another process writes before it rings the bell.

        Returns:
            Whether the condition holds; False after a short while, so that the caller can do other
            work and call again.
        """
        bell = self._bells[number]
        while not is_over():
            if not bell.acquire(timeout=_LOOK_SECONDS):
                return is_over()
        while bell.acquire(block=False):  # drops rings for numbers that were read above
            pass
        return True


class Order(NamedTuple):
    """What the server orders the hosts to do in an iteration."""

    before: int  # the number of the last reduction before it
    first: int  # which of its reductions hosts begin with, counted from 0
    rates: Mapping[str, float]  # by network, the factor of the learning rate
    shares: Mapping[int, WorkerShare]  # by worker; one without a share does not train


class Meeting:
    """The numbers that the processes share; `hosts` are all that may meet, with their workers."""

    def __init__(self, hosts: Mapping[int, Sequence[int]]) -> None:
        self.host_of = {n: host for host, workers in hosts.items() for n in workers}
        self._rows = {host: row for row, host in enumerate(hosts)}
        self._columns = {n: column for column, n in enumerate(self.host_of)}
        num_hosts, num_workers = len(self._rows), len(self._columns)
        # The server writes these.
        self.server = shared_array(np.int64, 4)  # at `UNTIL`, `END`, `LOOKED_AT` and `GIVEN_UP`
        self._orders = shared_array(np.int64, _AT_ONCE, 2)
        self._rates = shared_array(np.float64, _AT_ONCE, len(_NETWORKS))
        self._shares = shared_array(np.float64, _AT_ONCE, num_workers, 3)
        self._over = shared_array(np.int64, num_hosts)
        # Hosts write these, or the server for a host that is over.
        self.given = shared_array(np.int64, num_hosts)  # the last q whose gradients it has given
        self.stepped = shared_array(np.int64, num_hosts)  # the last q whose share it has stepped
        self._positions = shared_array(np.int64, num_hosts, 2)
        self._norms = shared_array(np.float64, num_workers)
        self._largest = shared_array(np.float64, num_workers, len(_KINDS))
        self._losses = shared_array(np.float32, _AT_ONCE, num_workers, 2)
        self._refused = shared_array(np.float64, _AT_ONCE, num_workers)

    # The server calls these.

    def convene(self, hosts: Collection[int], iteration: int, before: int) -> None:
        """Resets the numbers for waiting hosts that begin with an iteration, after q = `before`."""
        for host, row in self._rows.items():
            self.given[row] = self.stepped[row] = before
            self._over[row] = host not in hosts
        self.server[:] = iteration - 1, _NO_END, iteration - 1, 0

    def write_order(self, iteration: int, order: Order) -> None:
        """Writes the order for an iteration that no host has begun."""
        place = iteration % _AT_ONCE
        self._orders[place] = order.before, order.first
        self._rates[place] = [order.rates[network] for network in _NETWORKS]
        self._shares[place] = 0.0
        for worker, (sizes, weight) in order.shares.items():
            self._shares[place, self._columns[worker]] = *sizes, weight
        self._refused[place] = 0.0

    def bury(self, host: int) -> None:
        """Records that a host's process has ended."""
        self._over[self._rows[host]] = 1

    def owes_step(self, host: int) -> int:
        """The reduction whose share a host that is over has not stepped; 0 if there is none."""
        row = self._rows[host]
        given = int(self.given[row])
        return given if self._over[row] and self.stepped[row] < given else 0

    def num_stepped(self, host: int) -> int:
        """The last reduction in which a host has stepped its share."""
        return int(self.stepped[self._rows[host]])

    def slowest(self, hosts: Collection[int]) -> list[int]:
        """The hosts among these that keep the others waiting."""
        done = {host: self.given[self._rows[host]] + self.num_stepped(host) for host in hosts}
        return [host for host in hosts if done[host] == min(done.values())]

    def losses(self, iteration: int, workers: Sequence[int]) -> npt.NDArray[np.float32]:
        """J_disc and J_gen of some workers in an iteration, float32 [N, 2]."""
        columns = [self._columns[worker] for worker in workers]
        losses: npt.NDArray[np.float32] = self._losses[iteration % _AT_ONCE][columns]
        return losses

    def refusals(self, iteration: int) -> dict[int, float]:
        """The workers whose gradients hosts left out in an iteration, with the norms of these."""
        refused = self._refused[iteration % _AT_ONCE]
        norm_of = {n: float(refused[column]) for n, column in self._columns.items()}
        return {n: norm for n, norm in norm_of.items() if norm != 0.0}

    # Hosts call these.

    def order_for(self, iteration: int) -> Order:
        """Reads the order for an iteration that hosts may begin."""
        place = iteration % _AT_ONCE
        before, first = map(int, self._orders[place])
        rows = zip(self._columns, self._shares[place], strict=True)
        shares = {
            n: WorkerShare(BatchSizes(int(learning), int(judging)), float(weight))
            for n, (learning, judging, weight) in rows
            if weight
        }
        rates = dict(zip(_NETWORKS, map(float, self._rates[place]), strict=True))
        return Order(before, first, rates, shares=shares)

    def note(
        self,
        iteration: int,
        worker: int,
        reduction: Reduction,
        norm: float,
        losses: Sequence[float],
    ) -> None:
        """Writes the norm of a worker's gradients, and its losses."""
        column, kind = self._columns[worker], _KINDS.index(reduction.networks)
        self._norms[column] = norm
        if isfinite(norm):
            self._largest[column, kind] = max(self._largest[column, kind], norm)
        self._losses[iteration % _AT_ONCE, column] = losses

    def give(self, host: int, q: int) -> None:
        """Records that a host has given its gradients for reduction q."""
        self.given[self._rows[host]] = q

    def step(self, host: int, q: int) -> None:
        """Records that a host has stepped its share of the weights in reduction q."""
        self.stepped[self._rows[host]] = q

    def refuse(self, iteration: int, worker: int) -> None:
        """Records that hosts leave out a worker's gradients."""
        norm = self._norms[self._columns[worker]]
        self._refused[iteration % _AT_ONCE, self._columns[worker]] = norm if norm else inf

    # The server and hosts call these.

    def have_given(self, q: int) -> bool:
        """Whether all hosts that are not over have given their gradients."""
        # For so few numbers Python is faster than numpy.
        given_or_over = zip(self.given.tolist(), self._over.tolist(), strict=True)
        return all(given >= q or is_over for given, is_over in given_or_over)

    def members(self, q: int) -> tuple[int, ...]:
        """The hosts that take part in a reduction, once `have_given`."""
        return tuple(host for host, row in self._rows.items() if self.given[row] >= q)

    def have_stepped(self, q: int) -> bool:
        """Whether all hosts that take part in a reduction have stepped."""
        stepped = zip(self.stepped.tolist(), self.given.tolist(), strict=True)
        return all(done >= q or given < q for done, given in stepped) and self.have_given(q)

    def usable(self, workers: Sequence[int], reduction: Reduction) -> list[int]:
        """The workers whose gradients are finite, and not absurdly longer than usual.

        As in `engine/stages/screen.py`, usual is the median of each worker's largest norm so far.
        """
        columns, kind = [self._columns[n] for n in workers], _KINDS.index(reduction.networks)
        votes = sorted(float(vote) for vote in self._largest[columns, kind])
        usual = votes[len(votes) // 2] if len(votes) >= LEAST_VOTES else 0.0
        most = ABSURD_FACTOR * usual if usual else inf
        norms = zip(workers, map(float, self._norms[columns]), strict=True)
        return [n for n, norm in norms if isfinite(norm) and norm <= most]

    def position(self, host: int, q: int) -> tuple[int, bool]:
        """How many pieces a host has stepped in a reduction, and whether it has saved the next."""
        stepped, saved = map(int, self._positions[self._rows[host]])
        done = stepped - q * _STEPS if stepped >= q * _STEPS else 0
        return done, saved == q * _STEPS + done

    def note_saved(self, host: int, q: int, piece: int) -> None:
        """Records that a host has saved a piece in its journal, and begins to step it."""
        self._positions[self._rows[host], 1] = q * _STEPS + piece

    def note_stepped(self, host: int, q: int, num_pieces: int) -> None:
        """Records how many pieces of its share a host has stepped."""
        self._positions[self._rows[host], 0] = q * _STEPS + num_pieces


def why_left_out(norm: float) -> str:
    """The reason, for the log, for which hosts left out gradients of this norm."""
    return "NaN or Inf" if isnan(norm) or norm == inf else f"norm {norm:.2g}, far above the usual"
