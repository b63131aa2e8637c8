from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from mdgan import messages
from mdgan.engine.server.engine import Engine
from mdgan.engine.stages.handovers import Handovers
from mdgan.families.mdgan import messages as mdgan_messages
from mdgan.families.mdgan.messages import BATCHES, DISCRIMINATORS, FEEDBACK, SWAP, SWAPPED
from mdgan.families.mdgan.swaps import ServerSwaps, draw_swap
from mdgan.families.mdgan.worker import Worker
from mdgan.gan.model_state import digest_of, part_of
from mdgan.messages import Kind, Message, of_workers
from mdgan.transport.base import Tickets
from mdgan.transport.memory import MemoryHostTransport
from tests.unit.families.mdgan.played import Played, answer_of
from tests.unit.families.mdgan.played_server import PlayedServer, answer, batches
from tests.unit.families.mdgan.stage import Stage, discriminator, make_worker, same_state

MakeStage = Callable[..., Stage]


def own(worker: Worker) -> dict[str, Tensor]:
    """A discriminator, as before a real half that is learnt already."""
    return part_of(worker.state(), "discriminator.")


def near(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Another discriminator that has learnt much the same."""
    return {name: 1.01 * t if t.is_floating_point() else t for name, t in state.items()}


def partner(server: PlayedServer, number: int) -> MemoryHostTransport:
    """The end of another host, which must be there when the real one looks for it."""
    return server.network.join(number, {"host": number})


def trained(server: PlayedServer, *ranks: int) -> tuple[dict[int, Worker], dict[int, Any]]:
    """Workers that have answered and wait for a swap, and what their discriminators are now."""
    workers = {n: make_worker(n, model_seed=n) for n in ranks}
    server.starts(workers)
    server.take(Kind.READY)
    server.send(batches(4, workers, swap=True))
    server.take(FEEDBACK)
    references = {n: make_worker(n, model_seed=n) for n in ranks}
    for reference in references.values():
        answer(reference, 4)
    return workers, {n: own(reference) for n, reference in references.items()}


# A host's part.


def order(server: PlayedServer, moves: Mapping[int, int], host_of: Mapping[int, int]) -> Tickets:
    """Has host 1 swap with another host; returns what the other one is told."""
    (other,) = set(host_of.values()) - {1}
    tickets = server.network.server.order_exchange(4, [(1, other), (other, 1)])
    server.send(mdgan_messages.swap(4, 1, moves, host_of, {}, tickets))
    return Tickets({1: tickets[other, 1]}, {1: tickets[1, other]})


def parcel(states: Mapping[int, Mapping[str, Tensor]]) -> Message:
    return Message(DISCRIMINATORS, 4, tensors=of_workers(states))


def test_two_hosts_exchange_their_discriminators(server: PlayedServer) -> None:
    workers, before = trained(server, 1)
    theirs = near(before[1])
    other = partner(server, 2)
    tickets = order(server, {1: 2, 2: 1}, {1: 1, 2: 2})
    fetched = other.exchange(4, {1: parcel({1: theirs})}, [1], {}, tickets)
    report = server.take(SWAPPED)
    assert isinstance(fetched[1], Message)
    assert same_state(messages.by_worker(fetched[1])[2], before[1])
    assert server.stop() is None
    assert same_state(own(workers[1]), theirs)
    assert report.fields["given"] == {"1": digest_of(before[1])}
    assert report.fields["taken"] == {"1": digest_of(theirs)}


WRONG_PARCELS: list[dict[str, Tensor]] = [
    {},
    {"1/model.1.weight": torch.zeros(2)},
    {f"1/{name}": t for name, t in discriminator(7).items() if name != "model.5.bias"},
    {f"1/{name}": t.double() for name, t in discriminator(7).items()},
    {f"2/{name}": t for name, t in discriminator(7).items()},
    {f"one/{name}": t for name, t in discriminator(7).items()},
    discriminator(7),
    {"": torch.zeros(1), "/": torch.zeros(1), "1": torch.zeros(1)},
]


@pytest.mark.parametrize("tensors", WRONG_PARCELS, ids=range(len(WRONG_PARCELS)))
def test_who_gets_something_else_keeps_its_own(
    server: PlayedServer, tensors: dict[str, Tensor]
) -> None:
    workers, before = trained(server, 1)
    other = partner(server, 2)
    tickets = order(server, {1: 2, 2: 1}, {1: 1, 2: 2})
    other.exchange(4, {1: Message(DISCRIMINATORS, 4, {}, tensors)}, [1], {}, tickets)
    assert server.take(SWAPPED).fields["taken"] == {}
    assert server.stop() is None
    assert same_state(own(workers[1]), before[1])


def test_nobody_gets_what_was_meant_for_another(server: PlayedServer) -> None:
    """Host 5 gives to worker 3, and tries to replace worker 1's discriminator on the way."""
    workers, before = trained(server, 1, 3)
    theirs = near(before[3])
    other = partner(server, 5)
    tickets = order(server, {3: 5, 5: 3}, {1: 1, 3: 1, 5: 5})
    other.exchange(4, {1: parcel({3: theirs, 1: theirs})}, [1], {}, tickets)
    assert server.take(SWAPPED).fields["taken"].keys() == {"3"}
    assert server.stop() is None
    assert same_state(own(workers[1]), before[1])
    assert same_state(own(workers[3]), theirs)


# The server's part.


def begun(made: Stage, *groups: tuple[int, ...]) -> tuple[ServerSwaps, Engine, list[Played]]:
    """Hosts that take part, and no server that trains them."""
    hosts = [made.play(*group) for group in groups]
    for host in hosts:
        made.peers.joined(host.number, host.hello)
        made.peers.arrived(host.number)
    made.peers.begin()
    return ServerSwaps("pairs", seed=0, handovers=Handovers()), made.engine, hosts


def ordered(made: Stage, holders: set[int] | None = None, i: int = 4) -> tuple[ServerSwaps, Engine]:
    """A swap of two hosts that is ordered."""
    swaps, engine, _ = begun(made, (1,), (2,))
    swaps.order(i, engine, holders)
    return swaps, engine


def lose(host: int, swaps: ServerSwaps, engine: Engine) -> None:
    engine.peers.lose(host, "its link is gone")
    swaps.on_lost(engine)


def report(given: Mapping[int, str], taken: Mapping[int, str]) -> Message:
    return mdgan_messages.swapped(4, given, taken)


def test_each_host_is_told_of_its_own_moves(stage: MakeStage) -> None:
    made = stage(num_workers=5, swap_interval=1)
    swaps, engine, hosts = begun(made, (1, 2), (3,), (4, 5))
    swaps.order(4, engine)
    moves = draw_swap("pairs", 0, 0, [1, 2, 3, 4, 5])
    assert swaps.num_swaps == 1
    for host in hosts:
        order = host.take(SWAP, 4)
        told = {giver: taker for giver, _, taker, _ in order.fields["moves"]}
        carried = set(host.workers)
        assert told == {g: t for g, t in moves.items() if g in carried or t in carried}


def test_who_is_busy_or_arriving_does_not_swap(stage: MakeStage) -> None:
    made = stage(num_workers=4, swap_interval=1)
    swaps, engine, (one, two, busy) = begun(made, (1,), (2,), (3,))
    arriving = made.play(4)
    made.peers.joined(4, arriving.hello)
    made.peers.owe({3: [3]}, 4)
    swaps.order(4, engine)
    assert {row[0] for row in one.take(SWAP).fields["moves"]} == {1, 2}
    assert {row[0] for row in two.take(SWAP).fields["moves"]} == {1, 2}
    assert busy.link.receive(0.0) is None
    assert arriving.link.receive(0.0) is None


def test_whose_answer_could_not_be_used_takes_but_does_not_give(stage: MakeStage) -> None:
    made = stage(num_workers=2, swap_interval=1)
    swaps, engine, (one, two) = begun(made, (1,), (2,))
    engine.peers.strikes.refuse(2)
    assert swaps.order(4, engine) == {1: 2}
    for host in (one, two):
        assert [row[::2] for row in host.take(SWAP).fields["moves"]] == [[1, 2]]
    engine.peers.strikes.accept(2)
    assert swaps.order(5, engine) == {1: 2, 2: 1}
    swaps.handovers.spoilers[2] = 4
    assert swaps.order(6, engine) == {1: 2}


def test_takers_are_excused_until_they_answer_well(stage: MakeStage) -> None:
    made = stage(num_workers=2, swap_interval=1)
    _, engine = ordered(made)
    for _ in range(5):
        engine.peers.strikes.refuse(1)
    engine.peers.strikes.accept(2)
    engine.peers.strikes.refuse(2)
    assert [engine.peers.strikes.strikes_of(worker) for worker in (1, 2)] == [0, 1]


def test_a_whole_swap_is_recorded_once(stage: MakeStage) -> None:
    made = stage(num_workers=3, swap_interval=1)
    swaps, engine, _ = begun(made, (1,), (2,), (3,))
    swaps.order(4, engine)
    moves = draw_swap("pairs", 0, 0, [1, 2, 3])
    (alone,) = {1, 2, 3} - moves.keys()
    for giver, taker in moves.items():
        assert not made.events("swap")
        swaps.note(engine, giver, report({giver: f"d{giver}"}, {giver: f"d{taker}"}))
    swaps.note(engine, alone, report({alone: "late"}, {}))
    (event,) = made.events("swap")
    assert event["exact"] is True
    assert event["sits_out"] == [alone]
    assert event["moves"] == [list(move) for move in sorted(moves.items())]
    assert event["lost"] == []


@pytest.mark.parametrize(
    ("ordered_at", "given", "taken", "exact"),
    [
        (4, {2: "b"}, {2: "A"}, [False]),
        (4, {1: "x", 2: "b", 99: "x"}, {1: "x", 2: "a", 99: "x"}, [True]),
        (3, {2: "b"}, {2: "a"}, []),
    ],
    ids=["a bit that did not arrive", "a host that reports of others", "another swap"],
)
def test_what_the_second_of_two_hosts_reports(
    stage: MakeStage,
    ordered_at: int,
    given: Mapping[int, str],
    taken: Mapping[int, str],
    exact: list[bool],
) -> None:
    made = stage(swap_interval=1)
    swaps, engine = ordered(made, i=ordered_at)
    swaps.note(engine, 1, report({1: "a"}, {1: "b"}))
    swaps.note(engine, 2, report(given, taken))
    events = made.events("swap")
    assert [event["exact"] for event in events] == exact
    assert all(event["given"] == {"1": "a", "2": "b"} for event in events)
    assert all(event["taken"] == {"1": "b", "2": taken[2]} for event in events)


@pytest.mark.parametrize("holders", [None, {1}])
@pytest.mark.parametrize("when", ["before", "after"])
def test_nobody_waits_for_the_report_of_the_lost(
    stage: MakeStage, when: str, holders: set[int] | None
) -> None:
    made = stage(swap_interval=1)
    swaps, engine = ordered(made, holders)
    if when == "before":
        lose(2, swaps, engine)
        swaps.note(engine, 1, report({1: "a"}, {}))
    else:
        swaps.note(engine, 1, report({1: "a"}, {}))
        lose(2, swaps, engine)
    (event,) = made.events("swap")
    assert (event["lost"], event["exact"]) == ([2], False)


def test_a_swap_is_whole_once_the_takers_have_reported_too(stage: MakeStage) -> None:
    """A worker without a discriminator hands over none."""
    made = stage(swap_interval=1)
    swaps, engine, _ = begun(made, (1,), (2,))
    assert swaps.order(4, engine, {1}) == {1: 2}
    swaps.note(engine, 1, report({1: "a"}, {}))
    assert not made.events("swap")
    swaps.note(engine, 2, report({}, {2: "a"}))
    (event,) = made.events("swap")
    assert (event["moves"], event["sits_out"], event["exact"]) == ([[1, 2]], [2], True)


def test_a_report_may_come_after_the_next_swap_began(stage: MakeStage) -> None:
    made = stage(swap_interval=1)
    swaps, engine = ordered(made, {1})
    swaps.note(engine, 2, report({}, {2: "a"}))
    swaps.order(5, engine, {2})
    for host, given, taken in ((1, {}, {1: "b"}), (2, {2: "b"}, {})):
        swaps.note(engine, host, mdgan_messages.swapped(5, given, taken))
    swaps.note(engine, 1, report({1: "a"}, {}))
    assert [event["iteration"] for event in made.events("swap")] == [5, 4]
    assert all(event["exact"] for event in made.events("swap"))


def test_swaps_come_in_their_rhythm_and_not_after_the_last_iteration(stage: MakeStage) -> None:
    made = stage(iterations=6, swap_interval=2)
    one, two = made.begin_with((1,), (2,))
    for i in range(1, 7):
        for host in (one, two):
            told = host.take(BATCHES, i).fields
            assert (told["swap_follows"], told["last"]) == (i in (2, 4), i == 6)
            host.send(answer_of(host.number, i))
    made.finished(one, two)
    assert [m.iteration for m in one.seen if m.kind == SWAP] == [2, 4]
