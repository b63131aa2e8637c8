"""Real TLS 1.3 handshakes: who is believed to be the server, and who is let in."""

import socket
import ssl
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from mdgan.credentials.files import issue, make_folder_of_authority, write_shared
from mdgan.credentials.identity import Identity, read_credentials
from mdgan.credentials.permit import HOST_NAME, SERVER_NAME, permit_of

DAY = timedelta(days=1)
SECONDS = 20.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authority")
    make_folder_of_authority(folder, DAY)
    for role in ("worker", "server", "standby"):
        issue(folder, role, role, (), DAY)
    write_shared(folder / "shared.cred", DAY)
    return folder


def context(folder: Path, identity: Identity, purpose: ssl.Purpose) -> ssl.SSLContext:
    """A side that shows its certificate, and asks for one of the same authority."""
    made = ssl.create_default_context(purpose, cadata=identity.authorities.decode())
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    chain = folder / "chain"
    chain.write_bytes(identity.certificate + identity.key)
    made.load_cert_chain(chain)
    chain.unlink()
    return made


def shake_hands(folder: Path, server: str, client: str, name: str) -> tuple[bytes, bytes]:
    """The certificates that the server and the client have seen.

    Raises:
        ssl.SSLError: one of them refuses the other.
    """
    theirs, ours = (read_credentials(folder / f"{one}.cred") for one in (server, client))
    at_server = context(folder, theirs, ssl.Purpose.CLIENT_AUTH)
    at_client = context(folder, ours, ssl.Purpose.SERVER_AUTH)
    seen: list[bytes | ssl.SSLError] = []

    def serve(connection: socket.socket) -> None:
        try:
            with at_server.wrap_socket(connection, server_side=True) as wrapped:
                seen.append(wrapped.getpeercert(binary_form=True) or b"")
                wrapped.sendall(b"!")
        except ssl.SSLError as error:
            seen.append(error)

    near, far = socket.socketpair()
    near.settimeout(SECONDS)
    far.settimeout(SECONDS)
    thread = threading.Thread(target=serve, args=(far,))
    thread.start()
    try:
        with at_client.wrap_socket(near, server_hostname=name) as wrapped:
            assert wrapped.version() == "TLSv1.3"
            shown = wrapped.getpeercert(binary_form=True) or b""
            wrapped.recv(1)  # only now does the client hear that it is refused
    finally:
        near.close()
        thread.join(SECONDS)
        far.close()
    (what,) = seen
    if isinstance(what, ssl.SSLError):
        raise what
    return what, shown


@pytest.mark.parametrize("server", ["server", "standby"])
def test_those_that_may_serve_are_believed(folder: Path, server: str) -> None:
    seen, shown = shake_hands(folder, server, "worker", SERVER_NAME)
    assert permit_of(ssl.DER_cert_to_PEM_cert(seen).encode()).role == "worker"
    assert permit_of(ssl.DER_cert_to_PEM_cert(shown).encode()).role == server


def test_a_shared_file_serves_all(folder: Path) -> None:
    shake_hands(folder, "shared", "shared", SERVER_NAME)
    shake_hands(folder, "shared", "shared", HOST_NAME)


def test_a_worker_cannot_pass_for_the_server(folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(folder, "worker", "server", SERVER_NAME)
    shake_hands(folder, "worker", "server", HOST_NAME)


@pytest.mark.parametrize(("server", "client"), [("server", "shared"), ("shared", "worker")])
def test_other_authorities_are_not_believed(folder: Path, server: str, client: str) -> None:
    with pytest.raises(ssl.SSLError):
        shake_hands(folder, server, client, SERVER_NAME)
