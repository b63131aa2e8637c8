"""A host of MD-GAN that masks its answers hands over and accepts sealed copies, not states."""

from pathlib import Path

import pytest
import torch

from mdgan import messages
from mdgan.engine.host.loop import HostFailed
from mdgan.engine.host_keys import SEALED, HostKeys, run_digest
from mdgan.engine.stages.mask_host import HostMask
from mdgan.errors import Interrupted
from mdgan.messages import Kind, Message
from tests.claims.registry import claim
from tests.unit.engine.test_secure_sums import Masking
from tests.unit.families.mdgan.played import FORM, IDENTITY
from tests.unit.families.mdgan.played_server import PlayedServer
from tests.unit.families.mdgan.stage import Stage, copied, make_worker, same_state


@claim("traps", "cannot read discriminators")
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
    assert "it wants states of workers, and no checkpoint_to_server is set here" in str(error)


# With masked answers a newcomer's copy goes through the server, which cannot read it.


def other_host(server: PlayedServer, told: object) -> HostKeys:
    """Host 2, played by the test; it knows the key of the real host, and that one its own."""
    keys = HostKeys([2])
    own = keys.make_key(run_digest(server.welcome, IDENTITY))
    keys.learn([told])
    server.send(Message(Kind.KEYS, 0, {"keys": [own]}))
    return keys


def test_a_host_seals_the_copy_that_it_gives(server: PlayedServer) -> None:
    worker = make_worker(1, model_seed=8)
    server.starts({1: worker}, masks=HostMask(HostKeys([1]), FORM))
    server.send(messages.copy(3, 1, 2))  # without the newcomer's key: nothing is given
    keys = other_host(server, server.take(Kind.READY).fields["key"])
    server.send(messages.copy(4, 1, 2))
    given = server.take(Kind.STATE)
    assert given.fields == {"purpose": "copy", "taker": 2}
    assert given.iteration == 4
    assert given.tensors.keys() == {SEALED}
    opened = keys.unseal_message(1, Kind.STATE, 4, given.tensors[SEALED])
    assert same_state(messages.by_worker(opened)[1], copied(8))
    assert server.stop() is None


@claim(
    "sealed",
    "Discriminators of swaps, and copies for newcomers, are encrypted between the two hosts",
)
def test_a_newcomer_takes_a_sealed_copy_and_no_altered_one(server: PlayedServer) -> None:
    server.welcome["iteration"] = 7
    worker = make_worker(1)
    server.starts({1: worker}, masks=HostMask(HostKeys([1]), FORM))
    ready = server.take(Kind.READY)
    assert ready.fields["holds"] == []
    keys = other_host(server, ready.fields["key"])
    state = {**copied(8), "random": torch.zeros(3)}  # more than a newcomer takes
    sealed = keys.seal_message(1, messages.state(7, {2: state}, "copy", 1))
    altered = sealed.clone()
    altered[100] ^= 1
    for tensor, holds in ((altered, []), (sealed, [1])):
        given = Message(Kind.STATE, 7, {}, {SEALED: tensor})
        server.send(messages.adopt_sealed(8, given, 2, [1], "discriminator.model."))
        assert server.take(Kind.READY).fields["holds"] == holds
    assert server.stop() is None
    assert same_state({n: t for n, t in worker.state().items() if n in copied(8)}, copied(8))


@pytest.mark.parametrize("lacks", [False, True])
def test_a_host_that_masks_takes_no_state_of_the_servers(server: PlayedServer, lacks: bool) -> None:
    server.welcome["iteration"] = 7 if lacks else 0
    worker = make_worker(1)
    server.starts({1: worker}, masks=HostMask(HostKeys([1]), FORM))
    assert server.take(Kind.READY).fields["holds"] == ([] if lacks else [1])
    server.send(messages.adopt(7, {1: copied(9)}))
    error = server.actor.over()
    assert isinstance(error, HostFailed)
    why = "that no host has sealed" if lacks else "to workers that lack none"
    assert f"it gives states {why}" in str(error)


def test_the_server_passes_on_what_it_cannot_read(tmp_path: Path) -> None:
    stage = Stage(tmp_path, num_workers=4, iterations=1, kappa=1, secure_aggregation=True)
    hosts = {n: Masking(stage.network, n) for n in range(1, 5)}
    stage.actor.start()
    try:
        for host in hosts.values():
            host.arrive(stage)
        for host in hosts.values():
            host.take("BATCHES")
        newcomer = Masking(stage.network, 5)
        newcomer.arrive(stage, lacks=True)
        giver = hosts[2]  # the 5th of four hosts, counted from 0
        order = giver.take(Kind.COPY)
        answer = messages.state(order.iteration, {2: copied(8)}, "copy", 5)
        sealed = giver.masks.keys.seal_message(5, answer)
        giver.send(Message(Kind.STATE, order.iteration, answer.fields, {SEALED: sealed}))
        adopt = newcomer.take(Kind.ADOPT)
        assert (adopt.fields["giver"], adopt.fields["workers"]) == (2, [5])
        found = newcomer.masks.keys.unseal_message(
            2, Kind.STATE, adopt.fields["given"], adopt.tensors[SEALED]
        )
        assert same_state(messages.by_worker(found)[2], copied(8))
    finally:
        stage.close()
