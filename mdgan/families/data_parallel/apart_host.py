"""The workers' share where each trains one network alone (ParaGAN, section 5.1)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from mdgan.engine.answers import in_one_message, pack_answers
from mdgan.engine.parts import HostHandler
from mdgan.families.data_parallel.apart_messages import (
    IMAGES,
    LABELS,
    ApartQuestion,
    alone_form,
    read_train_apart,
)
from mdgan.families.data_parallel.host import DataParallelHost
from mdgan.families.data_parallel.messages import TRAIN
from mdgan.families.data_parallel.replica import DISCRIMINATOR, GENERATOR
from mdgan.messages import Message
from mdgan.transport.host_end import HostTransport


class ApartHost(DataParallelHost):
    """The workers of one host, of one group or of both."""

    def handlers(self) -> Mapping[str, HostHandler]:
        """By kind of message, what carries it out."""
        return {TRAIN: self._train_apart}

    def _train_apart(self, message: Message, transport: HostTransport) -> None:
        question = read_train_apart(message, self._device)
        for replica in self._replicas.values():  # also of workers that are not asked this time
            replica.take_over(question.tensors)
        answers = []
        if question.generated:
            answers.append(self._train_generator(message.iteration, question))
        if question.learnt:
            answers.append(self._train_discriminator(message.iteration, question))
        with self._tracer.span("send") as span:
            span.num_bytes = transport.send(in_one_message(answers))

    def _train_generator(self, iteration: int, question: ApartQuestion) -> Message:
        found, losses = {}, {}
        images: dict[int, Tensor] = {}
        labels: dict[int, Tensor] = {}
        for rank, num_images in question.generated.items():
            replica = self._replicas[rank]
            found[rank], loss, made = replica.generator_alone(
                num_images, question.label_counts, self._tracer.of_worker(rank)
            )
            losses[rank] = torch.stack([torch.zeros_like(loss), loss])
            images[rank] = made.images
            if made.labels is not None:
                labels[rank] = made.labels
        beside = {IMAGES: images, **({LABELS: labels} if labels else {})}
        form = alone_form(GENERATOR, (), 0, (), num_classes=1 if labels else None)
        return pack_answers(iteration, found, losses, dict.fromkeys(found, 0), form, beside)

    def _train_discriminator(self, iteration: int, question: ApartQuestion) -> Message:
        found, losses = {}, {}
        for rank, fake in question.learnt.items():
            found[rank], loss = self._replicas[rank].discriminator_alone(
                fake, self._tracer.of_worker(rank)
            )
            losses[rank] = torch.stack([loss, torch.zeros_like(loss)])
        return pack_answers(
            iteration,
            found,
            losses,
            dict.fromkeys(found, 0),  # three or more are added up
            alone_form(DISCRIMINATOR, (), 0, (), None),
            weights=question.weights,
        )
