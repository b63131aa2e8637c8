"""Two groups of workers, one for each network, train as an independent loop does."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from mdgan.engine.parts import HostPart, ServerPart
from mdgan.engine.settings import RunSettings
from mdgan.families.data_parallel.apart_server import ApartServer, deal
from mdgan.families.data_parallel.host import ApartHost
from mdgan.families.data_parallel.messages import LABELS, TRAIN, read_images
from mdgan.families.data_parallel.replica import Replica
from mdgan.families.data_parallel.settings import DataParallelSettings
from mdgan.families.data_parallel.vectors import BUFFERS, DISCRIMINATOR, GENERATOR
from mdgan.gan.labels import Samples
from mdgan.gan.randomness import generator_for
from mdgan.messages import Message
from mdgan.observe.tracer import Tracer
from mdgan.spelling import spelled
from tests.marks import examples
from tests.processes import wait_until
from tests.unit.engine.played import Played
from tests.unit.engine.stage import Stage
from tests.unit.families.data_parallel.replicas import (
    CONDITIONAL,
    FULL,
    PLAIN,
    Networks,
    all_values,
    make_gan,
    make_reference,
    plain_discriminator,
    plain_generator,
    step,
)
from tests.unit.gan import small

B_G, B_D = 3, 4


def replica(rank: int, networks: Networks = PLAIN) -> Replica:
    return Replica(make_gan(rank, networks, kappa=1), small.SHAPE)


class ApartStage(Stage):
    """A stage on which workers 1 and 2 train the generator, all others the discriminator."""

    def __init__(self, folder: Path, networks: Networks = PLAIN, **settings: Any) -> None:
        self.networks = networks
        super().__init__(folder, **settings)

    def make_settings(self, values: Mapping[str, Any]) -> RunSettings:
        sizes = {"generator_batch_size": B_G, "discriminator_batch_size": B_D}
        rates = {"generator_lr": 2e-3, "discriminator_lr": 2e-3}
        changes = {"updates": "async", "generator_ranks": "1..2", **sizes, **rates}
        return DataParallelSettings.read({**changes, **values})

    def bring(self) -> ServerPart:
        settings = self.settings
        assert isinstance(settings, DataParallelSettings)
        assert settings.asynchrony.generator_ranks is not None
        self.reference = make_reference(self.networks)
        ranks = settings.asynchrony.generator_ranks
        return ApartServer(self.reference, settings, ranks, small.SHAPE)

    def bring_host(self, workers: Mapping[int, Any], tracer: Tracer) -> HostPart:
        return ApartHost(workers, small.CPU, tracer)


Make = Callable[..., ApartStage]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[ApartStage] = []
    numbers = count()

    def stage(**own: Any) -> ApartStage:
        usual = {"num_workers": 4, "iterations": 3, "return_seconds": 0.0}
        made.append(ApartStage(tmp_path / f"run-{next(numbers)}", **{**usual, **own}))
        return made[-1]

    yield stage
    for one in made:
        one.network.server.close()


def trained(stage: ApartStage, *hosts: Sequence[int]) -> Tensor:
    """Both networks after a run with these hosts."""
    for workers in hosts:
        stage.host({rank: replica(rank, stage.networks) for rank in workers})
    stage.actor.start()
    stage.finished()
    return all_values(stage.reference.models)


class _End:
    """A host's end of a link that keeps the message."""

    def send(self, message: Message) -> int:
        self.message = message
        return 0


class Apart:
    """A played host whose workers are real ones."""

    def __init__(self, host: Played) -> None:
        self.host = host
        self._part = ApartHost({n: replica(n) for n in host.workers}, small.CPU, Tracer())

    def answer(self, broken: str | None = None) -> set[str]:
        """Answers the next question; returns the names of the tensors that came with it."""
        question, end = self.host.take(TRAIN), _End()
        transport: Any = end
        self._part.handlers()[TRAIN](question, transport)
        if broken is not None:
            end.message.tensors[broken].view(-1)[0] = float("nan")
        self.host.send(end.message)
        return set(question.tensors)

    def die(self) -> None:
        """Is gone as soon as it has been asked."""
        self.host.take(TRAIN)
        self.host.die()


