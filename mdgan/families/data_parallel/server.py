"""The server's share of data-parallel training: it averages gradients and takes the steps."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor, nn

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.parts import Advance, ServerHandler, ServerPart
from mdgan.engine.server.barrier import Hosts, workers_of
from mdgan.engine.server.desk import in_words
from mdgan.engine.server.engine import Engine
from mdgan.families.data_parallel.messages import (
    KINDS,
    ForRing,
    Share,
    gradient_form,
    train,
)
from mdgan.families.data_parallel.reference_replica import ReferenceReplica
from mdgan.families.data_parallel.replica import (
    ALL,
    DISCRIMINATOR,
    GENERATOR,
    Reduction,
    reductions,
)
from mdgan.families.data_parallel.ring_messages import BEHIND, norm_form
from mdgan.families.data_parallel.ring_server import Ring
from mdgan.families.data_parallel.settings import STAR, DataParallelSettings
from mdgan.families.data_parallel.sums import Sums
from mdgan.gan.weighted_mean import average
from mdgan.messages import Message

_NUM_REDUCED = "num_reduced"


class DataParallelServer(ServerPart):
    """Keeps the reference replica, and reduces gradients by a star with itself in the middle.

    Args:
        replica: both networks and their optimizers.
        settings: of the run.
    """

    def __init__(self, replica: ReferenceReplica, settings: DataParallelSettings) -> None:
        self._forms = {
            reduction: gradient_form(reduction, replica.vector(reduction).shape)
            for reduction in KINDS.values()
        }
        self.form = next(iter(self._forms.values()))
        self.device = replica.device
        self._replica = replica
        self._settings = settings
        self._scaling = settings.scaling()
        self._num_reduced = 0
        self._sent = _Sent(replica)
        self._message: Callable[[int], Message]
        self._ring = None
        if settings.all_reduce != STAR:
            self._ring = Ring(replica, Sums(settings.all_reduce))

    @property
    def forms(self) -> Sequence[AnswerForm]:
        """See `ServerPart`."""
        of_ring = () if self._ring is None else self._ring.forms
        return (*self._forms.values(), *of_ring)

    def handlers(self) -> Mapping[str, ServerHandler]:
        """See `ServerPart`."""
        if self._ring is None:
            return {}
        return {**self._ring.handlers(), BEHIND: self._ask_anew}

    @property
    def generator(self) -> nn.Module:
        """G."""
        return self._replica.models[GENERATOR]

    def begin_with(
        self, generator: Mapping[str, Tensor], discriminators: Mapping[int, Mapping[str, Tensor]]
    ) -> Mapping[int, Mapping[str, Tensor]]:
        """Both networks begin there; of several discriminators, with the first."""
        if discriminators:
            first = discriminators[min(discriminators)]
            self._replica.models[DISCRIMINATOR].load_state_dict(first)
        return super().begin_with(generator, discriminators)

    def begin(self, engine: Engine) -> None:
        """Says once what becomes of data that are not shared out."""
        if not self._settings.data.partition.divides and engine.members.iteration == 0:
            engine.observer.note(
                "--partition none: every worker trains on its own data, which stay with it; the "
                "server sees gradients of them"
            )

    def advance(self, done: int, engine: Engine) -> Advance | None:
        """One iteration."""
        hosts, i = engine.await_hosts(), done + 1
        lag = self._settings.asynchrony.lag_at(i)
        engine.at(i)

        # 1. Share out the samples of the iteration.
        with engine.span("scale"):
            shares = self._shares(workers_of(hosts), DISCRIMINATOR)
            rates = self._rate_factors(dict.fromkeys((DISCRIMINATOR, GENERATOR), shares))
            self._replica.at(i, rates)
        if self._ring is not None:
            self._ring.build(i, keeping_up(hosts, shares, engine), engine)

        # 2. Average each gradient as soon as all workers have found it, and step with the mean.
        for reduction in reductions(lag, self._settings.training.local_steps)[self._num_reduced :]:
            question = _Question(i, reduction, shares, rates, lag)
            found = self._average(question, hosts, engine)
            if found is None:  # goes on with this reduction once there are workers again
                return None
            mean, answers, stepped = found
            with engine.span("aggregate"):
                self._replica.put(reduction, *mean)
            with engine.span("step" if reduction.last else "local step"):
                self._replica.step(reduction)
            self._sent.note_step(reduction, stepped)
            self._num_reduced += 1
        self._num_reduced = 0
        if stepped and engine.checkpoints.due(done, i):
            self._compare_replicas(i, engine)
        return Advance(i, answers.mean_losses(), sorted(answers.losses))

    def progress(self) -> dict[str, int]:
        """How many gradients of the next iteration are averaged already."""
        return {_NUM_REDUCED: self._num_reduced}

    def go_on(self, progress: Mapping[str, int], changed: Collection[str], *, ended: bool) -> None:
        """Goes on within an iteration, if all workers were lost within it."""
        del changed, ended
        self._num_reduced = progress.get(_NUM_REDUCED, 0)

    def state(self) -> dict[str, Tensor]:
        """See `ServerPart`."""
        return self._replica.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """See `ServerPart`."""
        self._replica.load_state(state)

    def settle(self, engine: Engine) -> None:
        """Hosts that are gone have nothing any more when they come back."""
        self._sent.keep_only(engine.members.hosts())
        if self._ring is not None:
            self._ring.settle(engine.members.hosts())

    def _shares(self, workers: Sequence[int], network: str) -> dict[int, Share]:
        """The shares of workers, which weigh as much as a network's samples."""
        sizes = self._scaling.batch_sizes(workers)
        total = sum(size.of(network) for size in sizes.values())
        return {n: Share(size, size.of(network) / total) for n, size in sizes.items()}

    def _rate_factors(self, shares: Mapping[str, Mapping[int, Share]]) -> dict[str, float]:
        """What learning rates are multiplied by: network → shares of those that train it."""
        return {
            network: self._scaling.rate_factor(
                sum(share.batch_sizes.of(network) for share in group.values())
            )
            for network, group in shares.items()
        }

    def _average(self, question: "_Question", hosts: Hosts, engine: Engine) -> "_Average | None":
        """The mean of a gradient, by the ring if there is one; None without any answer."""
        asked = keeping_up(hosts, question.shares, engine)
        if self._ring is not None and self._ring.stands(asked):
            told = self._ask(question, asked, engine, by_ring=True)
            mean = self._ring.mean(
                question.i,
                question.reduction,
                told,
                question.weights,
                engine,
                wants_digest=self._compares_after(question, engine),
            )
            if mean is not None:
                return _Average(mean, told, self._ring.members)
            question = question.again(told.losses)
            asked = keeping_up(hosts, question.shares, engine)
        answers = self._ask(question, asked, engine)
        if not answers.losses:
            return None
        with engine.span("aggregate"):
            averaged = average(answers.singles, answers.sums, question.weights)
        return _Average([averaged], answers, set())

    def _ask(
        self, question: "_Question", asked: Hosts, engine: Engine, *, by_ring: bool = False
    ) -> Answers:
        """Asks hosts for their share of a reduction: their gradients, or how long these are."""
        i, reduction, shares = question.i, question.reduction, question.shares

        def message(host: int) -> Message:
            return train(
                i,
                reduction,
                {n: shares[n] for n in asked[host]},
                self._sent.missing(host, ALL),
                question.lag,
                ForRing(question.rates, self._sent.moments(host)) if by_ring else None,
                again=question.is_again,
            )

        self._message = message
        engine.ask(i, asked, message)
        form = norm_form(reduction) if by_ring else self._forms[reduction]
        return engine.barrier.collect(i, asked, question.weights, form)

    def _ask_anew(self, engine: Engine, host: int, _message: Message) -> None:
        """A host has missed the last sum: it gets the replica, and the same question."""
        self._sent.forget(host)
        engine.tell(host, self._message(host))

    def _compares_after(self, question: "_Question", engine: Engine) -> bool:
        return question.reduction.last and engine.checkpoints.due(question.i - 1, question.i)

    def _compare_replicas(self, i: int, engine: Engine) -> None:
        """Names hosts whose replica is another than the server's; they get the server's again."""
        assert self._ring is not None, "only members of a ring step"
        for host in sorted(self._ring.different(self._replica.digest())):
            self._sent.forget(host)
            workers = engine.members.hosts().get(host, [])
            engine.observer.event("replica", i, workers=workers)
            engine.observer.note(
                f"the replica of rank(s) {in_words(workers)} is not the server's any more (broken "
                "memory, or another kind of machine?); it gets the server's again"
            )


