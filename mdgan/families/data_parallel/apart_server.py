"""The server of `--generator-ranks`: one group of workers trains G, the other D (ParaGAN, 5.1)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.parts import Advance
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.hosts import Hosts, workers_of
from mdgan.families.data_parallel import messages
from mdgan.families.data_parallel.messages import ApartQuestion
from mdgan.families.data_parallel.replica import KeptImages
from mdgan.families.data_parallel.scaling import WorkerShare
from mdgan.families.data_parallel.server import ReplicaServer, keeping_up
from mdgan.families.data_parallel.settings import GeneratorRanks
from mdgan.families.data_parallel.step import ALONE
from mdgan.families.data_parallel.vectors import BUFFERS, DISCRIMINATOR, GENERATOR
from mdgan.gan.exact_sum import average
from mdgan.gan.labels import Samples, label_counts, num_classes_of
from mdgan.gan.losses import finite_means
from mdgan.gan.model_state import part_of, under
from mdgan.spelling import flag

_IMAGES = "images."
_GROUPS = (DISCRIMINATOR, GENERATOR)  # in the order of their losses

Shares = Mapping[str, Mapping[int, WorkerShare]]
"""By network, the shares of the workers that train it."""


@dataclass(eq=False)
class ApartServer(ReplicaServer):
    """Averages each network's gradients over its group, and keeps images of G for D's group."""

    ranks: GeneratorRanks
    sample_shape: Sequence[int]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._num_classes = num_classes_of(self.replica.models[GENERATOR])
        self._images = KeptImages(self.sample_shape, self._num_classes)
        self.form = self._form(DISCRIMINATOR)

    @property
    def forms(self) -> Sequence[AnswerForm]:
        return [self._form(network) for network in _GROUPS]

    def lacking(self, workers: Collection[int]) -> str:
        generators, discriminators = self.ranks.groups(workers)
        if generators and discriminators:
            return ""
        if not generators and not discriminators:
            return "all workers"
        lost = DISCRIMINATOR if generators else GENERATOR
        return f"all workers that train the {lost} ({flag('generator_ranks', self.ranks)})"

    def advance(self, done: int, engine: Engine) -> Advance | None:
        """One iteration: each group computes gradients of its network, both at the same time."""
        hosts = engine.await_hosts()
        i = done + 1
        engine.at(i)

        # 1. Share out the samples of the iteration in each group.
        with engine.span("scale"):
            groups = self.ranks.groups(workers_of(hosts))
            shares = {
                GENERATOR: self.scaling.shares(groups.generator, GENERATOR),
                DISCRIMINATOR: self.scaling.shares(groups.discriminator, DISCRIMINATOR),
            }
            self.replica.at(i, self.scaling.rates(shares))

        # 2. Ask both groups at once; D learns from older images. In the first iteration there are
        #    none: ask G's group first, and D learns from the images that it has just made.
        fake = next(iter(self._images.batches), None)
        answers: dict[str, Answers] = {}
        rest: Shares = shares
        if fake is None:
            answers = self._ask_for(i, hosts, {GENERATOR: shares[GENERATOR]}, None, engine)
            fake = self._made(answers)
            rest = {DISCRIMINATOR: shares[DISCRIMINATOR]}
        if fake is not None:
            answers |= self._ask_for(i, hosts, rest, fake=fake, engine=engine)
        made = self._made(answers)
        if made is None or not answers.get(DISCRIMINATOR, Answers()).losses:
            return None  # a group was lost: the server repeats the iteration with newcomers

        # 3. Average each gradient in its group, and step with the means.
        with engine.span("aggregate"):
            means = {}
            for network, group in answers.items():
                weights = {worker: share.weight for worker, share in shares[network].items()}
                means[network] = average(group.singles, group.sums, weights)
        with engine.span("step"):
            for network in _GROUPS:
                self.replica.step(ALONE[network], means[network])
                self.sent.note_step(ALONE[network])
        self._images.take_in(made, self.settings.asynchrony.lag_at(i))
        return Advance(i, *_losses(answers))

    @override
    def state(self) -> dict[str, Tensor]:
        return {**super().state(), **under(_IMAGES, self._images.state())}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        super().load_state({n: t for n, t in state.items() if not n.startswith(_IMAGES)})
        self._images.batches = self._images.read(part_of(state, _IMAGES), self.device)

    def _form(self, network: str, num_images: int = 0) -> AnswerForm:
        shape = self.replica.vector(ALONE[network]).shape
        return messages.alone_form(network, shape, num_images, self.sample_shape, self._num_classes)

    def _made(self, answers: Mapping[str, Answers]) -> Samples | None:
        """The images of the generator's group; None if it did not answer."""
        group = answers.get(GENERATOR, Answers())
        return messages.read_images(group.beside, self._num_classes) if group.singles else None

    def _ask_for(
        self, i: int, hosts: Hosts, shares: Shares, fake: Samples | None, engine: Engine
    ) -> dict[str, Answers]:
        """Asks `keeping_up` hosts for gradients of one group, or of both; returns them by group."""
        share_of = {n: share for group in shares.values() for n, share in group.items()}
        asked = keeping_up(hosts, share_of, engine)
        sizes = {n: s.batch_sizes.discriminator for n, s in shares.get(DISCRIMINATOR, {}).items()}
        dealt = {} if fake is None else deal(fake, sizes)
        generated = {n: s.batch_sizes.generator for n, s in shares.get(GENERATOR, {}).items()}
        weights = {n: share.weight for n, share in share_of.items()}
        counts = None
        if self._num_classes is not None and self.settings.training.label_prior == "data":
            counts = label_counts(self._num_classes, engine.held_classes())

        def question(host: int) -> ApartQuestion:
            trains_generator = {n: generated[n] for n in asked[host] if n in generated}
            names = [*([GENERATOR] if trains_generator else []), DISCRIMINATOR, BUFFERS]
            return ApartQuestion(
                trains_generator,
                {n: dealt[n] for n in asked[host] if n in dealt},
                {n: weights[n] for n in asked[host]},
                tensors=self.sent.missing(host, names),
                label_counts=counts if trains_generator else None,
            )

        engine.ask(i, asked, lambda host: messages.train_apart(i, question(host)))
        forms = {n: self._form(GENERATOR, generated[n]) for n in generated}
        forms |= dict.fromkeys(dealt, self._form(DISCRIMINATOR))
        answers = engine.collector.collect(i, asked, weights, forms=forms)
        return {network: _only(answers, group) for network, group in shares.items()}


