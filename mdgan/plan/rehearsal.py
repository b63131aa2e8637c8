"""An iteration without the rest of a run: its stages, timed one by one, over real connections."""

import socket
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from mdgan import messages
from mdgan.data.dataset_file import DatasetFile
from mdgan.engine.learners import make_generator_learner, make_shard, make_worker
from mdgan.engine.server.screening import Screening
from mdgan.families.mdgan.aggregation import Aggregation
from mdgan.families.mdgan.aggregation_rules import parse_aggregation
from mdgan.families.mdgan.algorithm import assign, resolve_kappa
from mdgan.families.mdgan.messages import Form, batches, feedback, read_batches, read_feedback
from mdgan.gan.exact_sum import PartialSum
from mdgan.messages import Kind, Message
from mdgan.plan.noise import Noise
from mdgan.settings.experiment import Experiment
from mdgan.transport.link import Link
from mdgan.transport.wire import MOST_BYTES

SERVER_STAGES = ("generate", "update", "send", "receive")
HOST_STAGES = ("real half", "learn", "feedback", "receive", "send")
"""In the order of `ServerSeconds` and `WorkerSeconds`."""

_LIVENESS_SECONDS = 600.0
_STRIKES = 3
_CPU = torch.device("cpu")


class Stopwatch:
    """Collects the seconds of stages by name.

    Args:
        clock: what counts as time.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._taken: dict[str, list[float]] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Times one stage."""
        begin = self._clock()
        yield
        self._taken.setdefault(stage, []).append(self._clock() - begin)

    def medians(self, *stages: str) -> list[float]:
        """The usual seconds of stages."""
        return [statistics.median(self._taken[stage]) for stage in stages]

    def forget(self) -> None:
        """Drops what warming up has taken."""
        self._taken.clear()


class ServerPart:
    """What the server does in an iteration.

    Args:
        dataset: its generator and shape.
        experiment: what is computed.
        hosts: the workers of each host.
        watch: times `SERVER_STAGES`.
    """

    def __init__(
        self,
        dataset: DatasetFile,
        experiment: Experiment,
        hosts: Sequence[Sequence[int]],
        watch: Stopwatch,
    ) -> None:
        workers = sorted(worker for carried in hosts for worker in carried)
        self._form = Form.of(experiment, dataset.shape)
        self._watch = watch
        self._kappa = resolve_kappa(experiment.kappa, len(workers))
        self._assignment = assign(workers, self._kappa)
        self._screening = Screening((experiment.batch_size, *dataset.shape), _STRIKES)
        self._aggregation = Aggregation(parse_aggregation(experiment.aggregation, len(workers)))
        self._learner = make_generator_learner(dataset, experiment, _CPU)
        self._generated = torch.empty(0)
        self._feedbacks = dict.fromkeys(workers, torch.randn(self._form.sample_shape) * 1e-3)
        self._verdicts = dict.fromkeys(workers, torch.randn(experiment.batch_size))
        self._sums: list[PartialSum] = []
        for carried in hosts:
            self._add_up(carried)

    def generate(self) -> None:
        """κ batches."""
        with self._watch("generate"):
            self._generated = self._learner.generate(self._kappa)

    def send(self, link: Link, carried: Sequence[int]) -> None:
        """BATCHES to the host of some workers."""
        with self._watch("send"):
            pairs = {worker: self._assignment[worker] for worker in carried}
            codec = self._form.images
            message = batches(
                1, self._generated, pairs, swap_follows=False, last=False, codec=codec
            )
            link.send(message)

    def receive(self, link: Link) -> None:
        """FEEDBACK of a host."""
        with self._watch("receive"):
            message, _ = link.receive()
            answer = read_feedback(message, self._form)
            for worker, single in answer.singles.items():
                self._screening.refuse(worker, single)
            for part in answer.sums:
                mean = (part.total / len(part.workers)).float()
                for worker in part.workers:
                    self._screening.refuse(worker, mean)

    def update(self) -> None:
        """One optimizer step from the feedback of all N, whoever plays."""
        with self._watch("update"):
            self._aggregation.update_gradient(
                self._learner,
                self._feedbacks,
                self._assignment,
                self._kappa,
                self._sums,
                self._verdicts,
            )
            self._learner.step()

    def _add_up(self, carried: Sequence[int]) -> None:
        """Which answers come as sums; what they are worth does not matter."""
        feedbacks = {worker: self._feedbacks[worker] for worker in carried}
        judged = {worker: self._assignment[worker].judge for worker in carried}
        for group in _answer(feedbacks, judged, self._form).fields["summed"]:
            total = sum(feedbacks.pop(worker).double() for worker in group)
            assert isinstance(total, Tensor)
            self._sums.append(PartialSum(tuple(group), total))
            for worker in group:
                del self._feedbacks[worker]


class HostPart:
    """What a host does in an iteration, with noise for data.

    Args:
        dataset: its discriminator and shape.
        experiment: what is computed.
        carried: its workers.
        watch: times `HOST_STAGES`.
    """

    def __init__(
        self,
        dataset: DatasetFile,
        experiment: Experiment,
        carried: Sequence[int],
        watch: Stopwatch,
    ) -> None:
        self._form = Form.of(experiment, dataset.shape)
        self._watch = watch
        source, seed = Noise(dataset.shape, experiment.batch_size), experiment.seed
        indices = torch.arange(len(source))
        self.workers = {
            rank: make_worker(
                rank, dataset, experiment, make_shard(rank, source, indices, seed), _CPU
            )
            for rank in carried
        }

    def answer(self, link: Link) -> bool:
        """Learns and answers, then learns real halves; False if the server says stop."""
        with self._watch("receive"):
            message, _ = link.receive()
            if message.kind == Kind.STOP:
                return False
            work = read_batches(message, self._form)
        feedbacks: dict[int, Tensor] = {}
        for rank, (judge, train) in work.assignment.items():
            with self._watch("learn"):
                self.workers[rank].learn(work.generated[train])
            with self._watch("feedback"):
                feedbacks[rank] = self.workers[rank].feedback(work.generated[judge]).feedback
        with self._watch("send"):
            link.send(_answer(feedbacks, work.judged, self._form))
        self.learn_real_halves()
        return True

    def learn_real_halves(self) -> None:
        """What need not wait for the server."""
        for worker in self.workers.values():
            with self._watch("real half"):
                worker.learn_real_half()


def linked() -> tuple[Link, Link]:
    """The server's and a host's end of a connection within this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    to_host = dict.fromkeys((Kind.BATCHES, Kind.STOP), MOST_BYTES)
    to_server = {Kind.FEEDBACK: MOST_BYTES}
    return Link(server, to_server, _LIVENESS_SECONDS), Link(host, to_host, _LIVENESS_SECONDS)


def dismiss(links: Sequence[Link]) -> None:
    """Tells hosts to stop."""
    for link in links:
        link.send(messages.stop(0, ""))
        link.flush(_LIVENESS_SECONDS)


def _answer(feedbacks: Mapping[int, Tensor], judged: Mapping[int, int], form: Form) -> Message:
    losses = dict.fromkeys(feedbacks, torch.zeros(2))
    verdicts = dict.fromkeys(feedbacks, torch.zeros(form.sample_shape[0]))
    return feedback(1, feedbacks, losses, judged, form, verdicts)
