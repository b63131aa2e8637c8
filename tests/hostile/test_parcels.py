"""A host that takes parcels of others, or fills the server's memory with its own."""

import socket
from pathlib import Path

import grpc
import pytest

from mdgan.families.mdgan.messages import DISCRIMINATORS
from mdgan.messages import Kind
from mdgan.transport.base import Lost
from mdgan.transport.frames import Frame, encode
from mdgan.transport.links_pb2 import Order, Piece
from mdgan.transport.streams import FETCH, open_channel
from tests.claims.registry import claim
from tests.hostile.bench import Hostile, hostile_run
from tests.unit.transport.networks import (
    LONG,
    QUICK,
    GrpcNetwork,
    credentials,
    expect,
    giver_and_taker,
    joined,
    message_of,
    note,
    ordered,
    value_of,
    word,
)


@pytest.mark.parametrize("relay", [False, True])
@claim("ticket", "who shows a certificate and the server's ticket for this discriminator")
def test_a_host_takes_no_parcel_of_others_away(relay: bool) -> None:
    network = GrpcNetwork(relay=relay)
    giver, taker, addresses = giver_and_taker(network)
    joined(network, 9)
    tickets = ordered(network, 4, (1, 2), (2, 1), (1, 9))
    giver.exchange(4, {2: note(4, 4.0)}, [], addresses, tickets[1])
    channel = open_channel(network.place if relay else addresses[1], None, "", QUICK)
    fetch = channel.unary_stream(FETCH, Order.SerializeToString, Piece.FromString)
    for ticket in (tickets[9].takes[1], tickets[2].gives[1], ""):
        order = Order(giver=1, iteration=4, taker=2, ticket=ticket)
        with pytest.raises(grpc.RpcError):
            list(fetch(order, timeout=LONG))
    assert value_of(taker.exchange(4, {}, [1], addresses, tickets[2])[1]) == 4.0
    channel.close()
    network.close()


@pytest.mark.parametrize("place", ["unix:{}", "dns:localhost:{}", "localhost:{}", "127.0.0.1:0"])
def test_a_host_asks_no_place_that_a_lying_server_invents(tmp_path: Path, place: str) -> None:
    """Such as the socket of another program on the host's machine."""
    network = GrpcNetwork(identity=credentials())
    _, taker, _ = giver_and_taker(network)
    tickets = ordered(network, 4, (1, 2))
    with socket.socket(socket.AF_UNIX if "unix" in place else socket.AF_INET) as other:
        other.bind(str(tmp_path / "other") if "unix" in place else ("127.0.0.1", 0))
        other.listen()
        named = other.getsockname()
        invented = place.format(named if "unix" in place else named[1])
        lost = taker.exchange(4, {}, [1], {1: invented}, tickets[2])[1]
        assert lost == Lost(1, "its address is unknown")
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()
    network.close()


@pytest.mark.parametrize("takers", [range(100, 150), [2, 2, 2]], ids=["invented", "repeated"])
def test_a_host_cannot_lay_out_what_no_swap_needs(takers: list[int]) -> None:
    network = GrpcNetwork(relay=True)
    hosts = joined(network, 1, 2)
    ordered(network, 3, (1, 2))
    parcel = encode(note(3, size=100_000)).body
    for taker in takers:
        hosts[1]._put(Frame("DISCRIMINATORS", 3, parcel, taker))
        hosts[1]._put(Frame(Kind.LAIDOUT, 3, b""))
    lost = expect(network.server, Lost)
    assert (lost.peer, lost.lied) == (1, True)
    assert "that no exchange needs" in lost.reason
    hosts[2].send(word(5))
    assert message_of(network.server.receive(LONG)).iteration == 5
    network.close()


def test_swaps_that_fail_are_told(tmp_path: Path) -> None:
    keeps_all = Hostile(DISCRIMINATORS, lambda _: None)
    flags = ["--iterations", "20", "--swap-interval", "1"]
    ran = hostile_run(tmp_path, keeps_all, flags=flags, may_be_believed=True)
    assert not ran.harm
    output = [line for line in ran.result.errors.splitlines() if "got no discriminator" in line]
    assert 4 <= len(output) <= 5, "the 1st, 2nd, 4th, 8th, … of 19"
    assert "keep their own; that was so in 1 swap(s) of" in output[0]
