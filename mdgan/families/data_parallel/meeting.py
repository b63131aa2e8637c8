"""How the server and the hosts of one machine meet, through numbers in memory that they share.

The launcher makes the memory before it forks, so only its own children have it: it has no name that
another program could open, and nothing is left of it when the last of them is gone.

Reductions are counted over the whole run: q = 1, 2, … In each of them every host gives the
gradients of its workers, waits until all have given theirs, steps its share of the weights, and
waits until all have stepped. A number has one process that writes it.

The server lets iterations begin, at most one ahead of the one that it waits for. While it looks at
the generator of an iteration, hosts work on the next one, up to the step that would change it.

A host that has died is over: nothing waits for it any more. It took part in a reduction if it had
given its gradients by then. That is the same for all others, since nothing can change it.
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

SERVER = 0  # the number of the server's bell; that of a host is its own
_LOOK_SECONDS = 0.1
_NETWORKS = (DISCRIMINATOR, GENERATOR)
_KINDS = ((DISCRIMINATOR,), (GENERATOR,), _NETWORKS)
"""Of reductions; what norm is usual is known of each."""
_AT_ONCE = 2  # iterations of which something is written: the present one, and the next
_STEPS = 1 << 24  # more than one process takes in a reduction
_NO_END = 1 << 62
UNTIL, END, LOOKED_AT, GIVEN_UP = range(4)
"""What `Meeting.server` says: up to which iteration hosts may begin; after which they part, and
listen to the server's messages again; up to which the server has all that it needs of the
generator; and 1 if hosts part at once, wherever they are."""


def shared_array(dtype: type[np.generic], *shape: int) -> npt.NDArray[Any]:
    """Zeros that this process shares with its forks; only those that are written take memory.

    Raises:
        OSError: the system has no such memory.
    """
    memory = mmap.mmap(-1, max(1, prod(shape) * np.dtype(dtype).itemsize))
    return np.ndarray(shape, dtype, memory)


def shared_tensor(count: int, dtype: type[np.generic] = np.float32) -> Tensor:
    """The same as a tensor of one dimension."""
    return torch.from_numpy(shared_array(dtype, count))


class CommonMemory:
    """What processes share that train together.

    Args:
        hosts: those that share it with the server, each with its workers.

    Attributes:
        token: what only a process with this memory knows.

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
        """Waits until something is so that another process writes before it rings.

        Returns:
            Whether it is so; False after a short while, for the caller to look at other things.
        """
        bell = self._bells[number]
        while not is_over():
            if not bell.acquire(timeout=_LOOK_SECONDS):
                return is_over()
        while bell.acquire(block=False):  # rings for what has been seen by now
            pass
        return True


class Order(NamedTuple):
    """What the hosts are to do in an iteration."""

    before: int  # how many reductions there were before
    first: int  # which one of the iteration is the first that is left to do, counted from 0
    rates: Mapping[str, float]  # by what the networks' learning rates are multiplied
    shares: Mapping[int, WorkerShare]  # of the workers that find gradients


