"""What is special within one process; the rest is in the contract."""

import pytest

from mdgan.messages import Message
from mdgan.transport.base import Received
from mdgan.transport.memory import MemoryNetwork
from tests.unit.transport.networks import LONG, QUICK, SOON, admit_all, in_threads, note, value_of


def arrived(way: str, sent: Message) -> Message:
    network = MemoryNetwork(QUICK, admit_all)
    host, other = network.join(1, {}), network.join(2, {})
    for _ in (1, 2):
        network.server.receive(SOON)
    if way == "to another host":
        host.exchange(1, {2: sent}, [], {})
        parcel = other.exchange(1, {}, [1], {})[1]
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
    network = MemoryNetwork(QUICK, admit_all)
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


def test_waiting_ends_when_the_time_is_up() -> None:
    network = MemoryNetwork(QUICK, admit_all)
    assert network.server.receive(0.0) is None
    assert network.server.receive(SOON) is None
    assert network.join(1, {}).receive(SOON) is None


def test_a_message_ends_the_wait() -> None:
    network = MemoryNetwork(QUICK, admit_all)
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