def deal(images: Samples, sizes: Mapping[int, int]) -> dict[int, Samples]:
    """Deals generated images out, in order: each worker gets its number in `sizes`.

    With too few images it goes through them again from the first; with too many it omits the last.
    """
    dealt, first = {}, 0
    for worker, size in sizes.items():
        places = torch.arange(first, first + size) % len(images)
        dealt[worker] = images[places.tolist()]
        first += size
    return dealt


def _only(answers: Answers, workers: Collection[int]) -> Answers:
    """The answers of some workers, and the sums of these workers alone."""
    return Answers(
        {n: answer for n, answer in answers.singles.items() if n in workers},
        [part for part in answers.sums if set(part.workers) <= set(workers)],
        {n: loss for n, loss in answers.losses.items() if n in workers},
        beside={
            name: {n: t for n, t in rows.items() if n in workers}
            for name, rows in answers.beside.items()
        },
        hosts=answers.hosts,
    )


def _losses(answers: Mapping[str, Answers]) -> tuple[Tensor, list[int]]:
    """J_disc and J_gen by worker, [N, 2]: one is its own, the other its other group's mean."""
    columns = [answers[network].mean_losses()[:, n] for n, network in enumerate(_GROUPS)]
    means = torch.stack([finite_means(losses[:, None])[0] for losses in columns])
    rows = {}
    for column, network in enumerate(_GROUPS):
        for worker, losses in answers[network].losses.items():
            rows[worker] = means.clone()
            rows[worker][column] = losses[column]
    workers = sorted(rows)
    return torch.stack([rows[worker] for worker in workers]), workers
