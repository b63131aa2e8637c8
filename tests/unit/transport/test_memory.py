import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from mdgan import messages
from mdgan.messages import Kind, Message
from mdgan.timeouts import Timeouts
from mdgan.transport.base import SERVER, Asked, Joined, Lost, Received
from mdgan.transport.memory import MemoryHostTransport, MemoryNetwork

PATIENT = Timeouts()
HASTY = Timeouts(connect=0.01, farewell=0.01, link=0.02, swap=0.03, answer=5.0)
SOON = 0.01
LONG = 20.0


def note(iteration: int, value: float = 0.0, **fields: Any) -> Message:
    return Message(Kind.DISCRIMINATORS, iteration, fields, {"w": torch.full((3,), value)})


def value_of(message: Message | Lost) -> float:
    assert isinstance(message, Message)
    (value,) = set(message.tensors["w"].tolist())
    return float(value)


def in_threads(*works: Callable[[], None]) -> None:
    """Runs all at once; an error in one of them is an error here."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def test_joining_is_told_to_the_server() -> None:
    network = MemoryNetwork(PATIENT)
    network.join(3, {"workers": [3, 4]})
    assert network.server.receive(SOON) == Joined(3, {"workers": [3, 4]})
    assert network.server.receive(SOON) is None


def test_messages_go_both_ways_in_order() -> None:
    network = MemoryNetwork(PATIENT)
    hosts = {number: network.join(number, {}) for number in (1, 2)}
    for _ in hosts:
        network.server.receive(SOON)
    for iteration in (1, 2):
        network.server.send(2, note(iteration, iteration + 0.5))
    for iteration in (1, 2):
        event = hosts[2].receive(SOON)
        assert isinstance(event, Received)
        assert (event.sender, event.message.iteration) == (SERVER, iteration)
        assert value_of(event.message) == iteration + 0.5
    assert hosts[1].receive(SOON) is None

    hosts[1].send(messages.stop(4, "why"))
    event_at_server = network.server.receive(SOON)
    assert isinstance(event_at_server, Received)
    assert event_at_server.sender == 1
    assert event_at_server.message == messages.stop(4, "why")


def arrived(way: str, sent: Message) -> Message:
    network = MemoryNetwork(PATIENT)
    host, other = network.join(1, {}), network.join(2, {})
    for _ in (1, 2):
        network.server.receive(SOON)
    if way == "to another host":
        host.exchange(1, {2: sent}, [])
        parcel = other.exchange(1, {}, [1])[1]
        assert isinstance(parcel, Message)
        return parcel
    if way == "to a host":
        network.server.send(1, sent)
        event = host.receive(SOON)
        assert isinstance(event, Received)
        return event.message
    host.send(sent)
    answer = network.server.receive(SOON)
    assert isinstance(answer, Received)
    return answer.message


WAYS = pytest.mark.parametrize("way", ["to a host", "to the server", "to another host"])


@WAYS
def test_tensors_arrive_as_copies(way: str) -> None:
    sent = note(1, 5.0)
    message = arrived(way, sent)
    sent.tensors["w"].zero_()
    assert value_of(message) == 5.0


@WAYS
def test_fields_arrive_as_copies(way: str) -> None:
    sent = note(1, moves=[[1, 2]])
    message = arrived(way, sent)
    sent.fields["moves"][0].append(3)
    assert message.fields == {"moves": [[1, 2]]}


def test_one_message_to_two_hosts_arrives_as_two_copies() -> None:
    network = MemoryNetwork(PATIENT)
    hosts = [network.join(number, {}) for number in (1, 2)]
    sent = note(1, 5.0)
    network.server.send(1, sent)
    network.server.send(2, sent)
    first, second = (host.receive(SOON) for host in hosts)
    assert isinstance(first, Received)
    assert isinstance(second, Received)
    first.message.tensors["w"].zero_()
    assert value_of(second.message) == 5.0
    assert value_of(sent) == 5.0


def test_three_hosts_exchange_with_each_other() -> None:
    network = MemoryNetwork(PATIENT)
    hosts = {number: network.join(number, {}) for number in (1, 2, 3)}
    found: dict[tuple[int, int, int], float] = {}

    def work(number: int, host: MemoryHostTransport) -> None:
        others = {1, 2, 3} - {number}
        for iteration in range(20):
            outgoing = {
                other: note(iteration, 1e4 * iteration + 100 * number + other) for other in others
            }
            for sender, message in host.exchange(iteration, outgoing, others).items():
                found[iteration, sender, number] = value_of(message)

    in_threads(*(lambda n=n, host=host: work(n, host) for n, host in hosts.items()))
    assert found == {
        (iteration, sender, receiver): 1e4 * iteration + 100 * sender + receiver
        for iteration in range(20)
        for sender in (1, 2, 3)
        for receiver in (1, 2, 3)
        if sender != receiver
    }


def test_an_exchange_may_be_one_way_round() -> None:
    network = MemoryNetwork(PATIENT)
    hosts = {number: network.join(number, {}) for number in (1, 2, 3)}
    found: dict[int, float] = {}

    def work(number: int) -> None:
        taker, giver = number % 3 + 1, (number + 1) % 3 + 1
        arrived = hosts[number].exchange(7, {taker: note(7, float(number))}, [giver])
        assert arrived.keys() == {giver}
        found[number] = value_of(arrived[giver])

    in_threads(*(lambda n=n: work(n) for n in hosts))
    assert found == {1: 3.0, 2: 1.0, 3: 2.0}


def test_an_exchange_of_nothing_is_nothing() -> None:
    assert MemoryNetwork(HASTY).join(1, {}).exchange(1, {}, []) == {}


def test_who_sends_nothing_in_time_is_lost_and_the_others_are_not() -> None:
    network = MemoryNetwork(HASTY)
    first, second = network.join(1, {}), network.join(2, {})
    second.exchange(4, {1: note(4, 2.0)}, [])
    arrived = first.exchange(4, {}, [3, 2])
    assert value_of(arrived[2]) == 2.0
    lost = arrived[3]
    assert isinstance(lost, Lost)
    assert lost.peer == 3
    assert lost.reason


def test_what_comes_too_late_is_not_taken_for_the_next() -> None:
    network = MemoryNetwork(HASTY)
    first, second = network.join(1, {}), network.join(2, {})
    assert isinstance(first.exchange(4, {}, [2])[2], Lost)
    second.exchange(4, {1: note(4, 4.0)}, [])
    second.exchange(8, {1: note(8, 8.0)}, [])
    assert value_of(first.exchange(8, {}, [2])[2]) == 8.0


def test_waiting_ends_when_the_time_is_up() -> None:
    network = MemoryNetwork(PATIENT)
    assert network.server.receive(0.0) is None
    assert network.server.receive(SOON) is None
    assert network.join(1, {}).receive(SOON) is None


def test_a_message_ends_the_wait() -> None:
    network = MemoryNetwork(PATIENT)
    host = network.join(1, {})
    network.server.receive(SOON)

    def answer() -> None:
        event = host.receive(LONG)
        assert isinstance(event, Received)
        host.send(note(event.message.iteration + 1))

    def ask() -> None:
        network.server.send(1, note(1))
        event = network.server.receive(LONG)
        assert isinstance(event, Received)
        assert event.message.iteration == 2

    in_threads(answer, ask)


def test_an_interrupt_ends_the_wait_at_both_ends() -> None:
    network = MemoryNetwork(PATIENT)
    host = network.join(1, {})
    network.server.receive(SOON)
    found: list[object] = []
    in_threads(
        lambda: found.append(host.receive(LONG)),
        lambda: found.append(network.server.receive(LONG)),
        host.interrupt,
        network.server.interrupt,
    )
    assert found == [Asked(), Asked()]
    assert host.receive(SOON) is None


def test_the_end_of_the_server_is_told_to_every_host() -> None:
    network = MemoryNetwork(PATIENT)
    hosts = [network.join(number, {}) for number in (1, 2)]
    network.server.close()
    for host in hosts:
        event = host.receive(SOON)
        assert isinstance(event, Lost)
        assert event.peer == SERVER


def test_the_end_of_a_host_is_told_to_the_server() -> None:
    network = MemoryNetwork(PATIENT)
    host = network.join(2, {})
    host.close()
    assert network.server.receive(SOON) == Joined(2, {})
    event = network.server.receive(SOON)
    assert isinstance(event, Lost)
    assert event.peer == 2


def test_sending_to_nobody_does_nothing() -> None:
    network = MemoryNetwork(PATIENT)
    network.server.send(9, note(1))
    assert network.server.receive(SOON) is None


def network_that_dropped_a_host() -> tuple[MemoryNetwork, MemoryHostTransport]:
    network = MemoryNetwork(PATIENT)
    host = network.join(1, {})
    network.server.receive(SOON)
    network.server.drop(1)
    network.server.drop(1)
    return network, host


def test_no_message_goes_to_a_dropped_host() -> None:
    network, host = network_that_dropped_a_host()
    network.server.send(1, note(1))
    assert not isinstance(host.receive(SOON), Received)


def test_no_message_comes_from_a_dropped_host() -> None:
    network, host = network_that_dropped_a_host()
    host.send(note(1))
    assert network.server.receive(SOON) is None


def test_no_loss_follows_of_a_dropped_host() -> None:
    network, host = network_that_dropped_a_host()
    host.close()
    assert network.server.receive(SOON) is None


def test_a_dropped_host_learns_that_the_server_is_gone() -> None:
    network, host = network_that_dropped_a_host()
    network.server.close()
    assert isinstance(host.receive(SOON), Lost)
