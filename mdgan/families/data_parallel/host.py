"""The workers' share of data-parallel training: they find gradients on their own data."""

from collections.abc import Mapping
from functools import partial

import torch

from mdgan.engine.answers import pack_answers
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.families.data_parallel.messages import TRAIN, gradient_form, read_train
from mdgan.families.data_parallel.replica import Replica
from mdgan.gan.weighted_mean import weighted_sum
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.transport.host_end import HostTransport


class DataParallelHost(HostPart):
    """The workers of one host.

    Args:
        replicas: by rank.
        device: where they live.
        tracer: records what they do when.
    """

    begins = TRAIN

    def __init__(
        self, replicas: Mapping[int, Replica], device: torch.device, tracer: Tracer
    ) -> None:
        self._replicas = replicas
        self._device = device
        self._tracer = tracer

    @property
    def learners(self) -> Mapping[int, Replica]:
        """By rank."""
        return self._replicas

    def handlers(self) -> Mapping[str, HostHandler]:
        """By kind of message, what carries it out."""
        return {TRAIN: self._train}

    def _train(self, message: Message, transport: HostTransport) -> None:
        reduction, shares, lag = read_train(message)
        weights = {name: vector.to(self._device) for name, vector in message.tensors.items()}
        for replica in self._replicas.values():  # also of workers that are not asked this time
            replica.take_over(weights)
        found, losses = {}, {}
        for rank, share in shares.items():
            found[rank], losses[rank] = self._replicas[rank].gradients(
                reduction, share.batch_sizes, lag, self._tracer.of_worker(rank)
            )
        with self._tracer.span("send") as span:
            answer = pack_answers(
                message.iteration,
                found,
                losses,
                dict.fromkeys(found, 0),  # three or more are added up
                gradient_form(reduction, next(iter(found.values())).shape),
                add_up=partial(
                    weighted_sum, weights={rank: share.weight for rank, share in shares.items()}
                ),
            )
            span.num_bytes = transport.send(answer)
