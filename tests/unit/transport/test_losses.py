"""Hosts and servers that die, stop or break the rules."""

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mdgan.messages import Kind, Message
from mdgan.transport.base import SERVER, Joined, Lost
from mdgan.transport.frames import PIECE_BYTES, Frame, Most, encode
from mdgan.transport.grpc_host import GrpcHostTransport
from mdgan.transport.links_pb2 import Piece
from mdgan.transport.streams import Outbox
from tests.claims.registry import claim
from tests.processes import wait_until
from tests.unit.transport.networks import (
    LONG,
    QUICK,
    GrpcNetwork,
    echo,
    expect,
    host_of,
    joined,
    message_of,
    note,
    value_of,
)
from tests.unit.transport.peers import peer

BRISK = replace(QUICK, liveness=2.0, farewell=0.2)
PATIENT = replace(QUICK, liveness=20 * LONG)


@pytest.fixture(params=[None, "127.0.0.1:0"], ids=["plain socket", "gRPC"])
def opened_with(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    return {"place": request.param}


def lying(kind: str, size: int, data: bytes = b"") -> Frame:
    """A frame whose piece says what the test wants."""
    return handmade(Piece(kind=kind, iteration=1, size=size, data=data).SerializeToString())


def handmade(*pieces: bytes) -> Frame:
    frame = Frame("FEEDBACK", 1, b"")
    frame.__dict__["pieces"] = list(pieces)
    return frame


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (lying("FEEDBACK", 1 << 34), "a FEEDBACK message of 17179869184 bytes, at most 1048576"),
        (lying(Kind.EXTRACTOR, 64), "a EXTRACTOR message is not expected"),
        (lying("77\x1b", 64), "a 77? message is not expected"),
        (lying("FEEDBACK", 7, b"12"), "a FEEDBACK message comes in pieces of a wrong size"),
        (Frame("FEEDBACK", 1, bytes(1000)), "damaged FEEDBACK message"),
        (encode(Message("FEEDBACK", 1, {"x": [[]] * 30_000})), "at most 65536 are expected"),
        (handmade(b"\xff" * 100), ""),
        (handmade(bytes(2 * PIECE_BYTES)), ""),
    ],
)
@claim(
    "callers",
    "A message that breaks a rule ends its sender's link, or is ignored, and ends no "
    "other host's link",
)
def test_a_host_that_breaks_the_rules_is_lost_and_nobody_else(frame: Frame, says: str) -> None:
    expected = dict.fromkeys(("FEEDBACK", "DISCRIMINATORS"), Most(1 << 20, 1 << 16))
    network = GrpcNetwork(accepts_from=lambda _: expected, place="127.0.0.1:0")
    hosts = joined(network, 1, 2)
    liar = hosts[2]
    assert isinstance(liar, GrpcHostTransport)
    liar._outbox.put(frame)  # only a broken host sends such a thing
    event = expect(network.server, Lost)
    assert event.peer == 2
    assert event.lied == bool(says)  # what is no message looks like a cut connection
    assert says in event.reason
    assert isinstance(liar.receive(LONG), Lost)
    echo(network, hosts[1], 1)
    network.close()


def test_a_host_that_is_killed_is_lost_though_its_silence_is_not_long(
    opened_with: Mapping[str, Any],
) -> None:
    network = GrpcNetwork(PATIENT, **opened_with)
    with peer("host", server=network.place, number=4, parcels_at=None) as child:
        assert isinstance(network.server.receive(LONG), Joined)
        child.halt()
        network.server.send(4, note(1, size=1 << 22))  # more than it will have read
        child.kill()
        event = expect(network.server, Lost)
    assert event.peer == 4
    assert event.reason.startswith("its connection closed")
    assert not event.lied
    network.close()


def test_a_host_that_stands_still_is_lost_when_the_time_is_up_and_not_before() -> None:
    network = GrpcNetwork(BRISK)
    with peer("host", server=network.place, number=4, parcels_at=None) as child:
        assert isinstance(network.server.receive(LONG), Joined)
        assert network.server.receive(1.2 * BRISK.liveness) is None  # it is silent, but it lives
        begin = time.monotonic()
        child.halt()
        event = expect(network.server, Lost)
        assert event.peer == 4
        assert event.reason.endswith("it was silent for 2 s")
        assert time.monotonic() - begin > 0.5 * BRISK.liveness
    network.close()


def test_a_host_that_stands_still_does_not_hold_up_the_server(
    opened_with: Mapping[str, Any],
) -> None:
    network = GrpcNetwork(PATIENT, **opened_with)
    with peer("host", server=network.place, number=4, parcels_at=None) as child:
        assert isinstance(network.server.receive(LONG), Joined)
        hosts = joined(network, 1)
        child.halt()
        begin = time.monotonic()
        for _ in range(5):
            assert network.server.send(4, note(1, size=1 << 21)) > 0
        assert time.monotonic() - begin < PATIENT.liveness / 2
        echo(network, hosts[1], 1)
    network.close()


