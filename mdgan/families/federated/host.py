"""The workers' share of a federated algorithm: they train both models and send them back."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mdgan.families.federated.fl_gan import Client
from mdgan.families.federated.messages import read_order, update
from mdgan.families.mdgan.messages import Form
from mdgan.messages import Kind, Message
from mdgan.observe.tracer import Tracer
from mdgan.transport.base import HostTransport


class FederatedHost:
    """A device of FL-GAN and FeGAN (Guerraoui et al. 2020, section 3.2), for all of one host.

    Args:
        clients: by rank.
        device: where their models live.
        form: how models travel.
        tell: what the server wants to know of these clients: JSON values.
    """

    def __init__(
        self,
        clients: Mapping[int, Client],
        device: torch.device,
        form: Form,
        tell: Callable[[], dict[str, Any]],
    ) -> None:
        self._clients = clients
        self._device = device
        self._form = form
        self._tell = tell

    @property
    def learners(self) -> Mapping[int, Client]:
        """See `HostPart`."""
        return self._clients

    @property
    def begins(self) -> Kind:
        """See `HostPart`."""
        return Kind.ROUND

    def tell(self) -> dict[str, Any]:
        """See `HostPart`."""
        return self._tell()

    def arrived(self, holds: Sequence[int]) -> None:
        """See `HostPart`; clients have nothing to do before their first round."""

    def obey(self, order: Message, transport: HostTransport, tracer: Tracer) -> bool:
        """See `HostPart`."""
        if order.kind is not Kind.ROUND:
            return False
        models, loads, weights = read_order(order)
        models = models.to(self._device)
        trained, losses = {}, {}
        for rank, load in loads.items():
            with tracer.of_worker(rank)("train"):
                vector, losses[rank] = self._clients[rank].train(
                    models, load.iterations, load.batch_size
                )
            trained[rank] = vector if self._form.feedback.is_exact else vector - models
        with tracer.span("send") as span:
            answer = update(order.iteration, trained, losses, weights, self._form)
            span.num_bytes = transport.send(answer)
        return True

    def adopt(self, rank: int, state: Mapping[str, Tensor]) -> None:
        """See `HostPart`."""
        self._clients[rank].load_state(state)

    def adopted(self) -> None:
        """See `HostPart`."""
