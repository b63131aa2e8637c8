"""Dishonest givers and takers of parcels; `test_contract.py` has the honest ones."""

import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from mdgan.messages import Kind, Message
from mdgan.transport.base import RELAY, Joined, Lost, Tickets
from mdgan.transport.frames import PIECE_BYTES, encode
from mdgan.transport.grpc_server import GrpcServerTransport
from mdgan.transport.links_pb2 import Order, Piece
from mdgan.transport.streams import FETCH, Threads, may_be_tried, open_channel
from tests.claims.registry import claim
from tests.unit.transport.networks import (
    LONG,
    QUICK,
    GrpcNetwork,
    credentials,
    giver_and_taker,
    in_threads,
    joined,
    listening,
    note,
    ordered,
    value_of,
)
from tests.unit.transport.peers import peer

TAKES = Tickets({}, {4: "a secret", 9: "a secret"})


def fetched(place: str, order: Order) -> list[Piece]:
    channel = open_channel(place, None, "", QUICK)
    try:
        ask = channel.unary_stream(FETCH, Order.SerializeToString, Piece.FromString)
        return list(ask(order, timeout=LONG))
    finally:
        channel.close()


@pytest.mark.parametrize("relay", [False, True])
@pytest.mark.parametrize("ticket", ["", "Ü\0", "0" * 32])
@claim("ticket", "who shows a certificate and the server's ticket for this discriminator")
def test_a_host_without_the_ticket_gets_nothing_and_removes_nothing(
    relay: bool, ticket: str
) -> None:
    network = GrpcNetwork(relay=relay)
    giver, taker, addresses = giver_and_taker(network)
    tickets = ordered(network, 4, (1, 2))
    giver.exchange(4, {2: note(4, 4.0)}, [], addresses, tickets[1])
    place = network.place if relay else addresses[1]
    with pytest.raises(grpc.RpcError) as caught:
        fetched(place, Order(giver=1, iteration=4, taker=2, ticket=ticket))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert value_of(taker.exchange(4, {}, [1], addresses, tickets[2])[1]) == 4.0
    network.close()


def test_a_relayed_host_that_leaves_has_its_newest_parcels_fetched() -> None:
    network = GrpcNetwork(relay=True)
    giver, taker, addresses = giver_and_taker(network)
    tickets = ordered(network, 4, (1, 2))
    giver.exchange(4, {2: note(4, 4.0)}, [], addresses, tickets[1])
    giver.close()
    assert value_of(taker.exchange(4, {}, [1], addresses, tickets[2])[1]) == 4.0
    network.close()


SOCKET, NEAR, FAR, FAR_6 = "unix:", "ipv4:127.0.0.1:4", "ipv4:10.0.0.7:4", "ipv6:%5Bfd00::7%5D:4"


@pytest.mark.parametrize(
    ("place", "peer", "tries"),
    [
        ("unix:/somewhere", FAR, False),
        ("127.0.0.1:1", NEAR, True),
        ("127.0.0.1:1", FAR, False),
        ("10.0.0.7:9", FAR, True),
        ("10.0.0.7:9", "ipv6:%5B::ffff:10.0.0.7%5D:4", True),
        ("[fd00::7]:9", FAR_6, True),
        ("10.0.0.8:9", FAR, True),
        ("10.0.0.7:0", FAR, False),
        ("10.0.0.7:99999", FAR, False),
        ("0.0.0.0:9", FAR, False),
        ("169.254.169.254:80", FAR, False),
        ("224.0.0.1:9", FAR, False),
        ("internal.example:22", FAR, False),
        ("dns:///internal.example:22", FAR, False),
        ("9" * 400, FAR, False),
    ],
)
def test_only_an_address_that_means_one_machine_may_be_tried(
    place: str, peer: str, tries: bool
) -> None:
    assert may_be_tried(place, peer) is tries


