from mdgan.messages import Message
from mdgan.transport.base import Received
from mdgan.transport.frames import encode
from mdgan.transport.memory import MemoryNetwork
from tests.unit.transport.networks import QUICK, admit_all, in_threads, note


def size(message: Message) -> int:
    return len(encode(message).body)


def test_both_ends_count_what_would_go_over_a_wire() -> None:
    network = MemoryNetwork(QUICK, admit_all)
    host = network.join(1, {})
    network.server.receive(1)
    there, back = note(1, text="more to say"), Message("FEEDBACK", 1, {"workers": [1]})
    for _ in range(3):
        assert network.server.send(1, there) == size(there)
        event = host.receive(1)
        assert isinstance(event, Received)
        assert event.num_bytes == size(there)
    assert host.send(back) == size(back)
    network.server.receive(1)
    assert network.server.traffic.sent == {"DISCRIMINATORS": 3 * size(there)}
    assert network.server.traffic.received == {"FEEDBACK": size(back)}
    assert host.traffic.sent == network.server.traffic.received
    assert host.traffic.received == network.server.traffic.sent


def test_messages_that_no_host_gets_are_not_counted() -> None:
    network = MemoryNetwork(QUICK, admit_all)
    assert network.server.send(7, note(1)) == 0
    network.join(1, {})
    network.server.drop(1)
    assert network.server.send(1, note(1)) == 0
    assert network.server.traffic.sent.total() == 0


def test_an_exchange_is_counted_at_both_partners() -> None:
    network = MemoryNetwork(QUICK, admit_all)
    one, two = network.join(1, {}), network.join(2, {})
    parcel = note(4)
    in_threads(
        lambda: [one.exchange(4, {2: parcel}, [2], {})].clear(),
        lambda: [two.exchange(4, {1: parcel}, [1], {})].clear(),
    )
    for host in (one, two):
        assert host.traffic.sent == host.traffic.received == {"DISCRIMINATORS": size(parcel)}
