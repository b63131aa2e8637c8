"""The states that a host of MD-GAN hands over and accepts, also in swaps."""

import copy
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mdgan import messages
from mdgan.engine.stages.contract import HostPath
from mdgan.families.mdgan import messages as mdgan_messages
from mdgan.families.mdgan.host_swaps import carry_out
from mdgan.families.mdgan.messages import COPIED, FEEDBACK, SWAPPED
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.labels import Samples
from mdgan.messages import Kind, Message
from mdgan.transport.base import Lost
from tests.claims.registry import claim
from tests.marks import examples
from tests.unit.families.mdgan.played_server import FIRST, PlayedServer, answer, batches
from tests.unit.families.mdgan.stage import copied, make_worker, same_state
from tests.unit.gan import small


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
    tickets = server.network.server.order_exchange(1, [(1, 2), (2, 1)])
    server.send(mdgan_messages.swap(1, 1, {1: 2, 2: 1}, {1: 1, 2: 2}, {}, tickets))
    server.cut()
    server.take(Kind.READY, besides=SWAPPED)
    assert server.stop() is None
    assert same_state(workers[1].state(), reference.state())


@claim(
    "newcomer-copy",
    "A newcomer gets a copy of a worker's weights and buffers, without the state of its optimizer.",
)
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


# Swaps, within a host and between two.


quick = settings(deadline=None, max_examples=examples(4))
HOST_OF = {1: 1, 2: 1, 3: 1, 4: 1, 5: 5, 6: 5}
ADDRESSES: dict[int, str | None] = dict.fromkeys(HOST_OF.values())


def make_workers(*ranks: int) -> dict[int, Worker]:
    workers = {rank: small.make_worker(rank) for rank in ranks}
    for worker in workers.values():
        worker.learn(Samples(small.images(1)))
    return workers


def everybody() -> dict[int, dict[int, Worker]]:
    return {1: make_workers(1, 2, 3, 4), 5: make_workers(5, 6)}


def order_for(
    host: int, moves: Mapping[int, int], host_of: Mapping[int, int] = HOST_OF, *, means: bool
) -> Message:
    share = {g: t for g, t in moves.items() if host in (host_of[g], host_of[t])}
    tickets: Any = defaultdict(str)
    return mdgan_messages.swap(7, host, share, host_of, ADDRESSES, tickets, means=means)


def swap(
    hosts: dict[int, dict[int, Worker]],
    moves: Mapping[int, int],
    host_of: Mapping[int, int] = HOST_OF,
    *,
    means: bool = False,
) -> dict[int, Any]:
    """Both hosts carry a swap out; the other's parcel is what it lays out, or nothing."""
    laid_out: dict[int, Mapping[int, Message]] = {}

    def lay_out_alone(host: int) -> None:
        """What a host would send, found on a copy of it."""

        def exchange(_i: int, outgoing: Mapping[int, Message], *_: object) -> dict[int, Any]:
            laid_out[host] = outgoing
            return {}

        order, workers = order_for(host, moves, host_of, means=means), copy.deepcopy(hosts[host])
        carry_out(order, workers, exchange, HostPath(), {})

    for host in hosts:
        lay_out_alone(host)

    def exchange_of(host: int) -> Any:
        def exchange(
            _i: int, _out: Mapping[int, Message], incoming: Collection[int], *_: object
        ) -> dict[int, Message | Lost]:
            return {
                other: laid_out[other].get(host, Lost(other, "nothing there")) for other in incoming
            }

        return exchange

    return {
        host: carry_out(
            order_for(host, moves, host_of, means=means), workers, exchange_of(host), HostPath(), {}
        )
        for host, workers in hosts.items()
    }


def digests(hosts: dict[int, dict[int, Worker]]) -> dict[int, str]:
    return {n: w.discriminator.digest() for workers in hosts.values() for n, w in workers.items()}


@quick
@given(takers=st.permutations(range(1, 7)))
def test_everybody_holds_what_was_meant_for_it(takers: list[int]) -> None:
    moves = {giver: taker for giver, taker in enumerate(takers, 1) if giver != taker}
    hosts = everybody()
    before = digests(hosts)
    reports = swap(hosts, moves)
    after = digests(hosts)
    for giver, taker in moves.items():
        assert after[taker] == before[giver]
    for rank in set(before) - moves.keys():
        assert after[rank] == before[rank]
    for host, (gave, took, _) in reports.items():
        assert gave == {g: before[g] for g in moves if HOST_OF[g] == host}
        assert took == {t: after[t] for t in moves.values() if HOST_OF[t] == host}
    models = [w.discriminator.model for workers in hosts.values() for w in workers.values()]
    assert len(set(map(id, models))) == len(HOST_OF), "two workers train the same model"


