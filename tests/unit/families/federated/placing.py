"""A stage on which placed clients are placed on the slots of hosts, some played."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mdgan import messages
from mdgan.engine.parts import ServerPart
from mdgan.families.federated.messages import (
    MODELS,
    ROUND,
    ClientReport,
    HostReport,
    read_order,
    report_message,
    sum_message,
    update_form,
)
from mdgan.families.federated.placed import PlacedCohort
from mdgan.families.federated.server import FederatedServer
from mdgan.families.federated.settings import FederatedSettings
from mdgan.gan.exact_sum import weighted_sum
from mdgan.messages import Kind, Message
from tests.unit.engine.played import SHARD_SIZE, Played
from tests.unit.families.federated.rounds import (
    SHAPE,
    E,
    RoundStage,
    make_averaging,
    make_models,
    mean_of,
    models_of,
    tasks_of,
)
from tests.unit.gan import small

KINDS = ("core",)
"""The slots of a played host, where a test does not say otherwise."""


def mean_over(iteration: int, clients: Sequence[int], of: int | None = None) -> Tensor:
    """What a round finds if these clients take part, of so many that were chosen."""
    share = 1 / (of or len(clients))
    return mean_of({n: (share, models_of(n, iteration)) for n in clients})


class PlayedSlots(Played):
    """A host of slots that a test plays: clients find `models_of`."""

    kinds: Sequence[str] = KINDS
    gives_all = False

    def ready(self, *holds: int) -> "PlayedSlots":
        """Arrives with an offer."""
        return self.says({"offer": list(self.kinds)}, *holds)

    def says(self, details: Any, *holds: int) -> "PlayedSlots":
        """Arrives, and tells anything at all."""
        i = int(self.welcome["iteration"])
        fields = {"holds": list(holds or self.workers), "told": details}
        self.send(Message(Kind.READY, i, fields))
        return self

    def take_round(self, iteration: int) -> tuple[Message, list[int]]:
        """Waits for a round; returns it, and the clients in it."""
        order = self.take(ROUND, iteration)
        return order, clients_in(order)

    def answer_round(self, iteration: int, **how: Any) -> list[int]:
        """Waits for a round and answers it; returns the clients in it."""
        order, clients = self.take_round(iteration)
        self.answer_with(order, **how)
        return clients

    def answer_with(
        self,
        order: Message,
        *,
        scale: float = 1.0,
        unusable: Sequence[int] = (),
        message: Message | None = None,
        update: Message | None = None,
    ) -> None:
        """Sends an account and a sum, both whole unless given otherwise."""
        for client in clients_in(order) if self.gives_all else ():
            self.send(self.models_of(order, client))
        self.send(message or self.account_of(order, unusable))
        self.send(update or self.sum_of(order, scale, unusable))

    def models_of(self, order: Message, client: int, scale: float = 1.0) -> Message:
        """A whole MODELS message; with a scale other than 1 that of a liar."""
        models = scale * models_of(client, order.iteration)
        return Message(MODELS, order.iteration, {"client": client}, {"models": models})

    def account_of(
        self, order: Message, unusable: Sequence[int] = (), seconds: float = 0.5
    ) -> Message:
        """A whole TRAINED message."""
        reports = [
            ClientReport(task.client, slot, 0.0, seconds, (0.5, 0.25), task.client not in unusable)
            for slot, tasks in enumerate(read_order(order, SHAPE)[1])
            for task in tasks
        ]
        return report_message(order.iteration, HostReport(reports, list(self.kinds)))

    def sum_of(self, order: Message, scale: float = 1.0, unusable: Sequence[int] = ()) -> Message:
        """A whole UPDATE message; with a scale other than 1 that of a liar."""
        tasks = {n: task for n, task in tasks_of(order).items() if n not in unusable}
        total = torch.zeros(SHAPE).double()
        if tasks:
            models = {n: models_of(n, order.iteration) for n in tasks}
            total = scale * weighted_sum(models, {n: task.weight for n, task in tasks.items()})
        reports = [ClientReport(1, 0, 0.0, 0.0, (0.5, 0.25))]
        return sum_message(order.iteration, self.number, total, reports)

    def obey(self, message: Message) -> None:
        """Does what a host of slots does about a message."""
        if message.kind == ROUND:
            self.answer_with(message)
        elif message.kind == Kind.ADOPT:
            self.ready()
        else:
            super().obey(message)

    def arrive(self) -> "PlayedSlots":
        """Comes while others train: it needs nothing that the server would have to find."""
        self.send(messages.ready(int(self.welcome["iteration"]), []))
        self.take(Kind.ADOPT)
        return self.ready()


def clients_in(order: Message) -> list[int]:
    """The clients of a ROUND message, in increasing order."""
    return sorted(tasks_of(order))


class PlacingStage(RoundStage):
    """A stage with placed clients; `num_workers` is the number of hosts."""

    def __init__(self, folder: Path, *, clients: int = 6, **how: Any) -> None:
        super().__init__(folder, clients=clients, **{"placement": "rr", **how})

    def bring(self) -> ServerPart:
        settings = self.settings
        assert isinstance(settings, FederatedSettings)
        assert settings.placing.clients is not None
        self.models = make_models()
        counts = {client: [SHARD_SIZE] for client in range(1, settings.placing.clients + 1)}
        cohort = PlacedCohort(counts, update_form(settings, SHAPE), settings)
        averaging = make_averaging(settings, self.models)
        return FederatedServer(self.models, cohort, averaging, settings, small.CPU)

    def play(self, *workers: int, **fields: Any) -> PlayedSlots:  # type: ignore[override] # its kind
        return PlayedSlots(self.network, *workers, **{**self.said_of(workers), **fields})

    def begin_slots(self, number: int) -> list[PlayedSlots]:
        """Starts the server with so many played hosts."""
        hosts = [self.play(rank) for rank in range(1, number + 1)]
        self.begin(*hosts)
        return hosts

    def round_is_done_by(self, one: PlayedSlots, clients: list[int], *others: PlayedSlots) -> None:
        """One host trains its own clients, and then those of a host that has failed."""
        one.answer_round(E)
        assert one.answer_round(E) == clients
        self.finished(one, *others)

    def placed(self) -> list[dict[str, Any]]:
        """What was recorded of the placement of every round."""
        return self.events("placement")
