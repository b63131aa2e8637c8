"""The server's share of data-parallel training: it averages gradients and takes the steps."""

from collections.abc import Collection, Mapping, Sequence

from torch import Tensor, nn

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.parts import Advance, ServerPart
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts, workers_of
from mdgan.families.data_parallel.messages import KINDS, TrainQuestion, gradient_form, train
from mdgan.families.data_parallel.reference_replica import ReferenceReplica, SentWeights
from mdgan.families.data_parallel.replica import (
    ALL,
    DISCRIMINATOR,
    GENERATOR,
    OF_DISCRIMINATOR,
    reductions,
)
from mdgan.families.data_parallel.settings import DataParallelSettings
from mdgan.gan.weighted_mean import average
from mdgan.messages import Message

_NUM_REDUCED = "num_reduced"


def keeping_up(hosts: Hosts, shares: Collection[int], engine: Engine) -> dict[int, list[int]]:
    """The hosts that have kept up in this iteration, with their workers that have a share."""
    free = engine.peers.free()
    carried = {host: [n for n in free.get(host, ()) if n in shares] for host in hosts}
    return {host: workers for host, workers in carried.items() if workers}


class ReplicaServer(ServerPart):
    """What every server of this family has: the reference replica, and who knows what of it."""

    def __init__(self, replica: ReferenceReplica, settings: DataParallelSettings) -> None:
        self.replica = replica
        self.settings = settings
        self.sent = SentWeights(replica)
        self.device = replica.device
        self.scaling = settings.scaling()

    @property
    def generator(self) -> nn.Module:
        """G."""
        return self.replica.models[GENERATOR]

    def begin_with(
        self, generator: Mapping[str, Tensor], discriminators: Mapping[int, Mapping[str, Tensor]]
    ) -> Mapping[int, Mapping[str, Tensor]]:
        """Both networks begin there; of several discriminators, with the first."""
        if discriminators:
            first = discriminators[min(discriminators)]
            self.replica.models[DISCRIMINATOR].load_state_dict(first)
        return super().begin_with(generator, discriminators)

    def begin(self, engine: Engine) -> None:
        """Says once what becomes of data that are not shared out."""
        if not self.settings.data.partition.divides and engine.peers.iteration == 0:
            engine.note(
                "--partition none: every worker trains on its own data, which stay with it; the "
                "server sees gradients of them"
            )

    def state(self) -> dict[str, Tensor]:
        """See `ServerPart`."""
        return self.replica.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """See `ServerPart`."""
        self.replica.load_state(state)

    def on_lost(self, engine: Engine) -> None:
        """Hosts that are gone have nothing any more when they come back."""
        self.sent.keep_only(engine.peers.hosts())


class DataParallelServer(ReplicaServer):
    """Every worker trains both networks."""

    def __init__(self, replica: ReferenceReplica, settings: DataParallelSettings) -> None:
        super().__init__(replica, settings)
        self._forms = {
            reduction: gradient_form(reduction, replica.vector(reduction).shape)
            for reduction in KINDS.values()
        }
        self.form = self._forms[OF_DISCRIMINATOR]
        self._num_reduced = 0

    @property
    def forms(self) -> Sequence[AnswerForm]:
        """See `ServerPart`."""
        return list(self._forms.values())

    def advance(self, done: int, engine: Engine) -> Advance | None:
        """One iteration."""
        hosts, i = engine.await_hosts(), done + 1
        lag = self.settings.asynchrony.lag_at(i)
        engine.at(i)

        # 1. Share out the samples of the iteration.
        with engine.span("scale"):
            shares = self.scaling.shares(workers_of(hosts), DISCRIMINATOR)
            rates = self.scaling.rates(dict.fromkeys((DISCRIMINATOR, GENERATOR), shares))
            self.replica.at(i, rates)

        # 2. Average each gradient as soon as all workers have found it, and step with the mean.
        for reduction in reductions(lag, self.settings.training.local_steps)[self._num_reduced :]:
            question = TrainQuestion(reduction, shares, lag)
            answers = self._ask(i, question, hosts, engine)
            if not answers.losses:  # goes on with this reduction once there are workers again
                return None
            with engine.span("aggregate"):
                mean = average(answers.singles, answers.sums, question.weights)
                self.replica.put(reduction, mean)
            with engine.span("step" if reduction.last else "local step"):
                self.replica.step(reduction)
            self.sent.note_step(reduction)
            self._num_reduced += 1
        self._num_reduced = 0
        return Advance(i, answers.mean_losses(), sorted(answers.losses))

    def progress(self) -> dict[str, int]:
        """How many gradients of the next iteration are averaged already."""
        return {_NUM_REDUCED: self._num_reduced}

    def go_on(self, progress: Mapping[str, int], changed: Collection[str], *, ended: bool) -> None:
        """Goes on within an iteration, if all workers were lost within it."""
        del changed, ended
        self._num_reduced = progress.get(_NUM_REDUCED, 0)

    def _ask(self, i: int, question: TrainQuestion, hosts: Hosts, engine: Engine) -> Answers:
        """Asks the hosts that have kept up for their share of a reduction, with what they lack."""
        asked = keeping_up(hosts, question.shares, engine)

        def message(host: int) -> Message:
            shares = {n: question.shares[n] for n in asked[host]}
            lacking = self.sent.missing(host, ALL)
            return train(i, TrainQuestion(question.reduction, shares, question.lag, lacking))

        engine.ask(i, asked, message)
        return engine.collect(i, asked, question.weights, self._forms[question.reduction])