class Meeting:
    """The numbers; see above. `hosts` are all that may take part, each with its workers."""

    def __init__(self, hosts: Mapping[int, Sequence[int]]) -> None:
        self.host_of = {n: host for host, workers in hosts.items() for n in workers}
        self._rows = {host: row for row, host in enumerate(hosts)}
        self._columns = {n: column for column, n in enumerate(self.host_of)}
        num_hosts, num_workers = len(self._rows), len(self._columns)
        # Written by the server.
        # Four of the server's, by `UNTIL`, `END`, `LOOKED_AT` and `GIVEN_UP`.
        self.server = shared_array(np.int64, 4)
        self._orders = shared_array(np.int64, _AT_ONCE, 2)
        self._rates = shared_array(np.float64, _AT_ONCE, len(_NETWORKS))
        self._shares = shared_array(np.float64, _AT_ONCE, num_workers, 3)
        self._over = shared_array(np.int64, num_hosts)
        # Written by hosts, or by the server for one that is over.
        # The last reduction for which each host has given its gradients; `stepped`: in which it has
        # stepped its share.
        self.given = shared_array(np.int64, num_hosts)
        self.stepped = shared_array(np.int64, num_hosts)
        self._positions = shared_array(np.int64, num_hosts, 2)
        self._norms = shared_array(np.float64, num_workers)
        self._largest = shared_array(np.float64, num_workers, len(_KINDS))
        self._losses = shared_array(np.float32, _AT_ONCE, num_workers, 2)
        self._refused = shared_array(np.float64, _AT_ONCE, num_workers)

    # The server's.

    def convene(self, hosts: Collection[int], iteration: int, before: int) -> None:
        """Hosts that stand still meet from an iteration on; `before` reductions are done."""
        for host, row in self._rows.items():
            self.given[row] = self.stepped[row] = before
            self._over[row] = host not in hosts
        self.server[:] = iteration - 1, _NO_END, iteration - 1, 0

    def write_order(self, iteration: int, order: Order) -> None:
        """Writes what is to be done in an iteration that no host has begun."""
        place = iteration % _AT_ONCE
        self._orders[place] = order.before, order.first
        self._rates[place] = [order.rates[network] for network in _NETWORKS]
        self._shares[place] = 0.0
        for worker, (sizes, weight) in order.shares.items():
            self._shares[place, self._columns[worker]] = *sizes, weight
        self._refused[place] = 0.0

    def bury(self, host: int) -> None:
        """A host's process is gone for good."""
        self._over[self._rows[host]] = 1

    def owes_step(self, host: int) -> int:
        """The reduction in which a host that is over has left its share undone; 0 if none."""
        row = self._rows[host]
        given = int(self.given[row])
        return given if self._over[row] and self.stepped[row] < given else 0

    def num_stepped(self, host: int) -> int:
        """The last reduction in which a host has stepped its share."""
        return int(self.stepped[self._rows[host]])

    def slowest(self, hosts: Collection[int]) -> list[int]:
        """Those of some hosts that keep the others waiting."""
        done = {host: self.given[self._rows[host]] + self.num_stepped(host) for host in hosts}
        return [host for host in hosts if done[host] == min(done.values())]

    def losses(self, iteration: int, workers: Sequence[int]) -> npt.NDArray[np.float32]:
        """J_disc and J_gen of some workers in an iteration, float32 [N, 2]."""
        columns = [self._columns[worker] for worker in workers]
        found: npt.NDArray[np.float32] = self._losses[iteration % _AT_ONCE][columns]
        return found

    def refusals(self, iteration: int) -> dict[int, float]:
        """The workers whose gradients were left out in an iteration, with the norm of these."""
        refused = self._refused[iteration % _AT_ONCE]
        found = {n: float(refused[column]) for n, column in self._columns.items()}
        return {n: norm for n, norm in found.items() if norm != 0.0}

    # Hosts'.

    def order_for(self, iteration: int) -> Order:
        """What is to be done in an iteration that may begin."""
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
        """Says of a worker's gradients how long they are, and its losses."""
        column, kind = self._columns[worker], _KINDS.index(reduction.networks)
        self._norms[column] = norm
        if isfinite(norm):
            self._largest[column, kind] = max(self._largest[column, kind], norm)
        self._losses[iteration % _AT_ONCE, column] = losses

    def give(self, host: int, q: int) -> None:
        """The gradients of a host's workers lie there."""
        self.given[self._rows[host]] = q

    def step(self, host: int, q: int) -> None:
        """A host has stepped its share of the weights."""
        self.stepped[self._rows[host]] = q

    def refuse(self, iteration: int, worker: int) -> None:
        """A worker's gradients were left out."""
        norm = self._norms[self._columns[worker]]
        self._refused[iteration % _AT_ONCE, self._columns[worker]] = norm if norm else inf

    # The server's and hosts'.

    def have_given(self, q: int) -> bool:
        """Whether all hosts have given their gradients, but those that are over."""
        # Numpy takes longer than Python for as few numbers as these.
        given_or_over = zip(self.given.tolist(), self._over.tolist(), strict=True)
        return all(given >= q or is_over for given, is_over in given_or_over)

    def members(self, q: int) -> tuple[int, ...]:
        """The hosts that take part in a reduction, once all have given their gradients."""
        return tuple(host for host, row in self._rows.items() if self.given[row] >= q)

    def have_stepped(self, q: int) -> bool:
        """Whether all that take part in a reduction have stepped."""
        stepped = zip(self.stepped.tolist(), self.given.tolist(), strict=True)
        return all(done >= q or given < q for done, given in stepped) and self.have_given(q)

    def usable(self, workers: Sequence[int], reduction: Reduction) -> list[int]:
        """Those whose gradients are finite, and no absurd number of times longer than usual.

        As `engine/stages/screen.py` has it: the median of the longest that each has had is usual.
        """
        columns, kind = [self._columns[n] for n in workers], _KINDS.index(reduction.networks)
        votes = sorted(float(vote) for vote in self._largest[columns, kind])
        usual = votes[len(votes) // 2] if len(votes) >= LEAST_VOTES else 0.0
        most = ABSURD_FACTOR * usual if usual else inf
        norms = zip(workers, map(float, self._norms[columns]), strict=True)
        return [n for n, norm in norms if isfinite(norm) and norm <= most]

    def position(self, host: int, q: int) -> tuple[int, bool]:
        """How many pieces a host has stepped in a reduction, and whether the next one is saved."""
        stepped, saved = map(int, self._positions[self._rows[host]])
        done = stepped - q * _STEPS if stepped >= q * _STEPS else 0
        return done, saved == q * _STEPS + done

    def note_saved(self, host: int, q: int, piece: int) -> None:
        """A host has saved a piece as it was, and begins to step it."""
        self._positions[self._rows[host], 1] = q * _STEPS + piece

    def note_stepped(self, host: int, q: int, num_pieces: int) -> None:
        """A host has stepped so many pieces of its share."""
        self._positions[self._rows[host], 0] = q * _STEPS + num_pieces


def why_left_out(norm: float) -> str:
    """Why gradients of a norm were left out, in words."""
    return "NaN or Inf" if isnan(norm) or norm == inf else f"norm {norm:.2g}, far above the usual"