def test_other_hosts_are_sent_only_where_the_server_found_a_host(
    network: GrpcNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = network.server
    assert isinstance(server, GrpcServerTransport)
    for is_there in (False, True):
        monkeypatch.setattr(server, "_reaches", lambda _, there=is_there: there)
        assert server._place_of({"listens": "10.0.0.8:9"}, FAR) == (
            "10.0.0.8:9" if is_there else RELAY
        )
        assert server._place_of({"listens": "127.0.0.1:1"}, FAR) == RELAY
        assert server._place_of({"listens": None}, FAR) == RELAY
        assert server._place_of({"listens": "unix:/somewhere"}, SOCKET) == "unix:/somewhere"
        assert server._place_of({"listens": "unix:/somewhere"}, FAR) == RELAY


def test_the_server_tries_whether_a_host_of_the_run_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = GrpcNetwork(identity=credentials())
    server = network.server
    assert isinstance(server, GrpcServerTransport)
    place = listening(network, {1: network.join(1, {})})[1]
    assert server._place_of({"listens": place}, NEAR) == place
    monkeypatch.setattr("mdgan.transport.grpc_server._REACH_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        other = f"127.0.0.1:{stranger.getsockname()[1]}"
        assert server._place_of({"listens": other}, NEAR) == RELAY
    network.close()


@pytest.mark.parametrize("is_halted", [True, False])
def test_a_giver_that_dies_before_it_gives(
    network: GrpcNetwork, is_halted: bool, tmp_path: Path
) -> None:
    place = f"unix:{tmp_path}/giver"
    how = {"server": network.place, "number": 4, "parcels_at": place, "lays_out": 6}
    with peer("host", **how) as child:
        assert isinstance(network.server.receive(LONG), Joined)
        taker = joined(network, 2)[2]
        if is_halted:
            child.halt()
        results: list[object] = []
        iteration = 6 if is_halted else 7  # what a living giver has not laid out is waited for
        in_threads(
            lambda: results.append(taker.exchange(iteration, {}, [4], {4: place}, TAKES)[4]),
            child.kill,
        )
    assert results == [Lost(4, "its connection closed")]


def serving(answer: Callable[[], Sequence[bytes]], place: str) -> grpc.Server:
    """Hands out what the test wants."""

    def fetch(_order: Order, _context: grpc.ServicerContext) -> Iterator[bytes]:
        yield from answer()

    handler: Any = grpc.unary_stream_rpc_method_handler(fetch, Order.FromString, None)
    server = grpc.server(
        Threads(), [grpc.method_handlers_generic_handler("mdgan.Parcels", {"Fetch": handler})]
    )
    server.add_insecure_port(place)
    server.start()
    return server


def broken() -> Sequence[bytes]:
    raise ValueError("a giver's mistake")


LARGE = encode(note(4, size=PIECE_BYTES // 2)).pieces


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda: encode(note(3)).pieces, "it gave what is of iteration 3"),
        (lambda: encode(Message(Kind.STOP, 4)).pieces, "a STOP message is not expected"),
        (lambda: encode(note(4, size=1 << 21)).pieces, "at most 4194304 are expected"),
        (lambda: [], "it did not give one message"),
        (lambda: encode(note(4)).pieces * 2, "it did not give one message"),
        (lambda: LARGE[:1], "ends too early"),
        (lambda: [b"\xff\xff"], ""),
        (lambda: [Piece(kind="DISCRIMINATORS", iteration=4).SerializeToString()], "damaged"),
        (broken, "a giver's mistake"),
    ],
)
def test_a_giver_that_gives_something_else(
    network: GrpcNetwork, tmp_path: Path, answer: Callable[[], Sequence[bytes]], says: str
) -> None:
    taker = network.join(2, {})
    place = f"unix:{tmp_path}/giver"
    server = serving(answer, place)
    lost = taker.exchange(4, {}, [9], {9: place}, TAKES)[9]
    assert isinstance(lost, Lost)
    assert lost.peer == 9
    assert says in lost.reason
    server.stop(0).wait()


def test_an_address_that_leads_nowhere(network: GrpcNetwork) -> None:
    taker = network.join(2, {})
    for address in (7, ["127.0.0.1", 4000], "", "nonsense", "unix:/nowhere"):
        assert isinstance(taker.exchange(4, {}, [9], {9: address}, TAKES)[9], Lost)


@claim("callers", "where the server relays three times the state of its workers")
def test_a_host_cannot_fill_the_servers_memory_with_parcels() -> None:
    network = GrpcNetwork(relay=True)
    host = joined(network, 1)[1]
    large = note(3, size=700_000)  # two of them are more than one host may have: 4 MiB
    tickets = ordered(network, 3, (1, 2), (1, 4))
    host.exchange(3, {2: large, 4: large}, [], {}, tickets[1])
    assert network.server.receive(LONG) == Lost(1, "it lays out more than it can have", lied=True)
    network.close()
