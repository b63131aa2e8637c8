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
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts, workers_of
from mdgan.engine.server.secure_sums import collect_sums, least_parties, sums_to_ask
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
    """

    form: AnswerForm

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
        form: how models travel back.
    """

    def __init__(self, form: AnswerForm) -> None:
        self.form = form

    def class_counts(self, engine: Engine) -> dict[int, list[int]]:
        """See `Cohort`."""
        held = engine.peers.holdings()
        # Under differential privacy clients tell their number of samples alone.
        return {
            int(worker): holding["classes"] or [holding["samples"]]
            for worker, holding in held.items()
        }

    def able(self, hosts: Hosts, engine: Engine) -> tuple[Sequence[int], int]:
        """See `Cohort`."""
        num_live = sum(map(len, engine.peers.taking_part().values()))
        return [worker for carried in hosts.values() for worker in carried], num_live

    def mean_shard_size(self, engine: Engine) -> float:
        """See `Cohort`."""
        return engine.peers.mean_shard_size

    def train(self, wanted: Round, hosts: Hosts, engine: Engine) -> Answers | None:
        """See `Cohort`; each host trains those of its own clients that were chosen."""
        shares = {
            host: [n for n in workers if n in wanted.loads] for host, workers in hosts.items()
        }
        asked: Hosts = {host: workers for host, workers in shares.items() if workers}
        sums = None
        if self.form.steps:
            sums = sums_to_ask(engine, asked, dict.fromkeys(workers_of(asked), 0))
            asked = sums.hosts
        every = workers_of(asked)
        if sums is not None:
            _check_weights(asked, {n: wanted.weights[n] for n in every}, engine)
        engine.ask(
            wanted.iteration,
            asked,
            lambda host: order(
                wanted.iteration,
                wanted.models,
                {n: wanted.loads[n] for n in (asked[host] if sums is None else every)},
                wanted.weights,
                None if sums is None else sums.question.fields(),
            ),
        )
        if sums is not None:
            return collect_sums(engine, wanted.iteration, sums, self.form)
        return engine.collect(wanted.iteration, asked, wanted.weights)


def _check_weights(asked: Hosts, weights: Mapping[int, float], engine: Engine) -> None:
    """Checks that no host would refuse its part of the sum, since one weight is too large."""
    least = least_parties(engine.peers)
    try:
        for host in asked:
            check_weights(host, weights, asked, least, uniform=False)
    except NotMasked as error:
        raise BadInput(f"--secure-aggregation: {error}; use --weighting uniform") from error