class Loop:
    """Section 5.1 with torch alone: one batch for each network, of several workers' samples."""

    def __init__(self, lag: int) -> None:
        self.generator, self.discriminator = plain_generator(), plain_discriminator()
        self._steps = small.adam(self.generator), small.adam(self.discriminator)
        self.noise = {n: generator_for(0, "noise", n) for n in range(9)}
        self.real = {n: small.RealData(n) for n in range(9)}
        self._made: list[Tensor] = []
        self._lag = lag

    def iterate(self, makers: Sequence[int], learners: Sequence[int]) -> None:
        z = [torch.randn(B_G, small.Z_DIM, generator=self.noise[n]) for n in makers]
        images = self.generator(torch.cat(z))
        self._made.append(images.detach())
        old = self._made[max(0, len(self._made) - 1 - self._lag)]
        real = torch.cat([self.real[n].next_batch(B_D).images for n in learners])
        fake = old[torch.arange(len(real)) % len(old)]
        real_loss = F.softplus(-self.discriminator(real)).mean()
        loss = real_loss + F.softplus(self.discriminator(fake)).mean()
        judged = F.softplus(-self.discriminator(images)).mean()
        step(self.generator, self._steps[0], judged)
        step(self.discriminator, self._steps[1], loss)

    def values(self) -> Tensor:
        return all_values([self.generator, self.discriminator])


def looped(lag: int, *iterations: tuple[Sequence[int], Sequence[int]]) -> Tensor:
    """Both networks after iterations with these makers of images and learners."""
    loop = Loop(lag)
    for makers, learners in iterations:
        loop.iterate(makers, learners)
    return loop.values()