def test_what_waits_for_a_peer_that_takes_nothing_in_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mdgan.transport.streams.MOST_UNSENT_BYTES", 100)
    outbox, frame = Outbox(), Frame("SWAP", 1, bytes(60))
    assert [outbox.put(frame) for _ in range(3)] == [True, True, False]
    coming = outbox.pieces()
    assert [next(coming), next(coming)] == [*frame.pieces, *frame.pieces]
    assert outbox.put(frame)  # there is room again
    outbox.end()
    assert not outbox.put(frame)
    assert len(list(coming)) == 1


def test_a_host_that_takes_nothing_in_is_lost(
    network: GrpcNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdgan.transport.streams.MOST_UNSENT_BYTES", 1 << 22)
    with peer("host", server=network.place, number=4, parcels_at=None) as child:
        assert isinstance(network.server.receive(LONG), Joined)
        child.halt()
        large = note(1, size=1 << 21)
        wait_until(lambda: network.server.send(4, large) == 0, "too much waits for it")
        event = expect(network.server, Lost)
    assert event.peer == 4


@claim("callers", "Messages from one host take at most some 70 MiB of the server's memory")
def test_a_host_cannot_fill_the_servers_memory(
    network: GrpcNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdgan.transport.server_end._OF_AN_OWNER_BYTES", 1 << 20)
    hosts = joined(network, 1)
    for iteration in range(30):
        hosts[1].send(note(iteration, size=1 << 19))  # 2 MiB each
    inbox = network.server._inbox._queue  # what waits is not public
    wait_until(lambda: inbox.qsize() > 0, "the first is there")
    assert network.server.receive(LONG) is not None
    assert inbox.qsize() <= 2
    for iteration in range(1, 30):
        assert message_of(network.server.receive(LONG)).iteration == iteration
        assert inbox.qsize() <= 2


def test_large_messages_both_ways_at_once(network: GrpcNetwork) -> None:
    hosts = joined(network, 1)
    for iteration in range(4):
        network.server.send(1, note(iteration, 1.0, size=1 << 19))
        hosts[1].send(note(iteration, 2.0, size=1 << 19))
    for iteration in range(4):
        there, back = message_of(hosts[1].receive(LONG)), message_of(network.server.receive(LONG))
        assert (there.iteration, back.iteration) == (iteration, iteration)
        assert (value_of(there), value_of(back)) == (1.0, 2.0)


def test_both_ends_wait_for_nothing_when_they_close_and_leave_no_thread(
    network: GrpcNetwork,
) -> None:
    before = set(threading.enumerate())
    other = GrpcNetwork(replace(QUICK, farewell=1e4, link=2e4, swap=3e4, answer=4e4))
    hosts = joined(other, 1, 2)
    echo(other, hosts[1], 1)
    other.close()
    wait_until(lambda: set(threading.enumerate()) <= before, "their threads end")
    assert network.server.receive(0.0) is None


def test_a_server_that_dies_is_noticed_by_hosts(network: GrpcNetwork) -> None:
    with peer("server") as child:
        host = host_of(network, places=[child.place])
        child.kill()
        assert host.receive(LONG) == Lost(SERVER, "its connection closed")
        assert host.send(note(1)) == 0
        host.close()


@pytest.mark.slow
def test_a_server_that_stands_still_is_lost_when_the_time_is_up() -> None:
    network = GrpcNetwork(BRISK)
    with peer("server") as child:
        host = host_of(network, places=[child.place])
        assert host.receive(1.2 * BRISK.liveness) is None
        child.halt()
        host.send(note(1, size=1 << 21))
        assert host.receive(LONG) == Lost(SERVER, "it was silent for too long")
        host.close()
    network.close()


@pytest.mark.slow
def test_a_host_that_stands_still_over_what_was_sent_to_it_is_lost() -> None:
    network = GrpcNetwork(BRISK)
    with peer("host", server=network.place, number=4, parcels_at=None) as child:
        assert isinstance(network.server.receive(LONG), Joined)
        child.halt()
        network.server.send(4, note(1, size=1 << 20))  # more than a socket holds
        event = expect(network.server, Lost)
        assert event.reason.endswith("it was silent for 2 s")
        network.close()  # though gRPC cannot give up what the host has not taken in


def test_a_server_ends_though_a_host_stands_still() -> None:
    network = GrpcNetwork(replace(QUICK, farewell=0.2))
    with peer("host", server=network.place, number=4, parcels_at=None) as child:
        assert isinstance(network.server.receive(LONG), Joined)
        child.halt()
        network.server.send(4, note(1, size=1 << 21))
        network.close()
