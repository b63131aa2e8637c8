"""A machine in the path between two links of gRPC, and a stranger that sends rubbish."""

import contextlib
import socket
import ssl
from collections.abc import Iterator

import pytest

from mdgan.transport.base import Joined, Lost
from tests.chaos.test_wire import TELLTALE, Middle, as_they_are, once, tls_records
from tests.chaos.test_wire import with_a_bit_flipped as flipped
from tests.claims.registry import claim
from tests.unit.transport.networks import (
    LONG,
    SOON,
    GrpcNetwork,
    credentials,
    echo,
    expect,
    host_of,
    joined,
    word,
)
from tests.unit.transport.test_strangers import GARBAGE, address, is_closed


@pytest.fixture
def network() -> Iterator[GrpcNetwork]:
    made = GrpcNetwork(identity=credentials())
    yield made
    made.close()


@claim("tls", "Links between machines are gRPC over TLS 1.3, and both ends show a certificate.")
@claim("tls", "A machine in the path can neither read nor change what passes; it can only cut it.")
@pytest.mark.parametrize("to_server", [True, False])
def test_what_passes_is_tls_and_a_changed_bit_ends_it(
    network: GrpcNetwork, to_server: bool
) -> None:
    ways = (once(flipped), as_they_are) if to_server else (as_they_are, once(flipped))
    middle = Middle(address(network)[1], *ways)
    place = f"127.0.0.1:{middle.port}"
    host = host_of(network, {"host": 1, "workers": [1]}, identity=credentials(), places=[place])
    expect(network.server, Joined)
    for iteration in range(8):  # so that 60 kB pass each way
        host.send(word(iteration, size=9000))
        network.server.send(1, word(iteration, size=9000))
    for end in (network.server, host):
        while not isinstance(event := end.receive(LONG), Lost):
            assert event is not None, "its link ends"
    host.close()
    middle.close()
    for stream in middle.heard:
        assert set(tls_records(bytes(stream))) <= {20, 21, 22, 23}
        assert not any(sign in stream for sign in TELLTALE)
        assert b"FEEDBACK" not in stream


@claim("flood", "without a certificate no call reaches mdgan")
def test_a_stranger_that_knocks_leaves_no_line_and_gets_no_answer(network: GrpcNetwork) -> None:
    for content in GARBAGE.values():
        with socket.create_connection(address(network)) as stranger:
            stranger.sendall(content)
            assert is_closed(stranger)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    traffic = b""
    with (
        contextlib.suppress(OSError),  # an alert, that it wants a certificate
        socket.create_connection(address(network), LONG) as bare,
        context.wrap_socket(bare) as link,  # it has none
    ):
        assert link.version() == "TLSv1.3"
        link.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        while piece := link.recv(1 << 12):
            traffic += piece
    assert traffic == b"", "not even what HTTP/2 begins with"
    assert network.server.receive(SOON) is None
    echo(network, joined(network, 1)[1], 1)
