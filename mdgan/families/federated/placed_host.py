"""A host whose slots train any clients that it is given (Sani et al. 2024, "Pollen", figure 6b)."""

import time
from collections.abc import Mapping
from typing import Any

import msgspec
from torch import Tensor

from mdgan.engine.host.loop import HostFailed
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.families.federated.messages import ROUND
from mdgan.families.federated.placed_messages import (
    Account,
    mean_losses,
    models_of_client,
    read_placed_order,
    sum_update,
    trained,
)
from mdgan.families.federated.slot_count import SlotCount
from mdgan.families.federated.slots import Slots, SlotsDied
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.transport.host_end import HostTransport


class NothingKept:
    """What a host keeps for its rank between two rounds: nothing."""

    def state(self) -> dict[str, Tensor]:
        """Empty."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> bool:
        """Takes nothing.

        Raises:
            KeyError: there is something.
        """
        if state:
            raise KeyError(f"tensors that do not fit: {sorted(state)[:3]}")
        return True


class PlacedHost(HostPart):
    """Trains lists of clients, and sends their sum.

    Args:
        rank: of the host.
        slots: where they are trained.
        count: how many slots it offers.
        num_clients: of the run.
        tracer: records what the host does when.
    """

    begins = ROUND

    def __init__(
        self, rank: int, slots: Slots, count: SlotCount, num_clients: int, tracer: Tracer
    ) -> None:
        self._rank = rank
        self._slots = slots
        self._count = count
        self._num_clients = num_clients
        self._tracer = tracer

    @property
    def learners(self) -> Mapping[int, NothingKept]:
        """By rank."""
        return {self._rank: NothingKept()}

    def handlers(self) -> Mapping[str, HostHandler]:
        """By kind of message, what carries it out."""
        return {ROUND: self._train}

    def tell(self) -> dict[str, Any]:
        """The slots that it offers for the next round."""
        return {"offer": msgspec.to_builtins(self._count.offer())}

    def memory_bytes(self) -> int:
        """What its slots hold."""
        return self._slots.memory_bytes()

    def close(self) -> None:
        """Ends its slots."""
        self._slots.close()

    def _train(self, order: Message, transport: HostTransport) -> None:
        try:
            models, lists = read_placed_order(order, self._slots.shape, self._num_clients)
        except ValueError as error:
            why = f"the server's {ROUND} message makes no sense ({error!s:.99})"
            raise HostFailed(f"rank {self._rank}: {why}") from error
        begin = time.monotonic()
        with self._tracer.span("train"):
            try:
                work = self._slots.train(lists, models, order.iteration)
            except SlotsDied as error:
                raise HostFailed(f"rank {self._rank}: {error}") from error
        amount = sum(task.load.iterations for tasks in lists for task in tasks)
        if all(lists):  # an idle slot says nothing of what one more is worth
            self._count.note(amount, time.monotonic() - begin, self._slots.bytes_each)
        with self._tracer.span("send") as span:
            for client, found in work.models.items():
                span.num_bytes += transport.send(models_of_client(order.iteration, client, found))
            account = Account(work.trained, self._count.offer())
            span.num_bytes += transport.send(trained(order.iteration, account))
            losses = mean_losses(work.trained)
            update = sum_update(order.iteration, self._rank, work.total, losses)
            span.num_bytes += transport.send(update)
