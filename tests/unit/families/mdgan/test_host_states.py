"""A real host of MD-GAN, whose server is played by the test: what it gives away, and takes."""

import pytest
import torch
from torch import Tensor

from mdgan import messages
from mdgan.engine.host.loop import HostFailed
from mdgan.engine.host_keys import HostKeys
from mdgan.engine.stages.mask_host import HostMask
from mdgan.errors import Interrupted
from mdgan.families.mdgan import messages as mdgan_messages
from mdgan.families.mdgan.messages import COPIED, FEEDBACK, SWAPPED
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.labels import Samples
from mdgan.messages import Kind
from tests.unit.families.mdgan.played import FORM
from tests.unit.families.mdgan.played_server import FIRST, PlayedServer, answer, batches
from tests.unit.families.mdgan.stage import copied, make_worker, same_state


def discriminator_of(worker: Worker) -> dict[str, Tensor]:
    return {name: t for name, t in worker.state().items() if name.startswith(COPIED)}


WRONG_STATES: list[dict[str, Tensor]] = [
    {"discriminator.model.1.weight": torch.zeros(2)},
    {name: t for name, t in copied().items() if name != "discriminator.model.1.bias"},
    {**copied(), "discriminator.model.1.bias": torch.zeros(3)},
    {**copied(), "discriminator.model.1.bias": copied()["discriminator.model.1.bias"].double()},
    {**copied(), "discriminator.model.something": torch.zeros(3)},
    {**make_worker(1).state(), "random.cpu": torch.zeros(3)},
]


@pytest.mark.parametrize("wrong", WRONG_STATES, ids=range(len(WRONG_STATES)))
def test_what_does_not_fit_is_not_taken_over(
    server: PlayedServer, wrong: dict[str, Tensor]
) -> None:
    server.welcome["iteration"] = 7
    workers = {3: make_worker(3), 4: make_worker(4)}
    server.starts(workers)
    server.take(Kind.READY)
    server.send(messages.adopt(8, {3: wrong, 4: copied(5)}))
    assert server.take(Kind.READY).fields["holds"] == [4]
    server.send(messages.adopt(8, {3: copied(6)}))
    assert server.take(Kind.READY).fields["holds"] == [3, 4]
    assert server.stop() is None
    assert same_state(discriminator_of(workers[3]), copied(6))


def test_cut_off_in_a_swap_it_has_a_whole_copied(server: PlayedServer) -> None:
    workers = {1: make_worker(1)}
    server.starts(workers)
    server.take(Kind.READY)
    server.send(batches(1, workers, swap=True))
    server.take(FEEDBACK)
    reference = make_worker(1)
    answer(reference, 1)
    server.send(mdgan_messages.swap(1, {1: 2, 2: 1}, {1: 1, 2: 2}, {}))
    server.cut()
    server.take(Kind.READY, besides=SWAPPED)
    assert server.stop() is None
    assert same_state(workers[1].state(), reference.state())


def test_a_copy_tells_nothing_of_what_its_worker_has_just_learnt(server: PlayedServer) -> None:
    worker = make_worker(3)
    server.starts({3: worker})
    server.take(Kind.READY)
    server.send(batches(4, {3: worker}))
    server.take(FEEDBACK)
    server.send(messages.copy(4, 3, 4))
    handed = messages.by_worker(server.take(Kind.STATE))[3]
    assert server.stop() is None
    assert any("exp_avg" in name for name in worker.state())
    assert same_state(handed, discriminator_of(worker))


def test_with_a_copy_the_optimizer_begins_anew(server: PlayedServer) -> None:
    server.welcome["iteration"] = 7
    worker = make_worker(3)
    worker.learn(Samples(FIRST))
    server.starts({3: worker})
    server.take(Kind.READY)
    server.send(messages.adopt(8, {3: copied(5)}))
    assert server.take(Kind.READY).fields["holds"] == [3]
    assert server.stop() is None
    assert not any("optimizer" in name for name in worker.state())


def test_a_host_that_masks_its_answers_gives_no_states_away(server: PlayedServer) -> None:
    server.welcome["wants_states"] = True
    server.starts({1: make_worker(1)}, masks=HostMask(HostKeys([1]), FORM))
    server.take(Kind.READY)
    server.host.interrupt()
    server.take(Kind.LEAVE)
    assert isinstance(server.actor.over(), Interrupted)
    server.starts({1: make_worker(1)}, masks=HostMask(HostKeys([1]), FORM))
    server.take(Kind.READY)
    server.send(messages.checkpoint(1, [], to_server=True))
    error = server.actor.over()
    assert isinstance(error, HostFailed)
    assert "wants states of workers, which tell what each has answered" in str(error)
