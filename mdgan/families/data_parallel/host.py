"""A host of ParaGAN: it has its workers compute gradients on their own data, and sends these."""

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mdgan.engine.host.protocol import sensible
from mdgan.engine.parts import HostHandler, HostPart
from mdgan.engine.stages.contract import in_one_message, pack_answers
from mdgan.families.data_parallel import messages
from mdgan.families.data_parallel.direct import DirectHost
from mdgan.families.data_parallel.messages import TRAIN, ApartQuestion, TrainQuestion
from mdgan.families.data_parallel.replica import Replica
from mdgan.families.data_parallel.together import TogetherHost
from mdgan.families.data_parallel.vectors import DISCRIMINATOR, GENERATOR
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.transport.host_end import HostTransport


@dataclass(eq=False)
class ReplicaHost(HostPart):
    """What both hosts of this family share: a replica for each worker, and the server's weights."""

    learners: Mapping[int, Replica]
    device: torch.device
    tracer: Tracer
    begins = TRAIN

    def handlers(self) -> Mapping[str, HostHandler]:
        return {TRAIN: self._train}

    @abstractmethod
    def _train(self, message: Message, transport: HostTransport) -> None:
        """Has workers train as a TRAIN message asks, and sends their answer."""

    def _take_over(self, weights: Mapping[str, Tensor], asked: Collection[int]) -> None:
        if not asked or not self.learners.keys() >= set(asked):
            raise ValueError(f"it asks workers {sorted(asked)}")
        for replica in self.learners.values():  # also workers that the server does not ask now
            replica.take_over(weights)

    def _send(self, answer: Message, transport: HostTransport) -> None:
        with self.tracer.span("send") as span:
            span.num_bytes = transport.send(answer)


@dataclass(eq=False)
class DataParallelHost(ReplicaHost):
    """A host whose workers train both networks.

    Args:
        together: the host's side where hosts share memory with the server; None if not.
        direct: the host's side where hosts add up gradients among themselves; None if not.
    """

    together: TogetherHost | None = None
    direct: DirectHost | None = None

    def handlers(self) -> Mapping[str, HostHandler]:
        direct = {} if self.direct is None else self.direct.handlers()
        return {**super().handlers(), **direct}

    def close(self) -> None:
        if self.direct is not None:
            self.direct.close()

    def tell(self) -> dict[str, Any]:
        return {} if self.together is None else self.together.tell()

    def _train(self, message: Message, transport: HostTransport) -> None:
        if self.together is not None and message.fields.get(messages.TOGETHER) is True:
            answer = self.together.train(message.iteration, lambda: transport.is_over)
            self._send(answer, transport)
            return
        if self.together is not None:
            self.together.take_back()
        with sensible(TRAIN):
            question = messages.read_train(message, self.device)
            self._take_over(question.tensors, question.shares)
        gradients, losses = self._gradients(question)
        if self.direct is not None and question.is_direct:
            self.direct.keep(question.reduction, gradients, losses)
            norms = messages.norms(message.iteration, question.reduction, gradients, losses=losses)
            self._send(norms, transport)
            return
        form = messages.gradient_form(question.reduction, next(iter(gradients.values())).shape)
        groups = dict.fromkeys(gradients, 0)  # the host adds up three or more
        answers = message.iteration, gradients, losses, groups, form
        self._send(pack_answers(*answers, weights=question.weights), transport)

    def _gradients(self, question: TrainQuestion) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
        gradients: dict[int, Tensor] = {}
        losses: dict[int, Tensor] = {}
        kept = self.direct if question.is_again else None
        if self.direct is not None:
            self.direct.begin(question)
        for rank, share in question.shares.items():
            if kept is not None and rank in kept.found:
                gradients[rank], losses[rank] = kept.found[rank], kept.losses[rank]
                continue
            how = share.batch_sizes, question.lag, self.tracer.of_worker(rank)
            losses[rank] = self.learners[rank].learn(question.reduction, *how)
            gradients[rank] = self.learners[rank].vector(question.reduction).read()
        return gradients, losses


class ApartHost(ReplicaHost):
    """A host whose workers, of one group or both, train one network each (ParaGAN, 5.1)."""

    def _train(self, message: Message, transport: HostTransport) -> None:
        with sensible(TRAIN):
            question = messages.read_train_apart(message, self.device)
            self._take_over(question.tensors, {**question.generated, **question.learnt})
        answers = []
        if question.generated:
            answers.append(self._train_generator(message.iteration, question))
        if question.learnt:
            answers.append(self._train_discriminator(message.iteration, question))
        self._send(in_one_message(answers), transport)

    def _train_generator(self, iteration: int, question: ApartQuestion) -> Message:
        gradients, losses = {}, {}
        images: dict[int, Tensor] = {}
        labels: dict[int, Tensor] = {}
        for rank, num_images in question.generated.items():
            gradients[rank], loss, made = self.learners[rank].generator_alone(
                num_images, question.label_counts, self.tracer.of_worker(rank)
            )
            losses[rank] = torch.stack([torch.zeros_like(loss), loss])
            images[rank] = made.images
            if made.labels is not None:
                labels[rank] = made.labels
        beside = {messages.IMAGES: images, **({messages.LABELS: labels} if labels else {})}
        form = messages.alone_form(GENERATOR, num_classes=1 if labels else None)
        return pack_answers(iteration, gradients, losses, dict.fromkeys(gradients, 0), form, beside)

    def _train_discriminator(self, iteration: int, question: ApartQuestion) -> Message:
        gradients, losses = {}, {}
        for rank, fake in question.learnt.items():
            replica, stage = self.learners[rank], self.tracer.of_worker(rank)
            gradients[rank], loss = replica.discriminator_alone(fake, stage)
            losses[rank] = torch.stack([loss, torch.zeros_like(loss)])
        form = messages.alone_form(DISCRIMINATOR)
        groups = dict.fromkeys(gradients, 0)
        return pack_answers(iteration, gradients, losses, groups, form, weights=question.weights)
