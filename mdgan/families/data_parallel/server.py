"""The server of ParaGAN: it asks workers for gradients, averages these, and takes the steps."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.parts import Advance, ServerHandler, ServerPart
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts, workers_of
from mdgan.families.data_parallel import messages
from mdgan.families.data_parallel.direct import DirectServer, kept
from mdgan.families.data_parallel.messages import KINDS, NORMS, TOGETHER_FORM, TrainQuestion
from mdgan.families.data_parallel.replica import ReferenceReplica
from mdgan.families.data_parallel.settings import DataParallelSettings
from mdgan.families.data_parallel.step import OF_DISCRIMINATOR, Reduction, reductions
from mdgan.families.data_parallel.together import TogetherServer
from mdgan.families.data_parallel.vectors import ALL, DISCRIMINATOR, GENERATOR
from mdgan.gan.exact_sum import average
from mdgan.messages import Message
from mdgan.spelling import flag

_NUM_REDUCED = "num_reduced"


def keeping_up(hosts: Hosts, shares: Collection[int], engine: Engine) -> dict[int, list[int]]:
    """The hosts that owe no answer in this iteration, with those of their workers that share it."""
    free = engine.peers.free()
    carried = {host: [n for n in free.get(host, ()) if n in shares] for host in hosts}
    return {host: workers for host, workers in carried.items() if workers}


class SentWeights:
    """Remembers which weights every host has, so that the server sends none twice."""

    def __init__(self, replica: ReferenceReplica) -> None:
        self._replica = replica
        self._has: dict[int, set[str]] = {}
        self._read: dict[str, Tensor] = {}

    def missing(self, host: int, names: Sequence[str]) -> dict[str, Tensor]:
        """The weights of some names that a host lacks; the caller then sends them."""
        has = self._has.setdefault(host, set())
        lacking = [name for name in names if name not in has]
        has.update(lacking)
        for name in lacking:
            if name not in self._read:
                self._read[name] = self._replica.weights(name)
        return {name: self._read[name] for name in lacking}

    def note_step(self, reduction: Reduction, by: Collection[int] = ()) -> None:
        """Records a step: all hosts but those that took it, too (`by`), now have old weights."""
        for name in reduction.changed:
            self._read.pop(name, None)
        for host, has in self._has.items():
            if host not in by:
                has -= reduction.changed

    def keep_only(self, hosts: Collection[int]) -> None:
        """Forgets all other hosts."""
        self._has = {host: has for host, has in self._has.items() if host in hosts}


@dataclass(eq=False)
class ReplicaServer(ServerPart):
    """What both servers of this family share: the networks, and which weights each host has."""

    replica: ReferenceReplica
    settings: DataParallelSettings

    def __post_init__(self) -> None:
        self.generator = self.replica.models[GENERATOR]
        self.discriminator = self.replica.models[DISCRIMINATOR]
        self.sent = SentWeights(self.replica)
        self.device = self.replica.device
        self.scaling = self.settings.scaling()

    def begin(self, engine: Engine) -> None:
        """Logs once that with `--partition none` data stay with their workers."""
        if not self.settings.data.partition.divides and engine.peers.iteration == 0:
            engine.note(
                f"{flag('partition', 'none')}: every worker trains on its own data, which stay "
                "with it; the server sees gradients of them"
            )

    def state(self) -> dict[str, Tensor]:
        return self.replica.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.replica.load_state(state)

    def on_lost(self, engine: Engine) -> None:
        """Forgets the weights of lost hosts: one that comes back has none."""
        self.sent.keep_only(engine.peers.hosts())


@dataclass(eq=False)
class DataParallelServer(ReplicaServer):
    """The server where every worker trains both networks.

    Args:
        together: the server's side where hosts share this process's memory; None if none does.
        direct: the server's side where hosts add up gradients among themselves; None if not.
    """

    together: TogetherServer | None = None
    direct: DirectServer | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._forms = {
            reduction: messages.gradient_form(reduction, self.replica.vector(reduction).shape)
            for reduction in KINDS.values()
        }
        self.form = self._forms[OF_DISCRIMINATOR]

    @property
    def forms(self) -> Sequence[AnswerForm]:
        direct = () if self.direct is None else self.direct.forms
        return [*self._forms.values(), TOGETHER_FORM, *direct]

    def begin(self, engine: Engine) -> None:
        super().begin(engine)
        if self.direct is not None:
            engine.note(
                f"{flag('all_reduce', 'direct')}: hosts send each other gradients, which nothing "
                "encrypts or guards; machines and network must have one owner"
            )

    def handlers(self) -> Mapping[str, ServerHandler]:
        return {} if self.direct is None else self.direct.handlers()

    def advance(self, done: int, engine: Engine) -> Advance | None:
        together = self.together
        i = done + 1
        if together is None or not together.meets:
            hosts = engine.await_hosts()
            if together is None or not all(together.knows(host, engine) for host in hosts):
                return self._advance(i, hosts, engine)
            together.convene(i, hosts, engine)
            self.sent.keep_only(())
        return together.advance(i, engine)

    def _advance(self, i: int, hosts: Hosts, engine: Engine) -> Advance | None:
        lag = self.settings.asynchrony.lag_at(i)
        engine.at(i)

        # 1. Share out the samples of the iteration.
        with engine.span("scale"):
            shares = self.scaling.shares(workers_of(hosts), DISCRIMINATOR)
            rates = self.scaling.rates(dict.fromkeys((DISCRIMINATOR, GENERATOR), shares))
            self.replica.at(i, rates)

        # 2. Take the steps of the iteration, each when all workers have computed its gradients.
        answers = Answers()

        def find_mean(reduction: Reduction) -> Tensor | None:
            nonlocal answers
            question = TrainQuestion(reduction, shares, lag)
            answers, mean = self._average(i, question, rates, hosts, engine)
            return mean

        plan = reductions(lag, self.settings.training.local_steps)
        if not self.replica.iterate(plan, find_mean, engine.span):
            return None  # the server repeats this step once workers have joined
        return Advance(i, answers.mean_losses(), sorted(answers.losses))

    def _average(
        self,
        i: int,
        question: TrainQuestion,
        rates: Mapping[str, float],
        hosts: Hosts,
        engine: Engine,
    ) -> tuple[Answers, Tensor | None]:
        """Asks for gradients, and averages them; the mean is None without any answer."""
        reduction, direct = question.reduction, self.direct
        asked = keeping_up(hosts, question.shares, engine)
        if direct is not None:
            direct.begin(i, asked, engine)
            if direct.stands(asked):
                question = replace(question, moments=direct.moments(), is_direct=True)
        answers = self._ask(i, question, hosts, engine)
        if question.is_direct and direct is not None and answers.losses:
            mean = direct.mean(i, question, answers, rates, engine)
            if mean is not None:
                self.sent.note_step(reduction, by=asked)
                return answers, mean
            answers = self._ask(i, kept(question, sorted(answers.losses)), hosts, engine)
        if not answers.losses:
            return answers, None
        with engine.span("aggregate"):
            mean = average(answers.singles, answers.sums, question.weights)
        self.sent.note_step(reduction)
        return answers, mean

    def on_lost(self, engine: Engine) -> None:
        super().on_lost(engine)
        if self.together is not None:
            self.together.on_lost(engine)
        if self.direct is not None:
            self.direct.on_lost(engine)

    def close(self) -> None:
        if self.together is not None:
            self.together.close()
        if self.direct is not None:
            self.direct.drop()

    def progress(self) -> dict[str, int]:
        """How many steps of the next iteration the server has taken already."""
        return {_NUM_REDUCED: self.replica.num_done}

    def go_on(self, progress: Mapping[str, int], changed: Collection[str], *, ended: bool) -> None:
        """Continues within an iteration, if all workers were lost within it."""
        del changed, ended
        self.replica.num_done = progress.get(_NUM_REDUCED, 0)

    def _ask(self, i: int, question: TrainQuestion, hosts: Hosts, engine: Engine) -> Answers:
        """Asks `keeping_up` hosts for the gradients of a step, with the weights that they lack."""
        asked = keeping_up(hosts, question.shares, engine)

        def message(host: int) -> Message:
            shares = {n: question.shares[n] for n in asked[host]}
            lacking = self.sent.missing(host, ALL)
            return messages.train(i, replace(question, shares=shares, tensors=lacking))

        engine.ask(i, asked, message)
        form = (NORMS if question.is_direct else self._forms)[question.reduction]
        return engine.collector.collect(i, asked, question.weights, form, again=question.is_again)
