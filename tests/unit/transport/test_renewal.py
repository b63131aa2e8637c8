"""Certificates that expire, or are renewed, while links are open."""

import shutil
import socket
import ssl
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509

from mdgan.credentials.files import issue, make_folder_of_authority
from mdgan.credentials.identity import Identity, read_credentials
from mdgan.credentials.pem import now
from mdgan.credentials.reread import Reread
from mdgan.errors import BadInput
from mdgan.transport import guard
from mdgan.transport.base import Joined, Lost
from mdgan.transport.grpc_server import GrpcServerTransport
from tests.claims.registry import claim
from tests.unit.transport.networks import LONG, GrpcNetwork, echo, expect, host_of, refusal

DAY = timedelta(days=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_folder_of_authority(tmp_path, 9 * DAY)
    for name, role, days in (
        ("server", "server", 8),
        ("next", "server", 7),
        ("alice", "worker", 1),
    ):
        issue(tmp_path, name, role, (), days * DAY)
    issue(tmp_path, "alice-renewed", "worker", (), 5 * DAY)
    return tmp_path


def renewable(path: Path) -> Reread[Identity]:
    return Reread([path], partial(read_credentials, path), lambda _: f"{path} has changed")


def serial_shown(place: str, own: Path) -> int:
    """That of the certificate which a new connection is shown."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(own)
    address, _, port = place.rpartition(":")
    bare = socket.create_connection((address, int(port)), LONG)
    with context.wrap_socket(bare) as link:
        shown = link.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


def serial_in(path: Path) -> int:
    (credentials, *_) = x509.load_pem_x509_certificates(read_credentials(path).certificate)
    return credentials.serial_number


@claim("link-ends", "A link ends with its certificate, and the host comes back with a renewed one")
def test_a_link_ends_when_its_certificate_expires_and_a_renewed_one_comes_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = GrpcNetwork(identity=read_credentials(folder / "server.cred"))
    said = {"host": 1, "workers": [1]}
    old, new = (read_credentials(folder / f"{name}.cred") for name in ("alice", "alice-renewed"))
    host = host_of(network, said, LONG, identity=old)
    expect(network.server, Joined)
    echo(network, host, 1)
    later = now() + 2 * DAY
    monkeypatch.setattr(guard, "now", lambda: later)
    lost = expect(network.server, Lost)
    assert "its certificate (alice) expired at" in lost.reason
    with pytest.raises(BadInput, match=r"its certificate \(alice\) expired at .*; renew it"):
        host_of(network, said, LONG, identity=old)
    assert "expired" in refusal(network)
    renewed = host_of(network, said, LONG, identity=new)
    expect(network.server, Joined)
    echo(network, renewed, 1)
    renewed.close()
    network.close()


@claim("link-ends", "Put the new file in the place of the old one in time.")
def test_a_server_shows_its_renewed_certificate_and_keeps_its_links(folder: Path) -> None:
    own_file = folder / "own.cred"
    shutil.copy(folder / "server.cred", own_file)
    network = GrpcNetwork(identity=renewable(own_file).now)
    alice = folder / "alice.cred"
    host = host_of(network, {"host": 1, "workers": [1]}, LONG, identity=read_credentials(alice))
    assert isinstance(network.server, GrpcServerTransport)
    expect(network.server, Joined)
    (place,) = network.server.places
    assert serial_shown(place, alice) == serial_in(folder / "server.cred")
    (folder / "new.cred").write_bytes((folder / "next.cred").read_bytes())
    (folder / "new.cred").chmod(0o600)
    (folder / "new.cred").replace(own_file)
    assert serial_shown(place, alice) == serial_in(folder / "next.cred")
    own_file.write_text("half a file")
    assert serial_shown(place, alice) == serial_in(folder / "next.cred"), "the last good one"
    echo(network, host, 1)
    host.close()
    network.close()