def keeping_up(hosts: Hosts, shares: Collection[int], engine: Engine) -> dict[int, list[int]]:
    """The hosts that have kept up in this iteration, with those of their workers that have a share.

    Args:
        hosts: those that the iteration began with.
        shares: the workers that have one.
        engine: knows which hosts are free.
    """
    free = engine.members.free()
    here = {host: [n for n in free.get(host, ()) if n in shares] for host in hosts}
    return {host: carried for host, carried in here.items() if carried}


@dataclass(frozen=True)
class _Question:
    """A reduction that hosts are asked to take part in.

    Attributes:
        i: the iteration.
        reduction: which gradients.
        shares: of all workers that take part.
        rates: what the learning rate of each network is multiplied by.
        lag: see `train`.
        is_again: whether hosts have found their gradients already.
    """

    i: int
    reduction: Reduction
    shares: Mapping[int, Share]
    rates: Mapping[str, float]
    lag: int
    is_again: bool = False

    @property
    def weights(self) -> dict[int, float]:
        """Of each worker in the mean."""
        return {worker: share.weight for worker, share in self.shares.items()}

    def again(self, workers: Collection[int]) -> "_Question":
        """The same, for those workers whose gradients can be used."""
        shares = {n: share for n, share in self.shares.items() if n in workers}
        return replace(self, shares=shares, is_again=True)


