"""The server's share of data-parallel training: it averages gradients and takes the steps."""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.parts import Advance, ServerPart
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts, workers_of
from mdgan.families.data_parallel.messages import KINDS, TrainQuestion, gradient_form, train
from mdgan.families.data_parallel.replica import (
    ALL,
    DISCRIMINATOR,
    GENERATOR,
    OF_DISCRIMINATOR,
    GradientVector,
    Reduction,
    reductions,
    weight_vectors,
)
from mdgan.families.data_parallel.settings import DataParallelSettings
from mdgan.gan.model_state import (
    check_names,
    load_model,
    optimizer_tensors,
    part_of,
    under,
)
from mdgan.gan.optimizer_settings import Policy
from mdgan.gan.optimizers import TrainedModel, make_optimizer
from mdgan.gan.weighted_mean import average
from mdgan.messages import Message

_NUM_REDUCED = "num_reduced"


def keeping_up(hosts: Hosts, shares: Collection[int], engine: Engine) -> dict[int, list[int]]:
    """The hosts that have kept up in this iteration, with their workers that have a share."""
    free = engine.peers.free()
    carried = {host: [n for n in free.get(host, ()) if n in shares] for host in hosts}
    return {host: workers for host, workers in carried.items() if workers}


class ReferenceReplica:
    """A replica with optimizers; `models` are both networks, by name."""

    def __init__(self, models: Mapping[str, nn.Module], policies: Mapping[str, Policy]) -> None:
        self.models = models
        self._networks = {
            name: TrainedModel(model, make_optimizer(model, policies[name]), policies[name])
            for name, model in models.items()
        }
        self._weights = weight_vectors(models)
        self._answers: dict[Reduction, GradientVector] = {}

    @property
    def device(self) -> torch.device:
        """Where it lives."""
        return next(self.models[GENERATOR].parameters()).device

    def vector(self, reduction: Reduction) -> GradientVector:
        """What a reduction averages."""
        if reduction not in self._answers:
            self._answers[reduction] = reduction.vector(self.models)
        return self._answers[reduction]

    def weights(self, name: str) -> Tensor:
        """The present weights of a network, or the buffers of both, as they travel."""
        return self._weights[name].read()

    def at(self, iteration: int, scales: Mapping[str, float]) -> None:
        """Learning rates become those of an iteration."""
        for name, network in self._networks.items():
            network.at(iteration, scales[name])

    def put(self, reduction: Reduction, mean: Tensor) -> None:
        """Puts the mean of all workers' gradients in place, and that of their buffers."""
        self.vector(reduction).write(mean)

    def step(self, reduction: Reduction) -> None:
        """One optimizer step of each network in a reduction."""
        for name in reduction.networks:
            self._networks[name].step()

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that the next iteration depends on, by network and `…_moments`."""
        state: dict[str, Tensor] = {}
        for name, network in self._networks.items():
            state |= under(f"{name}.", network.model.state_dict())
            moments = optimizer_tensors(network.model, network.optimizer)
            state |= under(f"{name}_moments.", moments)
        return {name: tensor.detach().clone() for name, tensor in state.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned, or raises `KeyError` or `RuntimeError`."""
        prefixes = [f"{name}{end}" for name in self._networks for end in (".", "_moments.")]
        check_names(state, *prefixes)
        for name, network in self._networks.items():
            weights, moments = part_of(state, f"{name}."), part_of(state, f"{name}_moments.")
            load_model(network.model, network.optimizer, weights, moments)


class SentWeights:
    """Which weights every host has, so that none is sent twice."""

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

    def note_step(self, reduction: Reduction) -> None:
        """The networks in a reduction are others now."""
        for name in reduction.changed:
            self._read.pop(name, None)
        for has in self._has.values():
            has -= reduction.changed

    def keep_only(self, hosts: Collection[int]) -> None:
        """Forgets hosts that are gone."""
        self._has = {host: has for host, has in self._has.items() if host in hosts}


class ReplicaServer(ServerPart):
    """What every server of this family has: the reference replica, and who knows what of it."""

    def __init__(self, replica: ReferenceReplica, settings: DataParallelSettings) -> None:
        self.replica = replica
        self.discriminator = replica.models[DISCRIMINATOR]
        self.settings = settings
        self.sent = SentWeights(replica)
        self.device = replica.device
        self.scaling = settings.scaling()

    @property
    def generator(self) -> nn.Module:
        """G."""
        return self.replica.models[GENERATOR]

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
