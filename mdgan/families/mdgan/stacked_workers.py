"""The workers of one host computed at once, by `torch.func` over stacked discriminators."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor

from mdgan.families.mdgan.algorithm import Assignment
from mdgan.families.mdgan.discriminator_stack import CannotStack, DiscriminatorStack, Penalty
from mdgan.families.mdgan.worker import Answers, StageOf, Worker
from mdgan.gan.discriminator_learner import Rules, unobserved
from mdgan.gan.labels import Samples, num_classes_of
from mdgan.gan.losses import Verdict
from mdgan.gan.regularizers import gradient_penalty, r1_penalty


class StackedWorkers:
    """Computes for all workers at once what `OneByOne` computes for one after another.

    Results are the same up to rounding, since sums are grouped in another way. Dropout draws all
    masks from the first worker's random state: they are as independent as those that workers draw
    one by one, but not the same.

    Each stage is recorded for every worker, with the same beginning and end.

    Args:
        workers: by rank, with models of the same kind.
        sample_shape: of one sample, (C, H, W).
        stage_of: from a worker's rank to the hook that its stages run in.

    Raises:
        CannotStack: these workers must be computed one by one; they are unchanged.
    """

    def __init__(
        self,
        workers: Mapping[int, Worker],
        sample_shape: Sequence[int],
        stage_of: StageOf = lambda _rank: unobserved,
    ) -> None:
        self._workers = workers
        self._stage_of = stage_of
        self._row = {rank: row for row, rank in enumerate(workers)}
        first = next(iter(workers.values()))
        self._rules, self._random_state = first.rules, first.random_state
        self._r1, self._gradient_penalty = _penalties(self._rules)
        if any(worker.rules != self._rules for worker in workers.values()):
            raise CannotStack("they learn in different ways")
        self._stack = DiscriminatorStack([worker.discriminator for worker in workers.values()])
        self._rehearse(sample_shape)
        self._stack.adopt()

    def learn_real_halves(self) -> None:
        """See `WorkerGroup`."""
        self._arrange()
        for worker in self._workers.values():
            if not worker.has_real_half:
                worker.remember()
        self._learn_real_halves(list(self._workers))

    def answer(self, generated: Samples, assignment: Mapping[int, Assignment]) -> Answers:
        """See `WorkerGroup`."""
        self._arrange()
        ranks = sorted(assignment, key=self._row.__getitem__)
        discriminator_losses = self._learn(
            ranks, generated[[assignment[rank].train for rank in ranks]]
        )
        with self._stage(ranks, "feedback"):
            judged = generated[[assignment[rank].judge for rank in ranks]]
            images = judged.images.detach().requires_grad_()
            seen = judged.of(self._augmented(ranks, images))
            with self._random_state.in_place():
                gradients, generator_losses, verdicts = self._stack.input_gradient(
                    self._rows(ranks),
                    seen,
                    partial(self._rules.loss, self._rules.generator_loss),
                    self._rules.loss_scale,
                    images,
                )
            feedbacks = gradients / self._rules.loss_scale
        losses = torch.stack([discriminator_losses, generator_losses], dim=1)
        place = {rank: index for index, rank in enumerate(ranks)}
        return Answers(
            {rank: feedbacks[place[rank]] for rank in assignment},
            {rank: losses[place[rank]] for rank in assignment},
            {rank: verdicts[place[rank]] for rank in assignment},
        )

    def catch_up(self) -> None:
        """See `WorkerGroup`; nothing was put off."""

    def _learn(self, ranks: Sequence[int], fake: Samples) -> Tensor:
        """L local steps (Algorithm 1, lines 6-8).

        Args:
            ranks: of R workers, in the order of their rows.
            fake: X^(d) of each, [R, b, C, H, W]; with labels, [R, b], if D is conditional.

        Returns:
            J_disc before the last step, [R].
        """
        workers, rows = [self._workers[rank] for rank in ranks], self._rows(ranks)
        loss = partial(self._rules.loss, self._rules.discriminator_loss.fake)
        scale = self._rules.loss_scale
        losses_before = torch.zeros(len(ranks))
        for _ in range(self._rules.local_steps):
            self._learn_real_halves(ranks)
            with self._stage(ranks, "fake half"):
                seen = fake.of(self._augmented(ranks, fake.images))
                with self._random_state.in_place():
                    losses, _ = self._stack.learn(rows, seen, loss, scale, begin=False)
                if self._gradient_penalty is not None:
                    self._learn_gradient_penalty(ranks, fake)
            with self._stage(ranks, "local step"):
                self._stack.step(rows, scale)
            losses_before = torch.stack(
                [worker.end_local_step(loss) for worker, loss in zip(workers, losses, strict=True)]
            )
        return losses_before

    def _learn_gradient_penalty(self, ranks: Sequence[int], fake: Samples) -> None:
        mixed = []
        for rank, batch in zip(ranks, fake.images, strict=True):
            worker = self._workers[rank]
            with worker.random_state.in_place():
                mixed.append(worker.mixed(batch))
        source = torch.stack(mixed).requires_grad_()
        seen = fake.of(self._augmented(ranks, source))
        with self._random_state.in_place():
            self._stack.learn(
                self._rows(ranks),
                seen,
                _nothing,
                self._rules.loss_scale,
                begin=False,
                penalty=self._gradient_penalty,
                source=source,
            )

    def _augmented(self, ranks: Sequence[int], batch: Tensor) -> Tensor:
        """What discriminators see of a batch each, [R, b, C, H, W]; each draws its own numbers."""
        workers = [self._workers[rank] for rank in ranks]
        if not workers[0].augmentation.on:
            return batch
        seen = []
        for worker, samples in zip(workers, batch, strict=True):
            with worker.random_state.in_place():
                seen.append(worker.augmentation(samples))
        return torch.stack(seen)

    def _learn_real_halves(self, ranks: Sequence[int]) -> None:
        """Learns the real half of every worker that has not learnt it yet."""
        ranks = [rank for rank in ranks if not self._workers[rank].has_real_half]
        if not ranks:
            return
        workers = [self._workers[rank] for rank in ranks]
        with self._stage(ranks, "real half"):
            real = stacked([worker.draw_real() for worker in workers]).to(self._stack.device)
            real.images.requires_grad_(self._r1 is not None)
            seen, rows = real.of(self._augmented(ranks, real.images)), self._rows(ranks)
            loss = partial(self._rules.loss, self._rules.discriminator_loss.real)
            with self._random_state.in_place():
                losses, logits = self._stack.learn(
                    rows,
                    seen,
                    loss,
                    self._rules.loss_scale,
                    begin=True,
                    penalty=self._r1,
                    source=real.images,
                )
            for worker, loss, own in zip(workers, losses, logits, strict=True):
                worker.keep_real_half(loss, own)

    def _arrange(self) -> None:
        """Puts the rows into worker order again, which swaps by reference mix up.

        Otherwise dropout masks would depend on all earlier swaps, which a resumed run forgets.
        """
        self._stack.arrange([worker.discriminator for worker in self._workers.values()])

    def _rows(self, ranks: Sequence[int]) -> list[int]:
        return [self._row[rank] for rank in ranks]

    @contextmanager
    def _stage(self, ranks: Sequence[int], name: str) -> Iterator[None]:
        with ExitStack() as stages:
            for rank in ranks:
                stages.enter_context(self._stage_of(rank)(name))
            yield

    def _rehearse(self, sample_shape: Sequence[int]) -> None:
        before = self._random_state.tensors()
        penalty = self._r1 or self._gradient_penalty
        shape = (len(self._workers), self._rules.batch_size, *sample_shape)
        batch = Samples(torch.zeros(shape, device=self._stack.device))
        first = next(iter(self._workers.values()))
        if num_classes_of(first.discriminator.model) is not None:
            labels = torch.zeros(shape[:2], dtype=torch.int64, device=self._stack.device)
            batch = Samples(batch.images, labels)
        loss = partial(self._rules.loss, self._rules.discriminator_loss.real)
        try:
            with self._random_state.in_place():
                self._stack.rehearse(batch, loss, penalty)
        finally:
            self._random_state.restore(before)


def _penalties(rules: Rules) -> tuple[Penalty | None, Penalty | None]:
    """R1 and the gradient penalty; None where there is none."""

    def r1(logits: Tensor, batch: Tensor) -> Tensor:
        return r1_penalty(logits, batch, rules.r1)

    def between(logits: Tensor, batch: Tensor) -> Tensor:
        return gradient_penalty(logits, batch, rules.gradient_penalty)

    return r1 if rules.r1 else None, between if rules.gradient_penalty else None


def _nothing(verdict: Verdict, _labels: Tensor | None) -> Tensor:
    """A loss that is always 0."""
    return verdict.logits.new_zeros(())


def stacked(batches: Sequence[Samples]) -> Samples:
    """Batches of samples, all with labels or none, as one with one more dimension."""
    labels = [batch.labels for batch in batches if batch.labels is not None]
    images = torch.stack([batch.images for batch in batches])
    return Samples(images, torch.stack(labels) if labels else None)
