"""Who trains in a round, as a federated algorithm's server sees it: clients at home, or placed.

Where clients train changes no bit of what they find, and the mathematics of a round knows nothing
of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.host_keys import NotMasked
from mdgan.engine.parts import ServerHandler
from mdgan.engine.server.barrier import Hosts, workers_of
from mdgan.engine.server.engine import Engine
from mdgan.engine.stages.contract import ServerPath, ServerStage
from mdgan.engine.stages.mask_server import least_parties
from mdgan.errors import BadInput
from mdgan.families.federated.fair_weights import check_weights
from mdgan.families.federated.messages import order
from mdgan.families.federated.training_load import Load


@dataclass(frozen=True)
class Round:
    """What is to be trained.

    Attributes:
        number: counted from 0.
        iteration: i after the round.
        models: float32 `ModelVector.shape`.
        loads: of the clients that were chosen.
        weights: of the same clients in the mean.
    """

    number: int
    iteration: int
    models: Tensor
    loads: Mapping[int, Load]
    weights: Mapping[int, float]


class Cohort(ABC):
    """All clients, wherever they are trained.

    Attributes:
        form: how models travel back.
        stages: that they pass.
    """

    form: AnswerForm
    stages: Sequence[ServerStage] = ()

    @abstractmethod
    def class_counts(self, engine: Engine) -> dict[int, list[int]]:
        """The samples of each class that every client holds that can ever be chosen now."""

    @abstractmethod
    def able(self, hosts: Hosts, engine: Engine) -> tuple[Sequence[int], int]:
        """The clients that can be trained in the next round, and how many live in all.

        Args:
            hosts: that are free.
            engine: knows the others.
        """

    @abstractmethod
    def mean_shard_size(self, engine: Engine) -> float:
        """m, in samples."""

    @abstractmethod
    def train(self, wanted: Round, hosts: Hosts, engine: Engine) -> Answers | None:
        """Has clients trained, and waits for what they find.

        Args:
            wanted: the round.
            hosts: that are free.
            engine: asks them.

        Returns:
            By client, the answers that came; None if the round has to begin again.
        """

    def handlers(self) -> Mapping[str, ServerHandler]:
        """By kind of message, what takes it in; answers in `form` are not among them."""
        return {}


class AtHome(Cohort):
    """Every client lives on the rank of its number, as in FL-GAN and FeGAN.

    Args:
        path: of the models that travel back.
    """

    def __init__(self, path: ServerPath) -> None:
        self.form, self.stages = path.form, path.stages
        self._path = path

    def class_counts(self, engine: Engine) -> dict[int, list[int]]:
        """See `Cohort`."""
        held = engine.members.holdings()
        # Under differential privacy clients tell their number of samples alone.
        return {
            int(worker): holding["classes"] or [holding["samples"]]
            for worker, holding in held.items()
        }

    def able(self, hosts: Hosts, engine: Engine) -> tuple[Sequence[int], int]:
        """See `Cohort`."""
        num_live = sum(map(len, engine.members.taking_part().values()))
        return [worker for carried in hosts.values() for worker in carried], num_live

    def mean_shard_size(self, engine: Engine) -> float:
        """See `Cohort`."""
        return engine.members.mean_shard_size

    def train(self, wanted: Round, hosts: Hosts, engine: Engine) -> Answers | None:
        """See `Cohort`; each host trains those of its own clients that were chosen."""
        shares = {
            host: [n for n in workers if n in wanted.loads] for host, workers in hosts.items()
        }
        able: Hosts = {host: workers for host, workers in shares.items() if workers}
        asked = self._path.ask(able, dict.fromkeys(workers_of(able), 0), engine)
        hosts, every, is_sum = asked.hosts, workers_of(asked.hosts), bool(asked.fields)
        if is_sum:
            _check_weights(hosts, {n: wanted.weights[n] for n in every}, engine)
        engine.ask(
            wanted.iteration,
            hosts,
            lambda host: order(
                wanted.iteration,
                wanted.models,
                {n: wanted.loads[n] for n in (every if is_sum else hosts[host])},
                wanted.weights,
                asked.fields,
            ),
        )
        return self._path.collect(wanted.iteration, asked, engine, wanted.weights)


def _check_weights(asked: Hosts, weights: Mapping[int, float], engine: Engine) -> None:
    """Checks that no host would refuse its part of the sum, since one weight is too large."""
    least = least_parties(engine.members)
    try:
        for host in asked:
            check_weights(host, weights, asked, least, uniform=False)
    except NotMasked as error:
        raise BadInput(f"--secure-aggregation: {error}; use --weighting uniform") from error
