"""Who trains in a round: workers, or placed clients. Where they train changes no bit of a round."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.host_keys import NotMasked
from mdgan.engine.parts import ServerHandler
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts, workers_of
from mdgan.engine.stages.contract import ServerPath
from mdgan.engine.stages.mask_parties import least_parties
from mdgan.errors import BadInput
from mdgan.families.federated.averaging import check_weights
from mdgan.families.federated.messages import ClientTask, order
from mdgan.messages import Message


@dataclass(frozen=True)
class RoundPlan:
    """What is to be trained: chosen clients' tasks, on models of `ModelVector.shape`, until i."""

    number: int
    iteration: int
    models: Tensor
    tasks: Mapping[int, ClientTask]


class Cohort(ABC):
    """All clients, wherever they are trained; answers in `form` may be masked on their `path`."""

    form: AnswerForm
    path: ServerPath | None = None

    @abstractmethod
    def class_counts(self, engine: Engine) -> dict[int, list[int]]:
        """The samples of each class that every client holds that can ever be chosen now."""

    @abstractmethod
    def able(self, hosts: Hosts, engine: Engine) -> tuple[Sequence[int], int]:
        """The clients that these free hosts can train next, and how many live in all."""

    @abstractmethod
    def mean_shard_size(self, engine: Engine) -> float:
        """m, in samples."""

    @abstractmethod
    def train(self, plan: RoundPlan, hosts: Hosts, engine: Engine) -> Answers | None:
        """Has clients trained by these free hosts; None if the round has to begin again."""

    def handlers(self) -> Mapping[str, ServerHandler]:
        """By kind of message, what takes it in; answers in `form` are not among them."""
        return {}


class AtHome(Cohort):
    """Every client lives on the rank of its number, as in FL-GAN and FeGAN."""

    def __init__(self, path: ServerPath) -> None:
        self.form, self.path = path.form, path
        self._path = path

    def class_counts(self, engine: Engine) -> dict[int, list[int]]:
        """See `Cohort`; under differential privacy clients tell their number of samples alone."""
        return {
            int(worker): holding["classes"] or [holding["samples"]]
            for worker, holding in engine.peers.holdings().items()
        }

    def able(self, hosts: Hosts, engine: Engine) -> tuple[Sequence[int], int]:
        """See `Cohort`."""
        num_live = sum(map(len, engine.peers.taking_part().values()))
        return workers_of(self._path.able(hosts, engine.peers)), num_live

    def mean_shard_size(self, engine: Engine) -> float:
        """See `Cohort`."""
        return engine.peers.mean_shard_size

    def train(self, plan: RoundPlan, hosts: Hosts, engine: Engine) -> Answers | None:
        """See `Cohort`; each host trains those of its own clients that were chosen."""
        chosen = {host: [n for n in own if n in plan.tasks] for host, own in hosts.items()}
        able: Hosts = {host: own for host, own in chosen.items() if own}
        asked = self._path.ask(able, dict.fromkeys(workers_of(able), 0), engine)
        weights = {n: task.weight for n, task in plan.tasks.items()}
        in_sum = workers_of(asked.hosts) if asked.fields else []
        if in_sum:
            try:
                _check_sum(asked.hosts, {n: weights[n] for n in in_sum}, engine)
            except BadInput:
                if self._path.gives_up_search():
                    return None
                raise

        def message(workers: Collection[int]) -> Message:
            tasks = [plan.tasks[n] for n in workers]
            return order(plan.iteration, plan.models, [tasks], asked.fields)

        # One question for all of a sum, so that hosts see that each is told the same.
        for_all = message(in_sum) if in_sum else None
        engine.ask(plan.iteration, asked.hosts, lambda host: for_all or message(asked.hosts[host]))
        return self._path.collect(plan.iteration, asked, engine, weights)


def _check_sum(asked: Hosts, weights: Mapping[int, float], engine: Engine) -> None:
    """Checks that no host would refuse its part of the sum, since one weight is too large."""
    least = least_parties(engine.peers)
    try:
        for host in asked:
            check_weights(host, weights, asked, least, uniform=False)
    except NotMasked as error:
        raise BadInput(f"--secure-aggregation: {error}; use --weighting uniform") from error
