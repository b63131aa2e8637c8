"""The server's share of data-parallel training: it averages gradients and takes the steps."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor, nn

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.parts import Advance, ServerHandler, ServerPart
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts, workers_of
from mdgan.families.data_parallel.messages import KINDS, TrainQuestion, gradient_form, train
from mdgan.families.data_parallel.reference_replica import ReferenceReplica, SentWeights
from mdgan.families.data_parallel.replica import ALL, DISCRIMINATOR, GENERATOR, reductions
from mdgan.families.data_parallel.settings import DataParallelSettings
from mdgan.gan.weighted_mean import average
from mdgan.messages import Message

_NUM_REDUCED = "num_reduced"


def keeping_up(hosts: Hosts, shares: Collection[int], engine: Engine) -> dict[int, list[int]]:
    """The hosts that have kept up in this iteration, with their workers that have a share."""
    free = engine.peers.free()
    carried = {host: [n for n in free.get(host, ()) if n in shares] for host in hosts}
    return {host: workers for host, workers in carried.items() if workers}


class Average(NamedTuple):
    """A mean gradient."""

    mean: Sequence[Tensor]
    """As for `GradientVector.write`."""
    answers: Answers
    """Of the workers whose gradients are in it."""
    stepped: Collection[int] = ()
    """The hosts that have stepped with it already."""


class Star:
    """How gradients are added up: hosts send them to the server, which averages them."""

    def __init__(self, replica: ReferenceReplica, sent: SentWeights) -> None:
        self._sent = sent
        self._forms = {
            reduction: gradient_form(reduction, replica.vector(reduction).shape)
            for reduction in KINDS.values()
        }
        self.message: Callable[[int], Message]
        """The question that was asked last, by host."""

    @property
    def forms(self) -> Sequence[AnswerForm]:
        """How hosts answer."""
        return list(self._forms.values())

    def handlers(self) -> Mapping[str, ServerHandler]:
        """By kind of message besides answers, what takes it in."""
        return {}

    def prepare(self, i: int, asked: Hosts, engine: Engine) -> None:
        """An iteration begins on these hosts."""

    def reduce(
        self, i: int, question: TrainQuestion, hosts: Hosts, engine: Engine
    ) -> Average | None:
        """The mean gradient of those hosts that have kept up; None without any answer."""
        asked = keeping_up(hosts, question.shares, engine)
        question = replace(question, rates=None)
        answers = self.ask(i, question, asked, self._forms[question.reduction], engine)
        if not answers.losses:
            return None
        with engine.span("aggregate"):
            mean = average(answers.singles, answers.sums, question.weights)
        return Average([mean], answers)

    def ask(
        self, i: int, question: TrainQuestion, asked: Hosts, form: AnswerForm, engine: Engine
    ) -> Answers:
        """Asks hosts for their share of a reduction, in a form; with what they lack."""

        def message(host: int) -> Message:
            lacking = replace(
                question,
                shares={n: question.shares[n] for n in asked[host]},
                tensors=self._sent.missing(host, ALL),
                moments={} if question.rates is None else self._sent.moments(host),
            )
            return train(i, lacking)

        self.message = message
        engine.ask(i, asked, message)
        return engine.collect(i, asked, question.weights, form)

    def compare(self, i: int, stepped: Collection[int], engine: Engine) -> None:
        """An iteration has ended in which these hosts have stepped themselves."""

    def settle(self, hosts: Collection[int]) -> None:
        """No other hosts are left."""


@dataclass(eq=False)
class ReplicaServer(ServerPart):
    """What every server of this family has: the reference replica, and who knows what of it."""

    replica: ReferenceReplica
    settings: DataParallelSettings
    sent: SentWeights

    def __post_init__(self) -> None:
        self.device = self.replica.device
        self.scaling = self.settings.scaling()

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

    def __init__(
        self,
        replica: ReferenceReplica,
        settings: DataParallelSettings,
        sent: SentWeights,
        reducer: Star,
    ) -> None:
        super().__init__(replica, settings, sent)
        self.form = reducer.forms[0]
        self._reducer = reducer
        self._num_reduced = 0

    @property
    def forms(self) -> Sequence[AnswerForm]:
        """See `ServerPart`."""
        return self._reducer.forms

    def handlers(self) -> Mapping[str, ServerHandler]:
        """See `ServerPart`."""
        return self._reducer.handlers()

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
        self._reducer.prepare(i, keeping_up(hosts, shares, engine), engine)

        # 2. Average each gradient as soon as all workers have found it, and step with the mean.
        for reduction in reductions(lag, self.settings.training.local_steps)[self._num_reduced :]:
            question = TrainQuestion(reduction, shares, lag, rates=rates)
            averaged = self._reducer.reduce(i, question, hosts, engine)
            if averaged is None:  # goes on with this reduction once there are workers again
                return None
            mean, answers, stepped = averaged
            with engine.span("aggregate"):
                self.replica.put(reduction, *mean)
            with engine.span("step" if reduction.last else "local step"):
                self.replica.step(reduction)
            self.sent.note_step(reduction, stepped)
            self._num_reduced += 1
        self._num_reduced = 0
        self._reducer.compare(i, stepped, engine)
        return Advance(i, answers.mean_losses(), sorted(answers.losses))

    def progress(self) -> dict[str, int]:
        """How many gradients of the next iteration are averaged already."""
        return {_NUM_REDUCED: self._num_reduced}

    def go_on(self, progress: Mapping[str, int], changed: Collection[str], *, ended: bool) -> None:
        """Goes on within an iteration, if all workers were lost within it."""
        del changed, ended
        self._num_reduced = progress.get(_NUM_REDUCED, 0)

    def on_lost(self, engine: Engine) -> None:
        """See `ServerPart`."""
        super().on_lost(engine)
        self._reducer.settle(engine.peers.hosts())