@claim("means", "both of a pair go on with the mean of their discriminators")
def test_both_workers_of_a_pair_hold_the_mean_of_their_discriminators() -> None:
    hosts = everybody()
    workers = {**hosts[1], **hosts[5]}
    before = {n: w.discriminator.state() for n, w in workers.items()}
    before_digests = digests(hosts)
    pairs = {1: 2, 2: 1, 3: 5, 5: 3}  # within a host, and between two
    reports = swap(hosts, pairs, means=True)
    for worker, partner in pairs.items():
        results = workers[worker].discriminator.state()
        assert same_state(results, workers[partner].discriminator.state())
        for name, tensor in results.items():
            own, other = (before[n][name].double().numpy() for n in (worker, partner))
            np.testing.assert_allclose(tensor.numpy(), (own + other) / 2, rtol=1e-6, err_msg=name)
    after = digests(hosts)
    assert {n: after[n] for n in (4, 6)} == {n: before_digests[n] for n in (4, 6)}
    gave, took, _ = reports[1]
    assert gave == {n: before_digests[n] for n in (1, 2, 3)}
    assert took == {taker: before_digests[giver] for giver, taker in pairs.items() if taker < 4}


def test_no_mean_is_taken_with_a_broken_discriminator() -> None:
    hosts = everybody()
    with torch.no_grad():
        hosts[1][1].discriminator.parameters[0][0] = torch.nan
    before = digests(hosts)
    swap(hosts, {1: 2, 2: 1, 3: 5, 5: 3}, means=True)
    assert digests(hosts)[2] == before[2], "it keeps its own"
    assert digests(hosts)[1] == before[2], "and the other has a whole one now"


def test_who_gets_nothing_keeps_its_own() -> None:
    workers = make_workers(1, 2, 3, 4)
    before = {rank: worker.discriminator.digest() for rank, worker in workers.items()}

    def nobody(_i: int, _out: object, incoming: Collection[int], *_: object) -> Mapping[int, Lost]:
        return {host: Lost(host, "gone") for host in incoming}

    gave, took, refused = carry_out(
        order_for(1, {1: 2, 2: 5, 5: 1, 3: 4, 4: 3}, means=False), workers, nobody, HostPath(), {}
    )
    after = {rank: worker.discriminator.digest() for rank, worker in workers.items()}
    assert gave == before
    assert (after[3], after[4]) == (before[4], before[3])
    assert after[1] == before[1]
    assert after[2] == before[1], "1 had a copy for it"
    assert took == {2: before[1], 3: before[4], 4: before[3]}
    assert refused == []


@pytest.mark.parametrize("kind", ["parameter", "moment"])
def test_a_broken_discriminator_is_taken_nowhere(kind: str) -> None:
    hosts = everybody()
    broken = hosts[1][1].discriminator
    parameter = broken.parameters[0]
    moments = broken.optimizer.state[parameter]
    with torch.no_grad():
        (parameter if kind == "parameter" else moments["exp_avg"])[0] = torch.nan
    before = digests(hosts)
    swap(hosts, {1: 2, 2: 1, 3: 5, 5: 3, 4: 6, 6: 4})
    after = digests(hosts)
    assert after[2] == before[2], "it keeps its own"
    assert after[1] == before[2], "and the other has a whole one now"
    assert (after[3], after[5]) == (before[5], before[3])
    elsewhere = everybody()
    with torch.no_grad():
        elsewhere[5][5].discriminator.parameters[0][0] = torch.nan
    before = digests(elsewhere)
    swap(elsewhere, {5: 1, 1: 5})
    assert digests(elsewhere)[1] == before[1]
    assert digests(elsewhere)[5] == before[1]


@pytest.mark.parametrize("learnt_early", [True, False])
def test_a_real_half_learnt_early_does_not_change_what_follows(learnt_early: bool) -> None:
    workers = make_workers(1, 2)
    if learnt_early:
        states = {n: w.discriminator.state() for n, w in workers.items()}
        for n, worker in workers.items():
            worker.learn_real_half()
            worker.discriminator.model.load_state_dict(  # a swap never follows a real half
                {k.removeprefix("model."): v for k, v in states[n].items() if k[:6] == "model."}
            )
    workers[1].take(workers[2].discriminator.moving())
    assert all(p.grad is None for p in workers[1].discriminator.parameters)
    reference = make_workers(1, 2)
    reference[1].take(reference[2].discriminator.state())
    for n in (0, 1):
        found, wanted = (w[1].learn(Samples(small.images(n))) for w in (workers, reference))
        assert torch.equal(found, wanted)