class _Average(NamedTuple):
    """A mean gradient.

    Attributes:
        mean: as for `GradientVector.write`.
        answers: of the workers whose gradients are in it.
        stepped: the hosts that have stepped with it already.
    """

    mean: Sequence[Tensor]
    answers: Answers
    stepped: Collection[int]


class _Sent:
    """Which weights every host has, so that none is sent twice; in a ring also which moments.

    Args:
        replica: whose weights they are.
    """

    def __init__(self, replica: ReferenceReplica) -> None:
        self._replica = replica
        self._has: dict[int, set[str]] = {}
        self._read: dict[str, Tensor] = {}

    def missing(self, host: int, names: Sequence[str]) -> dict[str, Tensor]:
        """The weights of some names that a host lacks; from here on it has them."""
        has = self._has.setdefault(host, set())
        lacking = [name for name in names if name not in has]
        has.update(lacking)
        for name in lacking:
            if name not in self._read:
                self._read[name] = self._replica.weights(name)
        return {name: self._read[name] for name in lacking}

    def moments(self, host: int) -> dict[str, dict[str, Tensor]]:
        """What the optimizers keep whose networks a host could not step with yet, by network."""
        has = self._has.setdefault(host, set())
        lacking = [name for name in (GENERATOR, DISCRIMINATOR) if _moments_of(name) not in has]
        has.update(map(_moments_of, lacking))
        return {name: self._replica.moments(name) for name in lacking}

    def note_step(self, reduction: Reduction, stepped: Collection[int] = ()) -> None:
        """The networks in a reduction are others now.

        Args:
            reduction: which.
            stepped: the hosts whose replicas have taken the same step.
        """
        changed = reduction.changed
        for name in changed:
            self._read.pop(name, None)
        for host, has in self._has.items():
            if host not in stepped:
                has -= {*changed, *map(_moments_of, reduction.networks)}

    def forget(self, host: int) -> None:
        """A host has nothing any more."""
        self._has.pop(host, None)

    def keep_only(self, hosts: Collection[int]) -> None:
        """Forgets hosts that are gone."""
        self._has = {host: has for host, has in self._has.items() if host in hosts}


def _moments_of(network: str) -> str:
    return f"moments of the {network}"
