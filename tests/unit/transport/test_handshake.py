import socket
import threading
from collections.abc import Callable

import pytest
from mdgan.transport.handshake import (
    GREETING_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    VERDICT_BYTES,
    HandshakeFailed,
    NotMdgan,
    OtherVersion,
    WrongToken,
    as_client,
    as_server,
    client_proof,
    greeting,
    read_greeting,
    server_proof,
)

from mdgan.errors import Interrupted
from mdgan.transport import handshake
from mdgan.transport.until import Until
from tests.unit.transport.networks import LONG
from tests.unit.transport.sockets import connected

KEY = b"the secret that both know"
ENDS = pytest.mark.parametrize("end", [as_client, as_server])
End = Callable[[socket.socket, bytes, Until], None]


def meet(client_key: bytes, server_key: bytes) -> list[HandshakeFailed | None]:
    """What becomes of both sides, the client's first."""
    results: list[HandshakeFailed | None] = [None, None]

    def side(place: int, end: End, connection: socket.socket, key: bytes) -> None:
        with connection:
            try:
                end(connection, key, Until(LONG))
            except HandshakeFailed as error:
                results[place] = error

    there, here = connected()
    thread = threading.Thread(target=side, args=(0, as_client, there, client_key))
    thread.start()
    side(1, as_server, here, server_key)
    thread.join(LONG)
    return results


@pytest.mark.parametrize("key", [KEY, b"", b"x" * 4096])
def test_a_client_with_the_key_is_let_in(key: bytes) -> None:
    assert meet(key, key) == [None, None]


@pytest.mark.parametrize(
    ("client", "server", "told"),
    [
        (b"another secret", KEY, "its join token is another one"),
        (b"", KEY, "it wants a join token"),
        (KEY, b"", "its join token is another one"),
        (KEY + b"\0", KEY, "its join token is another one"),
    ],
)
def test_a_client_with_another_key_is_told_so(client: bytes, server: bytes, told: str) -> None:
    at_client, at_server = meet(client, server)
    assert isinstance(at_server, WrongToken)
    assert str(at_server) == "its join token is wrong or missing"
    assert isinstance(at_client, WrongToken)
    assert str(at_client) == told


def play_server(proof: Callable[[bytes, bytes, bytes], bytes]) -> HandshakeFailed:
    """The client's answer to a server that lets every client in and proves itself as it can."""
    here, there = connected()
    with here, there:
        errors: list[HandshakeFailed] = []

        def client() -> None:
            with pytest.raises(HandshakeFailed) as caught:
                as_client(there, KEY, Until(LONG))
            errors.append(caught.value)

        thread = threading.Thread(target=client)
        thread.start()
        theirs = read_greeting(here.recv(GREETING_BYTES, socket.MSG_WAITALL))
        ours = bytes(range(NONCE_BYTES))
        here.sendall(greeting(ours))
        said = here.recv(PROOF_BYTES, socket.MSG_WAITALL)
        here.sendall(b"\x01" + proof(said, theirs, ours))
        thread.join(LONG)
        return errors[0]


def test_a_server_without_the_token_is_noticed() -> None:
    fakes: list[Callable[[bytes, bytes, bytes], bytes]] = [
        lambda said, theirs, ours: bytes(PROOF_BYTES),
        lambda said, theirs, ours: server_proof(b"", theirs, ours),
        lambda said, theirs, ours: said,  # reflected
        lambda said, theirs, ours: client_proof(KEY, theirs, ours),
        lambda said, theirs, ours: server_proof(KEY, ours, theirs),
        lambda said, theirs, ours: server_proof(KEY, theirs, theirs),
    ]
    for fake in fakes:
        error = play_server(fake)
        assert isinstance(error, WrongToken)
        assert str(error) == "it does not know the join token"


def play_client(proof: Callable[[bytes, bytes], bytes]) -> HandshakeFailed | None:
    """What a server makes of a client that proves itself as it can."""
    here, there = connected()
    with here, there:
        errors: list[HandshakeFailed] = []

        def server() -> None:
            try:
                as_server(there, KEY, Until(LONG))
            except HandshakeFailed as error:
                errors.append(error)

        thread = threading.Thread(target=server)
        thread.start()
        ours = bytes(range(NONCE_BYTES))
        here.sendall(greeting(ours))
        theirs = read_greeting(here.recv(GREETING_BYTES, socket.MSG_WAITALL))
        here.sendall(proof(ours, theirs))
        thread.join(LONG)
        return errors[0] if errors else None


