"""A stage for the federated algorithms: a server that averages, and clients, some played."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mdgan.engine.parts import HostPart, ServerPart
from mdgan.engine.settings import RunSettings
from mdgan.engine.stages.contract import HostPath, ServerPath, pack_answers
from mdgan.families.contract import HostNeeds
from mdgan.families.federated.averaging import Averaging
from mdgan.families.federated.host import FederatedHost, LocalTraining
from mdgan.families.federated.messages import ROUND, ClientTask, read_order, update_form
from mdgan.families.federated.poisson_rounds import PoissonRounds
from mdgan.families.federated.round import Client
from mdgan.families.federated.server import Cohort, FederatedServer, GlobalModels
from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.build import Models
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.transport.memory import MemoryNetwork
from tests.unit.engine.played import LONG, SHARD_SIZE, Played, hello, weights
from tests.unit.engine.stage import Stage
from tests.unit.families.mdgan.stage import make_worker
from tests.unit.gan import small
from tests.unit.gan.stateful import make_standalone

E = 2
"""Iterations in a round, where a test does not say otherwise."""
Classes = Mapping[int, Sequence[int]]


def make_client(rank: int, *, model_seed: int = 0) -> Client:
    """Models of its own at first: the server's come with the first round."""
    worker, generator = make_worker(rank, model_seed=model_seed), small.make_generator(model_seed)
    return Client(make_standalone(worker, 2, rank, generator=generator), SHARD_SIZE)


def make_models(seed: int = 0) -> GlobalModels:
    return GlobalModels(small.make_generator(seed), small.make_model(seed))


SHAPE = make_models().vector.shape
MODELS = Models("a test", small.SHAPE, small.Z_DIM, small.make_generator, small.make_model)


def make_averaging(settings: FederatedSettings, models: GlobalModels) -> Averaging:
    if settings.rounds.sampling == "poisson":
        return PoissonRounds(settings, models.vector.num_weight_blocks)
    return Averaging(settings, models.vector.num_weight_blocks)


def tasks_of(order: Message) -> dict[int, ClientTask]:
    """By client, what a ROUND message asks for."""
    return {task.client: task for slot in read_order(order, SHAPE)[1] for task in slot}


def models_of(worker: int, iteration: int) -> Tensor:
    """What a client played by hand answers: other models, whatever it was sent."""
    return make_models(1000 * iteration + worker).vector.read()


def mean_of(parts: Mapping[int, tuple[float, Tensor]]) -> Tensor:
    """The weighted mean of clients' models: every addend to 44 binary places, as documented."""
    addends = [(weight * vector.double() * 2**44).round() for weight, vector in parts.values()]
    total = sum(parts[client][0] for client in sorted(parts))
    return (torch.stack(addends).sum(0) / 2**44 / total).float()


def generator_of(vector: Tensor) -> Tensor:
    """The generator in a vector, as `played.weights` gives it."""
    models = make_models()
    models.vector.write(vector)
    return weights(models.generator)


class PlayedClients(Played):
    """A host whose clients a test plays."""

    def __init__(
        self, network: MemoryNetwork, *workers: int, form_of: "RoundStage", **fields: Any
    ) -> None:
        super().__init__(network, *workers, **fields)
        self.form = form_of.form

    def answer_round(
        self, iteration: int | None = None, models: Mapping[int, Tensor] | None = None
    ) -> Message:
        """Waits for a round and answers it."""
        order = self.take(ROUND, iteration)
        self.send(self.answer_to(order, models))
        return order

    def answer_to(self, order: Message, models: Mapping[int, Tensor] | None = None) -> Message:
        """A whole answer to a ROUND message."""
        tasks, replacements = tasks_of(order), models or {}
        trained = {n: replacements.get(n, models_of(n, order.iteration)) for n in tasks}
        losses = {n: torch.tensor([0.5, 0.25]) for n in tasks}
        shares = {n: task.weight for n, task in tasks.items()}
        together = dict.fromkeys(trained, 0)
        return pack_answers(order.iteration, trained, losses, together, self.form, None, shares)

    def obey(self, message: Message) -> None:
        """Does what a host of played clients can do about a message."""
        if message.kind == ROUND:
            self.send(self.answer_to(message))
        else:
            super().obey(message)

    def rounds(self) -> list[int]:
        """The iterations of the rounds that came."""
        return [m.iteration for m in self.seen if m.kind == ROUND]


class RoundStage(Stage):
    """A stage on which FL-GAN or FeGAN is trained; `classes` are what workers say they hold."""

    def __init__(
        self, folder: Path, *, aborts: bool = False, classes: Classes | None = None, **how: Any
    ) -> None:
        self.classes = classes or {}
        rules = {"on_deadline": "abort", "deadline": (LONG, 0.0)} if aborts else {}
        super().__init__(folder, **{"round_iterations": E, **rules, **how})

    def make_settings(self, values: Mapping[str, Any]) -> RunSettings:
        return FederatedSettings.read(values)

    def bring(self) -> ServerPart:
        settings = self.settings
        assert isinstance(settings, FederatedSettings)
        self.models = make_models()
        cohort = Cohort(ServerPath(update_form(settings, SHAPE)))
        averaging = make_averaging(settings, self.models)
        return FederatedServer(self.models, cohort, averaging, settings, small.CPU)

    def bring_host(self, workers: Mapping[int, Client], tracer: Tracer) -> HostPart:
        assert isinstance(self.settings, FederatedSettings)
        training = LocalTraining(
            self.settings, small.CPU, lambda rank, *_: workers[rank], lambda _: SHARD_SIZE
        )
        needs = HostNeeds(self.settings, MODELS, {}, small.CPU, tracer)
        return FederatedHost(needs, workers, HostPath(self.form), training)

    def said_of(self, workers: Sequence[int]) -> dict[str, Any]:
        counts = {str(n): list(self.classes.get(n, [SHARD_SIZE])) for n in workers}
        samples = {name: sum(of_class) for name, of_class in counts.items()}
        return hello(*workers, class_counts=counts, num_samples=samples)

    def play(self, *workers: int, **fields: Any) -> PlayedClients:
        hello = self.said_of(workers)
        claims = {name: hello[name] for name in ("class_counts", "num_samples")}
        return PlayedClients(self.network, *workers, form_of=self, **{**claims, **fields})

    def clients(self, *ranks: int) -> dict[int, Client]:
        """Starts a real host of these clients in its own thread."""
        made = {rank: make_client(rank) for rank in ranks}
        self.host(made)
        return made

    def disk_keeps_up_with(self, client: Client) -> None:
        """A client trains only when the checkpoint that was due before is there."""
        train = client.train

        def train_later(
            models: Tensor, iterations: int, batch_size: int, last: int | None = None
        ) -> tuple[Tensor, Tensor]:
            done = self.peers.iteration - E
            if self.saving.due(done - 1 if done == 0 else done - E, done):
                self.wait_for_checkpoint(done)
            return train(models, iterations, batch_size, last)

        client.train = train_later  # type: ignore[method-assign] # of this one alone

    def has_become(self, vector: Tensor) -> bool:
        """Whether the generator is the one in a vector, bit for bit."""
        return small.same_bits(weights(self.models.generator), generator_of(vector))

    def vector(self) -> Tensor:
        """The server's models."""
        return self.models.vector.read()
