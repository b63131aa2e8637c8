"""A few seconds on this machine: what each stage of an iteration takes, and how much memory.

Forks of this process do the work, as the launcher's do in a run, with the threads that they will
have. Where all share a machine, a few hosts and the server play iterations together, so that what
processes cost each other by taking turns on a core is part of what is measured.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from functools import partial
from typing import NamedTuple

import psutil
import torch

from mdgan import messages
from mdgan.data.dataset_file import DatasetFile
from mdgan.errors import BadInput
from mdgan.gan.discriminator import Discriminator
from mdgan.plan.forks import ForkFailed, at_once
from mdgan.plan.layout import Layout
from mdgan.plan.prediction import Costs, ServerSeconds, WorkerSeconds, friction
from mdgan.plan.rehearsal import (
    HOST_STAGES,
    SERVER_STAGES,
    HostPart,
    ServerPart,
    Stopwatch,
    dismiss,
    linked,
)
from mdgan.plan.traffic import swap_bytes
from mdgan.settings.experiment import Experiment
from mdgan.transport import wire
from mdgan.transport.link import Link

_ALONE_SECONDS = 1.0
_PLAY_SECONDS = 3.0
_WARM_UP = 2
_LEAST_ROUNDS = 3
_MOST_WORKERS = 3
"""In a host while measuring: enough that one does not find its weights in the caches."""
_TAKE_TURNS = 2
"""Hosts on a core while measuring, where there are so many."""
_COPIES = 4
"""Weights, gradients, and Adam's two moments."""


class Memory(NamedTuple):
    """Bytes of a process.

    Attributes:
        shared: what every process has: Python, torch, mdgan.
        server: what the server has besides.
        host: what a host with one worker has besides.
        worker: what each further worker takes: weights, gradients, Adam's moments, buffers, batch.
    """

    shared: int
    server: int
    host: int
    worker: int


class Measured(NamedTuple):
    """What was found.

    Attributes:
        costs: seconds.
        memory: bytes.
        swap_bytes: of one discriminator on its way.
        num_weights: |θ|.
    """

    costs: Costs
    memory: Memory
    swap_bytes: int
    num_weights: int


class _OfServer(NamedTuple):
    """What the server's fork found: its stages, an iteration of those who play, its memory."""

    seconds: ServerSeconds
    iteration: float
    own_bytes: int


class _OfHost(NamedTuple):
    """What a host's fork found."""

    seconds: WorkerSeconds
    own_bytes: int
    worker_bytes: int
    swap_bytes: int
    num_weights: int


