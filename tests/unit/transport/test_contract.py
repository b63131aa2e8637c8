"""What roles rely on: over gRPC, with TLS, with parcels through the server, within one process."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from mdgan.errors import BadInput
from mdgan.messages import Message
from mdgan.transport.base import SERVER, Asked, Joined, Lost, Received, Tickets, Visited
from mdgan.transport.frames import encode
from mdgan.transport.host_end import HostTransport
from mdgan.transport.server_end import ServerTransport
from tests.claims.registry import claim
from tests.unit.transport.networks import (
    LONG,
    QUICK,
    SOON,
    GrpcNetwork,
    MemoryPlace,
    Network,
    Pair,
    RelayedNetwork,
    admit_all,
    expect,
    giver_and_taker,
    host_of,
    in_threads,
    joined,
    listening,
    message_of,
    note,
    ordered,
    value_of,
    word,
)

HASTY = replace(QUICK, farewell=0.2, link=4.0, swap=5.0)
PATIENT = replace(QUICK, link=1e4, swap=2e4, answer=3e4)
"""What waits for so long does not wait for its time to be up."""
NETWORKS = [GrpcNetwork, RelayedNetwork, MemoryPlace]
PLACES = pytest.mark.parametrize("place", NETWORKS)


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    opened: Network = request.param()
    yield opened
    opened.close()


def test_a_host_that_joins_is_told_and_its_hello_is_passed_on(network: Network) -> None:
    host = network.join(3, {"workers": [3, 4]})
    event = expect(network.server, Joined)
    assert event.host == 3
    assert event.hello["workers"] == [3, 4]
    assert host.welcome["generation"] == 1
    assert abs(host.clock_offset_seconds) < 1
    assert network.server.receive(SOON) is None


@PLACES
def test_a_refused_host_is_told_why(place: type[Network]) -> None:
    def admit(hello: Mapping[str, Any]) -> Mapping[str, Any] | str:
        return "rank 1 has joined already" if hello["host"] == 1 else {}

    network = place(admit=admit)
    with pytest.raises(BadInput, match="the server refused this host: rank 1 has joined already"):
        network.join(1, {})
    assert network.server.receive(LONG) == Visited("rank 1 has joined already", True)
    joined(network, 2)
    network.close()


def test_messages_go_both_ways_in_order(network: Network) -> None:
    hosts = joined(network, 1, 2)
    for iteration in range(5):
        network.server.send(2, note(iteration, iteration + 0.5))
        hosts[1].send(word(iteration, iteration + 0.25))
    for iteration in range(5):
        event = expect(hosts[2], Received)
        assert (event.sender, event.message.iteration) == (SERVER, iteration)
        assert value_of(event.message) == iteration + 0.5
        back = expect(network.server, Received)
        assert (back.sender, value_of(back.message)) == (1, iteration + 0.25)
    assert hosts[1].receive(SOON) is None


def test_both_ends_count_the_same(network: Network) -> None:
    hosts = joined(network, 1)
    sent = note(1, 2.0)
    size = len(encode(sent).body)
    assert network.server.send(1, sent) == size
    assert hosts[1].send(Message("FEEDBACK", 1)) > 0
    hosts[1].receive(LONG)
    network.server.receive(LONG)
    assert network.server.traffic.sent == hosts[1].traffic.received == {"DISCRIMINATORS": size}
    assert network.server.traffic.received == hosts[1].traffic.sent
    assert list(hosts[1].traffic.sent) == ["FEEDBACK"]


def test_what_arrives_at_two_hosts_or_at_the_server_is_a_copy(network: Network) -> None:
    hosts = joined(network, 1, 2)
    sent, back = note(1, 5.0, moves=[[1, 2]]), word(2, 6.0)
    for host in hosts:
        network.server.send(host, sent)
    hosts[1].send(back)
    sent.fields["moves"][0].append(3)
    sent.tensors["w"].zero_()
    back.tensors["w"].zero_()
    first, second = (message_of(host.receive(LONG)) for host in hosts.values())
    first.tensors["w"].zero_()
    assert value_of(second) == 5.0
    assert first.fields == second.fields == {"moves": [[1, 2]]}
    assert value_of(message_of(network.server.receive(LONG))) == 6.0


def test_an_interrupt_ends_the_wait_at_both_ends(network: Network) -> None:
    hosts = joined(network, 1)
    results: list[object] = []
    in_threads(
        lambda: results.append(hosts[1].receive(LONG)),
        lambda: results.append(network.server.receive(LONG)),
        hosts[1].interrupt,
        network.server.interrupt,
    )
    assert results == [Asked(), Asked()]


def test_the_end_of_the_server_is_told_to_every_host(network: Network) -> None:
    hosts = joined(network, 1, 2)
    network.server.close()
    for host in hosts.values():
        event = expect(host, Lost)
        assert event.peer == SERVER
        assert host.send(word(1)) == 0


def test_the_end_of_a_host_is_told_to_the_server_after_all_it_sent(network: Network) -> None:
    hosts = joined(network, 2, 3)
    hosts[2].send(word(1, 1.0, size=200_000))
    hosts[2].close()
    assert value_of(message_of(network.server.receive(LONG))) == 1.0
    assert network.server.receive(LONG) == Lost(2, "it said goodbye")
    assert network.server.send(2, note(1)) == 0
    hosts[3].send(word(2))
    assert message_of(network.server.receive(LONG)).iteration == 2


def test_a_dropped_host_is_gone_without_a_word_and_may_come_back(network: Network) -> None:
    hosts = joined(network, 1)
    network.server.drop(1)
    network.server.drop(1)
    assert network.server.send(1, note(1)) == 0
    expect(hosts[1], Lost)
    hosts[1].send(word(1))
    hosts[1].close()
    assert network.server.receive(SOON) is None
    again = joined(network, 1)[1]
    again.send(word(3))
    assert message_of(network.server.receive(LONG)).iteration == 3


def test_messages_of_a_host_that_was_dropped_since_do_not_count(network: Network) -> None:
    hosts = joined(network, 1, 2)
    hosts[1].send(word(1))
    hosts[2].send(word(2))
    event = expect(network.server, Received)
    other = 3 - event.sender
    network.server.drop(other)
    assert network.server.receive(SOON) is None


def test_a_host_that_comes_again_takes_the_place_of_its_earlier_link(network: Network) -> None:
    earlier = joined(network, 1)[1]
    later = joined(network, 1)[1]  # the next event is Joined: no Lost comes before it
    expect(earlier, Lost)
    earlier.send(word(1))
    earlier.close()
    network.server.send(1, note(7))
    assert message_of(later.receive(LONG)).iteration == 7
    later.send(word(8))
    assert message_of(network.server.receive(LONG)).iteration == 8
    assert network.server.receive(SOON) is None


def test_hosts_exchange_with_each_other_again_and_again(network: Network) -> None:
    hosts = {number: network.join(number, {}) for number in (1, 2, 3)}
    addresses = listening(network, hosts)
    results: dict[tuple[int, int, int], float] = {}
    pairs = [(giver, taker) for giver in hosts for taker in hosts if giver != taker]
    tickets = {iteration: ordered(network, iteration, *pairs) for iteration in (10, 11)}

    def work(number: int, host: HostTransport) -> None:
        others = {1, 2, 3} - {number}
        for iteration in (10, 11):
            outgoing = {
                other: note(iteration, 1e4 * iteration + 100 * number + other) for other in others
            }
            own = tickets[iteration][number]
            arrived = host.exchange(iteration, outgoing, others, addresses, own)
            for sender, message in arrived.items():
                results[iteration, sender, number] = value_of(message)

    in_threads(*(lambda n=n, host=host: work(n, host) for n, host in hosts.items()))
    assert results == {
        (iteration, sender, receiver): 1e4 * iteration + 100 * sender + receiver
        for iteration in (10, 11)
        for sender in (1, 2, 3)
        for receiver in (1, 2, 3)
        if sender != receiver
    }
    size = len(encode(note(10, 1.0)).body)
    for host in hosts.values():
        assert host.traffic.sent == host.traffic.received == {"DISCRIMINATORS": 4 * size}
        assert host.slow_givers == set()


@pytest.fixture
def pair(network: Network) -> Pair:
    return giver_and_taker(network)


def test_a_giver_that_is_late_is_waited_for(network: Network, pair: Pair) -> None:
    giver, taker, addresses = pair
    tickets = ordered(network, 4, (1, 2))
    results: list[object] = []

    def lay_out() -> None:
        time.sleep(0.3)  # it is busy with its iteration
        giver.exchange(4, {2: note(4, 4.0)}, [], addresses, tickets[1])

    in_threads(
        lay_out, lambda: results.append(taker.exchange(4, {}, [1], addresses, tickets[2])[1])
    )
    assert value_of(results[0]) == 4.0


@PLACES
@pytest.mark.parametrize("after", [0.0, 0.2])
def test_a_giver_that_ends_is_noticed_at_once(place: type[Network], after: float) -> None:
    network = place(PATIENT)
    giver, taker, addresses = giver_and_taker(network)
    tickets = ordered(network, 4, (1, 2))
    results: list[object] = []

    def end() -> None:
        time.sleep(after)  # the taker is waiting, or will be: both must end at once
        giver.close()

    in_threads(end, lambda: results.append(taker.exchange(4, {}, [1], addresses, tickets[2])[1]))
    assert isinstance(results[0], Lost)
    assert results[0].peer == 1
    network.close()


def test_a_giver_that_has_nothing_for_this_taker(network: Network, pair: Pair) -> None:
    giver, taker, addresses = pair
    tickets = ordered(network, 4, (1, 2), (1, 7))
    giver.exchange(4, {7: note(4)}, [], addresses, tickets[1])
    lost = taker.exchange(4, {}, [1], addresses, tickets[2])[1]
    assert lost == Lost(1, "it has nothing for this host")


@claim(
    "revoked", "without it a revoked machine can still fetch discriminators of the last two swaps"
)
def test_parcels_stay_for_one_more_exchange(network: Network, pair: Pair) -> None:
    giver, taker, addresses = pair
    takes = {}
    for iteration in (4, 8, 12):
        tickets = ordered(network, iteration, (1, 2))
        takes[iteration] = tickets[2]
        parcel = note(iteration, float(iteration))
        giver.exchange(iteration, {2: parcel}, [], addresses, tickets[1])
        parcel.tensors["w"].zero_()  # what was laid out is a copy
    assert value_of(taker.exchange(12, {}, [1], addresses, takes[12])[1]) == 12.0
    assert value_of(taker.exchange(8, {}, [1], addresses, takes[8])[1]) == 8.0
    assert isinstance(taker.exchange(4, {}, [1], addresses, takes[4])[1], Lost)


def test_a_giver_that_leaves_at_once_has_its_parcels_fetched_first(
    network: Network, pair: Pair
) -> None:
    giver, taker, addresses = pair
    tickets = ordered(network, 4, (1, 2))
    results: list[object] = []
    giver.exchange(4, {2: note(4, 4.0, size=300_000)}, [], addresses, tickets[1])
    in_threads(
        giver.close, lambda: results.append(taker.exchange(4, {}, [1], addresses, tickets[2])[1])
    )
    assert value_of(results[0]) == 4.0


@pytest.mark.parametrize(
    "place", [GrpcNetwork, pytest.param(RelayedNetwork, marks=pytest.mark.slow), MemoryPlace]
)
def test_a_giver_that_never_lays_out_is_lost_in_time_and_the_others_are_not(
    place: type[Network],
) -> None:
    network = place(HASTY, admit_all)
    hosts = {number: network.join(number, {}) for number in (1, 2, 3)}
    addresses = listening(network, hosts)
    tickets = ordered(network, 4, (2, 1), (3, 1))
    hosts[2].exchange(4, {1: note(4, 2.0)}, [], addresses, tickets[2])
    arrived = hosts[1].exchange(4, {}, [3, 2], addresses, tickets[1])
    assert value_of(arrived[2]) == 2.0
    assert isinstance(arrived[3], Lost)
    assert 3 in hosts[1].slow_givers
    network.close()


def test_a_giver_without_an_address_is_lost(pair: Pair) -> None:
    _, taker, addresses = pair
    takes = Tickets({}, {9: "a secret"})
    lost = taker.exchange(4, {}, [9], {**addresses, 9: None}, takes)[9]
    assert lost == Lost(9, "its address is unknown")


def test_a_server_that_ends_sends_no_host_away_for_good() -> None:
    """It may have been replaced: the host must look on, at the other places, too."""
    network = GrpcNetwork()
    ServerTransport.close(network.server)  # as it begins to end: its place is still there
    with pytest.raises(BadInput, match="is it still running"):
        host_of(network, seconds=0.3)
    network.close()
