"""The workers' share of data-parallel training: they find gradients on their own data."""

from collections.abc import Mapping

import torch
from torch import Tensor

from mdgan.engine.answers import pack_answers
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.families.data_parallel.messages import (
    TRAIN,
    Share,
    gradient_form,
    is_again,
    read_for_ring,
    read_train,
    read_weights,
)
from mdgan.families.data_parallel.replica import Reduction, Replica
from mdgan.families.data_parallel.ring_host import RingMember
from mdgan.families.data_parallel.ring_messages import behind, norms
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.transport.host_end import HostTransport


class DataParallelHost(HostPart):
    """The workers of one host.

    Args:
        replicas: by rank.
        device: where they live.
        tracer: records what they do when.
        member: the host's part in the ring, if gradients are added up in one.
    """

    begins = TRAIN

    def __init__(
        self,
        replicas: Mapping[int, Replica],
        device: torch.device,
        tracer: Tracer,
        member: RingMember | None = None,
    ) -> None:
        self._replicas = replicas
        self._device = device
        self._tracer = tracer
        self._member = member
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def learners(self) -> Mapping[int, Replica]:
        """By rank."""
        return self._replicas

    def handlers(self) -> Mapping[str, HostHandler]:
        """By kind of message, what carries it out."""
        of_ring = {} if self._member is None else self._member.handlers()
        return {TRAIN: self._train, **of_ring}

    def _train(self, message: Message, transport: HostTransport) -> None:
        reduction, shares, lag = read_train(message)
        if self._member is not None and self._member.lacks(message):
            transport.send(behind(message.iteration))
            return
        weights = {name: vector.to(self._device) for name, vector in read_weights(message).items()}
        for replica in self._replicas.values():  # also of workers that are not asked this time
            replica.take_over(weights)
        found = self._kept
        if not (is_again(message) and shares.keys() <= found.keys()):
            found = self._find(reduction, shares, lag)
        self._kept = {} if self._member is None else found
        with self._tracer.span("send") as span:
            span.num_bytes = transport.send(self._answer(message, found))

    def _find(
        self, reduction: Reduction, shares: Mapping[int, Share], lag: int
    ) -> dict[int, tuple[Tensor, Tensor]]:
        """Gradients and losses by worker."""
        return {
            rank: self._replicas[rank].gradients(
                reduction, share.batch_sizes, lag, self._tracer.of_worker(rank)
            )
            for rank, share in shares.items()
        }

    def _answer(self, message: Message, found: Mapping[int, tuple[Tensor, Tensor]]) -> Message:
        reduction, shares, _ = read_train(message)
        gradients = {rank: found[rank][0] for rank in shares}
        losses = {rank: found[rank][1] for rank in shares}
        given = read_for_ring(message)
        if self._member is not None and given is not None:
            self._member.keep(given, reduction, gradients)
            return norms(message.iteration, reduction, gradients, losses)
        return pack_answers(
            message.iteration,
            gradients,
            losses,
            dict.fromkeys(gradients, 0),  # three or more are added up
            gradient_form(reduction, next(iter(gradients.values())).shape),
            weights={rank: share.weight for rank, share in shares.items()},
        )