def near(ours: Tensor, expected: Tensor) -> bool:
    return torch.allclose(ours, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("lag", [1, 2])
def test_groups_equal_one_big_batch_each(make: Make, lag: int) -> None:
    stage = make(iterations=5, image_buffer=lag)
    expected = looped(lag, *[([1, 2], [3, 4])] * 5)
    assert near(trained(stage, [1], [2], [3], [4]), expected)


def test_any_hosts_give_the_same_bits(make: Make) -> None:
    """Also where a global batch leaves a remainder, and a host adds up three workers' gradients."""
    changes = {"generator_batch_size": None, "discriminator_batch_size": None}
    uneven = {"num_workers": 5, "global_batch_size": 7, "networks": FULL, **changes}
    ours = trained(make(**uneven), [1, 2, 3, 4, 5])
    assert torch.equal(trained(make(**uneven), [1], [2, 3], [4, 5]), ours)


FOUR = (1,), (2,), (3,), (4,)


def test_a_death_costs_its_share_of_one_iteration_and_newcomers_join_their_group(
    make: Make,
) -> None:
    stage = make(iterations=5)
    first, second, third, fourth = hosts = [Apart(host) for host in stage.begin_with(*FOUR)]
    came = [host.answer() for host in hosts]
    assert came[:2] == [{GENERATOR, DISCRIMINATOR, BUFFERS}] * 2
    assert came[2:] == [{DISCRIMINATOR, BUFFERS, "images"}] * 2
    second.die()
    for host in (first, third, fourth):
        host.answer()
    fourth.die()
    first.answer(), third.answer()
    newcomers = [Apart(stage.play(n).ready()) for n in (2, 7)]  # the server reads this first
    first.answer(), third.answer()
    last = [first, third, *newcomers]
    for host in last:
        host.answer()
    stage.finished(*(host.host for host in last))

    loop = Loop(1)
    for makers, learners in (([1, 2], [3, 4]), ([1], [3, 4]), ([1], [3]), ([1], [3])):
        loop.iterate(makers, learners)
    loop.noise[2] = generator_for(0, "noise", 2)
    loop.iterate([1, 2], [3, 7])
    assert near(all_values(stage.reference.models), loop.values())


@pytest.mark.parametrize(("lost", "of"), [((1, 2), "generator"), ((3, 4), "discriminator")])
def test_training_waits_for_a_group_that_is_lost(
    make: Make, lost: tuple[int, int], of: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    stage = make()
    hosts = {host.number: Apart(host) for host in stage.begin_with(*FOUR)}
    for host in hosts.values():
        host.answer()
    for n in lost:
        hosts.pop(n).die()
    for host in hosts.values():
        host.answer()  # is left out: the iteration begins again
    wait_until(lambda: len(stage.events("lost")) == 2, "the server has noticed")
    newcomer = stage.play(lost[0]).lacks_everything()
    newcomer.take("ADOPT", None)
    newcomer.ready()
    last = [Apart(newcomer), *hosts.values()]
    for host in last * 2:
        host.answer()
    stage.finished(*(host.host for host in last))
    said = spelled(caplog.text)
    assert f"all workers that train the {of} (--generator-ranks 1..2) are gone" in said

    loop = Loop(1)
    loop.iterate([1, 2], [3, 4])
    makers, learners = ([1], [3, 4]) if of == "generator" else ([1, 2], [3])
    for n in hosts:  # answers that the server did not use
        loop.real[n].next_batch(B_D)
        torch.randn(B_G, small.Z_DIM, generator=loop.noise[n])
    loop.noise[lost[0]] = generator_for(0, "noise", lost[0])
    loop.real[lost[0]] = small.RealData(lost[0])
    for _ in range(2):
        loop.iterate(makers, learners)
    assert near(all_values(stage.reference.models), loop.values())


@pytest.mark.slow
def test_training_ends_if_none_comes(make: Make) -> None:
    stage = make(patience=0.05)
    hosts = [Apart(host) for host in stage.begin_with(*FOUR)]
    for host in hosts:
        host.answer()
    for host in hosts[:2]:
        host.die()
    for host in hosts[2:]:
        host.answer()
    said = spelled(str(stage.over()))
    assert "generator (--generator-ranks 1..2) are gone at iteration 2" in said


def test_a_deadline_leaves_no_group_behind(make: Make) -> None:
    """Else a group that is slower than the other would be left behind in every iteration."""
    stage = make(num_workers=2, generator_ranks="1..1", deadline=(0.001, 0.0))
    generates, learns = (Apart(host) for host in stage.begin_with((1,), (2,)))
    generates.answer(), learns.answer()
    for _ in range(2):
        learns.answer()
        generates.answer()
    stage.finished(generates.host, learns.host)
    assert torch.equal(all_values(stage.reference.models), looped(1, *[([1], [2])] * 3))


def test_broken_images_are_refused_with_their_gradient(make: Make) -> None:
    stage = make()
    first, *others = hosts = [Apart(host) for host in stage.begin_with(*FOUR)]
    first.answer(broken="images")
    for host in (*others, *hosts, *hosts):
        host.answer()
    stage.finished(*(host.host for host in hosts))
    (refused,) = stage.events("refused")
    assert (refused["worker"], refused["reason"]) == (1, "NaN or Inf among its images")
    loop = Loop(1)
    torch.randn(B_G, small.Z_DIM, generator=loop.noise[1])
    for makers in ([2], [1, 2], [1, 2]):
        loop.iterate(makers, [3, 4])
    assert near(all_values(stage.reference.models), loop.values())


@pytest.mark.slow
def test_classes_travel_with_images(make: Make) -> None:
    ours = trained(make(label_prior="data", networks=CONDITIONAL), *FOUR)
    together = trained(make(label_prior="data", networks=CONDITIONAL), (1, 2, 3, 4))
    assert torch.equal(together, ours)
    evenly = trained(make(networks=CONDITIONAL), *FOUR)
    assert not torch.equal(evenly, ours), "workers hold one class of three"


def test_labels_of_a_stranger_are_classes() -> None:
    beside = {"images": {3: small.images(0, 2)}, LABELS: {3: torch.tensor([-7.0, 1e30])}}
    labels = read_images(beside, 3).labels
    assert labels is not None
    assert labels.tolist() == [0, 2]


@settings(deadline=None, max_examples=examples(12))
@given(st.integers(1, 9), st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_images_are_dealt_out_evenly(num_images: int, sizes: list[int]) -> None:
    images = Samples(torch.arange(float(num_images)))
    dealt = deal(images, dict(enumerate(sizes)))
    assert [len(batch) for batch in dealt.values()] == sizes
    given_out = torch.cat([batch.images for batch in dealt.values()]).long()
    times = torch.bincount(given_out, minlength=num_images)
    assert times.max() - times.min() <= 1
    assert given_out.tolist() == [n % num_images for n in range(sum(sizes))]