def test_no_proof_but_the_clients_own_over_both_draws_is_taken() -> None:
    assert play_client(lambda ours, theirs: client_proof(KEY, ours, theirs)) is None
    fakes: list[Callable[[bytes, bytes], bytes]] = [
        lambda ours, theirs: server_proof(KEY, ours, theirs),
        lambda ours, theirs: client_proof(KEY, theirs, ours),
        lambda ours, theirs: client_proof(KEY, ours, bytes(NONCE_BYTES)),  # of another meeting
        lambda ours, theirs: client_proof(b"", ours, theirs),
        lambda ours, theirs: bytes(PROOF_BYTES),
    ]
    for fake in fakes:
        assert isinstance(play_client(fake), WrongToken)


def test_the_draw_of_the_server_is_never_the_same() -> None:
    draws: list[bytes] = []

    def keep(_ours: bytes, theirs: bytes) -> bytes:
        draws.append(theirs)
        return bytes(PROOF_BYTES)

    for _ in range(20):
        play_client(keep)
    assert len(set(draws)) == 20


def answer_to(end: End, content: bytes) -> HandshakeFailed:
    """What one side makes of bytes from a stranger who then says nothing more."""
    here, there = connected()
    with here, there:
        here.sendall(content)
        here.shutdown(socket.SHUT_WR)
        with pytest.raises(HandshakeFailed) as caught:
            end(there, KEY, Until(LONG))
        return caught.value


@ENDS
def test_something_else_is_no_mdgan(end: End) -> None:
    assert isinstance(answer_to(end, b"HTTP/1.1 400 Bad Request\r\n" + bytes(99)), NotMdgan)


@ENDS
def test_another_version_is_named(end: End) -> None:
    error = answer_to(end, greeting(bytes(NONCE_BYTES), version=7))
    assert isinstance(error, OtherVersion)
    assert "speaks version 7 of mdgan's protocol, this is version 2; use the same" in str(error)


def test_a_client_of_another_version_is_told_ours() -> None:
    here, there = connected()
    with here, there:
        here.sendall(greeting(bytes(NONCE_BYTES), version=7))
        with pytest.raises(OtherVersion):
            as_server(there, KEY, Until(LONG))
        there.close()
        answer = here.recv(GREETING_BYTES, socket.MSG_WAITALL)
        assert len(read_greeting(answer)) == NONCE_BYTES
        assert here.recv(1) == b""


@ENDS
@pytest.mark.parametrize("length", [0, 1, GREETING_BYTES - 1, GREETING_BYTES])
def test_a_peer_that_closes_half_way_is_noticed(end: End, length: int) -> None:
    error = answer_to(end, greeting(bytes(NONCE_BYTES))[:length])
    assert str(error) == "it closed the connection"


@ENDS
def test_there_is_one_deadline_for_everything(end: End) -> None:
    """Not one for each byte: who sends slowly gains nothing."""
    here, there = connected()
    stop = threading.Event()
    sent: list[int] = []

    def trickle() -> None:
        for byte in greeting(bytes(NONCE_BYTES)):
            sent.append(here.send(bytes([byte])))
            if stop.wait(0.5):
                return

    with here, there:
        thread = threading.Thread(target=trickle)
        thread.start()
        with pytest.raises(HandshakeFailed, match="did not answer in time"):
            end(there, KEY, Until(0.8))
        assert len(sent) < GREETING_BYTES
        stop.set()
        thread.join(LONG)


def test_an_interruption_ends_it() -> None:
    here, there = connected()
    interrupted = threading.Event()
    with here, there:
        threading.Timer(0.1, interrupted.set).start()
        with pytest.raises(Interrupted):
            as_client(there, KEY, Until(1e6, interrupted))


def test_messages_have_one_size() -> None:
    assert len(greeting(bytes(NONCE_BYTES))) == GREETING_BYTES
    assert len(client_proof(KEY, b"a" * 32, b"b" * 32)) == PROOF_BYTES
    assert 1 + len(server_proof(KEY, b"a" * 32, b"b" * 32)) == VERDICT_BYTES
    assert handshake.VERSION == 2