class Measurement:
    """Measures the stages of an iteration.

    Args:
        dataset: its models and shape; no data are read.
        experiment: what is computed.
        layout: decides how many compute at once, with how many threads.
    """

    def __init__(self, dataset: DatasetFile, experiment: Experiment, layout: Layout) -> None:
        self._dataset = dataset
        self._experiment = experiment
        self._layout = layout
        count = _TAKE_TURNS * max(1, layout.cores // layout.host_threads)
        # Those who play; their messages and batches are those of the whole run.
        self._played = tuple(host[:_MOST_WORKERS] for host in layout.hosts[:count])

    def take(self) -> Measured:
        """Measures.

        Raises:
            BadInput: an iteration cannot be computed here.
        """
        import torch._dynamo  # noqa: F401 - as the launcher: else every fork does in its first step

        shared = psutil.Process().memory_info().rss
        try:
            ((of_server, of_host),) = at_once([self._be_both])
            server, hosts = self._play()
        except ForkFailed as error:
            raise BadInput(
                f"--batch-size {self._experiment.batch_size}: an iteration cannot be measured here "
                f"({error}); try a smaller one"
            ) from error
        first = hosts[0]
        memory = Memory(shared, server.own_bytes, first.own_bytes, first.worker_bytes)
        worker = _mean([host.seconds for host in hosts])
        if self._layout.shared:
            costs = Costs(worker, ServerSeconds(*of_server), server.seconds)
            played = replace(self._layout, hosts=self._played)
            costs = replace(costs, friction=friction(played, costs, server.iteration))
        else:
            alone = ServerSeconds(*of_server)
            costs = Costs(replace(WorkerSeconds(*of_host), swap=worker.swap), alone, alone)
        return Measured(costs, memory, first.swap_bytes, first.num_weights)

    def _be_both(self) -> tuple[ServerSeconds, WorkerSeconds]:
        """The server and a host in turns, each alone on the cores."""
        torch.set_num_threads(self._layout.server_threads)
        of_server, of_host = Stopwatch(), Stopwatch()
        carried = self._played[0]
        server = ServerPart(self._dataset, self._experiment, self._layout.hosts, of_server)
        host = HostPart(self._dataset, self._experiment, carried, of_host)
        link, far = linked()

        def iterate() -> None:
            server.generate()
            server.send(link, carried)
            host.answer(far)
            server.receive(link)
            server.update()

        host.learn_real_halves()
        _repeat(iterate, (of_server, of_host), _ALONE_SECONDS)
        return (
            ServerSeconds(*of_server.medians(*SERVER_STAGES)),
            WorkerSeconds(*[*of_host.medians(*HOST_STAGES), 0.0]),
        )

    def _play(self) -> tuple[_OfServer, list[_OfHost]]:
        """A few hosts and the server at once, each in its process."""
        links = [linked() for _ in self._played]
        hosts = [
            partial(self._be_host, link, carried)
            for (_, link), carried in zip(links, self._played, strict=True)
        ]
        serve = partial(self._be_server, [link for link, _ in links])
        try:
            server, *found = at_once([serve, *hosts])
        finally:
            for link in (end for pair in links for end in pair):
                link.close()
        seconds, *others = server
        return (
            _OfServer(ServerSeconds(*seconds), *others),
            [_OfHost(WorkerSeconds(*stages), *figures) for stages, *figures in found],
        )

    def _be_server(self, links: Sequence[Link]) -> _OfServer:
        torch.set_num_threads(self._layout.server_threads)
        watch = Stopwatch(time.process_time)
        server = ServerPart(self._dataset, self._experiment, self._layout.hosts, watch)

        def iterate() -> None:
            server.generate()
            for link, carried in zip(links, self._played, strict=True):
                server.send(link, carried)
            for link in links:
                server.receive(link)
            server.update()

        seconds = _repeat(iterate, (watch,), _PLAY_SECONDS)
        own_bytes = _own_bytes()
        dismiss(links)
        return _OfServer(ServerSeconds(*watch.medians(*SERVER_STAGES)), seconds, own_bytes)

    def _be_host(self, link: Link, carried: Sequence[int]) -> _OfHost:
        torch.set_num_threads(self._layout.host_threads)
        watch = Stopwatch(time.process_time)
        host = HostPart(self._dataset, self._experiment, carried, watch)
        host.learn_real_halves()
        while host.answer(link):
            pass
        own_bytes = _own_bytes()
        given = host.workers[carried[0]].discriminator
        taker = host.workers[carried[-1]].discriminator
        _repeat(partial(_swap, given, taker, watch), (), 0.0)
        parameters, buffers = list(given.model.parameters()), given.model.buffers()
        each = _COPIES * sum(p.nbytes for p in parameters) + sum(b.nbytes for b in buffers)
        return _OfHost(
            WorkerSeconds(*watch.medians(*HOST_STAGES, "swap")),
            max(0, own_bytes - (len(carried) - 1) * each),
            each,
            swap_bytes(given.state()),
            sum(p.numel() for p in parameters),
        )


def _swap(given: Discriminator, taker: Discriminator, watch: Stopwatch) -> None:
    """What a host does for a discriminator that it gives away and for one that it gets."""
    with watch("swap"):
        state = given.state()
        given.digest()
        header, body = wire.encode(messages.discriminators(1, {1: state}))
        taken = wire.decode(wire.decode_header(header), body)
        taker.load_state(messages.state_of(taken, 1))
        taker.digest()


def _mean(found: Sequence[WorkerSeconds]) -> WorkerSeconds:
    each = zip(*map(astuple, found), strict=True)
    return WorkerSeconds(*map(statistics.fmean, each))


def _repeat(work: Callable[[], None], watches: Sequence[Stopwatch], seconds: float) -> float:
    """Works for so many seconds, after warming up.

    Returns:
        What it usually took.
    """
    taken: list[float] = []
    for _ in range(_WARM_UP):
        work()
    for watch in watches:
        watch.forget()
    end = time.monotonic() + seconds
    while len(taken) < _LEAST_ROUNDS or time.monotonic() < end:
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def _own_bytes() -> int:
    """The memory that this process does not share with the one it was forked from."""
    return int(psutil.Process().memory_full_info().uss)
