"""Certificates on a loopback port: whom the server lets in, in which role; what others learn."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from mdgan.credentials.authority import make_authority
from mdgan.credentials.files import issue, make_folder_of_authority, revoke, write_shared
from mdgan.credentials.identity import Identity, read_credentials
from mdgan.credentials.pem import key_pem, now, pem_of
from mdgan.credentials.permit import HOST_NAME, SERVER_NAME
from mdgan.credentials.revocations import Revocations
from mdgan.errors import BadInput
from mdgan.transport.base import Joined, Lost
from mdgan.transport.grpc_server import GrpcServerTransport
from mdgan.transport.streams import open_channel
from mdgan.transport.until import Until
from mdgan.transport.visit import ask, watch
from tests.claims.registry import claim
from tests.unit.transport.networks import (
    LONG,
    QUICK,
    SOON,
    GrpcNetwork,
    accept_all,
    access,
    admit_all,
    ask_at,
    echo,
    expect,
    host_of,
    listening,
    note,
    ordered,
    refusal,
    value_of,
)

DAY = timedelta(days=1)
FOR_EVER = 1e6
"""Who looks for so long has been told at once."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authority")
    make_folder_of_authority(folder, DAY)
    for role in ("worker", "server", "standby"):
        issue(folder, role, role, (), DAY)
    issue(folder, "three", "worker", (3, 4), DAY)
    write_shared(folder / "shared.cred", DAY)
    return folder


def identity(folder: Path, name: str) -> Identity:
    return read_credentials(folder / f"{name}.cred")


@pytest.fixture
def opened_with(folder: Path) -> Mapping[str, Any]:
    return {"identity": identity(folder, "server")}


def join(network: GrpcNetwork, folder: Path, name: str, *workers: int) -> Any:
    said = {"host": workers[0], "workers": list(workers)}
    return host_of(network, said, FOR_EVER, identity=identity(folder, name))


def test_hosts_of_the_same_authority_come_in_and_exchange(
    network: GrpcNetwork, folder: Path
) -> None:
    hosts = {1: join(network, folder, "worker", 1), 3: join(network, folder, "three", 3, 4)}
    addresses = listening(network, hosts)
    tickets = ordered(network, 4, (1, 3))
    hosts[1].exchange(4, {3: note(4, 4.0)}, [], addresses, tickets[1])
    assert value_of(hosts[3].exchange(4, {}, [1], addresses, tickets[3])[1]) == 4.0
    echo(network, hosts[3], 3)
    for host in hosts.values():
        host.close()


@pytest.mark.parametrize("shares", [False, True])
def test_a_host_is_known_by_its_own_certificate_and_not_by_what_it_says(
    folder: Path, shares: bool
) -> None:
    traffic: list[str] = []

    def admit(hello: Mapping[str, Any]) -> Mapping[str, Any]:
        traffic.append(hello["certificate"])
        return admit_all(hello)

    server, *names = ["shared"] * 4 if shares else ["server", "worker", "three", "worker"]
    network = GrpcNetwork(admit=admit, identity=identity(folder, server))
    for rank, name in zip((1, 3, 1), names, strict=True):
        said = {"host": rank, "workers": [rank], "certificate": "another's"}
        host_of(network, said, FOR_EVER, identity=identity(folder, name)).close()
    first, other, again = traffic
    if shares:  # it tells nothing: any machine of the run may show it
        assert traffic == ["", "", ""]
    else:
        assert len(first) == 64
        assert first == again != other
    network.close()


@claim(
    "named-ranks",
    "A rank can be claimed only with a certificate that names it, or that names none.",
)
@claim("most-ranks", "and certificates that name ranks bind them to machines.")
def test_a_rank_that_the_certificate_does_not_name(network: GrpcNetwork, folder: Path) -> None:
    says = r"its certificate \(three\) names ranks 3,4, not 5"
    with pytest.raises(BadInput, match=f"the server refused this host: {says}"):
        join(network, folder, "three", 4, 5)
    message = refusal(network)
    assert message.startswith("certificate ")
    assert message.endswith(" at 127.0.0.1: its certificate (three) names ranks 3,4, not 5")
    assert isinstance(join(network, folder, "three", 4).welcome, Mapping)


@pytest.mark.parametrize(
    ("name", "purpose", "says"),
    [
        ("worker", "watch", r"its certificate \(worker\) is that of a worker, not of a standby"),
        ("server", "ask", r"its certificate \(server\) is that of a server, not of a worker"),
    ],
)
def test_a_role_that_the_certificate_does_not_name(
    network: GrpcNetwork, folder: Path, name: str, purpose: str, says: str
) -> None:
    shown, until = identity(folder, name), Until(LONG)
    questions: dict[str, Callable[[], object]] = {
        "ask": lambda: ask(network.place, shown, QUICK, until),
        "watch": lambda: watch(network.place, shown, QUICK, until, lambda _: None),
    }
    with pytest.raises(grpc.RpcError, match=says):
        questions[purpose]()
    assert refusal(network)


# Who does not trust whom.


def made_of(
    authority_of: Any, begin: timedelta, valid_for: timedelta = DAY, role: str | None = None
) -> Identity:
    certificate, key = authority_of.issue("x", role, (), valid_for, now() + begin)
    authority = pem_of(authority_of.certificate)
    return Identity(pem_of(certificate), key_pem(key), authority, by_name=True)


AUTHORITY = make_authority(30 * DAY, now() - 9 * DAY)
GOOD = made_of(AUTHORITY, -DAY, 3 * DAY)
EXPIRED = made_of(AUTHORITY, -3 * DAY)
LATER = made_of(AUTHORITY, 3 * DAY)
FOREIGN = made_of(make_authority(DAY, now()), timedelta(0))
WORKERS = made_of(AUTHORITY, -DAY, 3 * DAY, "worker")
ADDRESSES = replace(GOOD, by_name=False)


@pytest.mark.parametrize(
    ("server", "client", "says"),
    [
        (FOREIGN, GOOD, "cannot be trusted: its certificate is of another authority"),
        (EXPIRED, GOOD, "cannot be trusted: its certificate has expired by this machine's clock"),
        (LATER, GOOD, "cannot be trusted: its certificate is not valid yet by this machine's"),
        (WORKERS, GOOD, "cannot be trusted: its certificate is not for a server of this name"),
        (GOOD, ADDRESSES, "cannot be trusted: its certificate is not for a server of this name"),
        (GOOD, FOREIGN, "cannot be trusted: its certificate is of another authority"),
        (GOOD, EXPIRED, "does not accept this machine's certificate: .* its time is over"),
        (GOOD, LATER, "does not accept this machine's certificate: .* or has not begun"),
        (
            GOOD,
            replace(FOREIGN, authorities=GOOD.authorities),
            "does not accept this machine's certificate: to the server it is of another authority",
        ),
        (GOOD, None, "wants certificates; give --credentials"),
        (None, GOOD, "does not speak TLS; give --credentials on every machine or on none"),
    ],
    ids=[
        *("foreign-server", "expired-server", "server-of-later", "worker-as-server", "by-address"),
        *("foreign", "expired", "of-later", "not-trusted", "without-tls", "server-without-tls"),
    ],
)
@claim(
    "guarded",
    "Links between machines are encrypted (TLS), and no machine takes part without a certificate",
)
@claim("strangers", "No machine takes part without a certificate of the run's authority")
@claim("roles", "A worker's certificate cannot pass for the server's.")
@claim("flood", "without a certificate no call reaches mdgan")
def test_what_does_not_fit_is_told_at_once_and_nobody_is_let_in(
    server: Identity | None, client: Identity | None, says: str
) -> None:
    arguments: list[Mapping[str, Any]] = []

    def admit(hello: Mapping[str, Any]) -> Mapping[str, Any]:
        arguments.append(hello)
        return admit_all(hello)

    network = GrpcNetwork(identity=server, place="127.0.0.1:0", admit=admit)
    with pytest.raises(BadInput, match=says) as caught:
        ask_at(network.place, identity=client, seconds=FOR_EVER)
    assert str(caught.value).isprintable()
    assert arguments == []
    assert network.server.receive(SOON) is None
    network.close()


@claim("strangers", "No machine takes part without a certificate of the run's authority")
def test_no_host_hands_parcels_to_a_stranger(network: GrpcNetwork, folder: Path) -> None:
    join(network, folder, "worker", 1)
    event = expect(network.server, Joined)
    for stranger in (FOREIGN, replace(FOREIGN, authorities=network.identity.authorities), None):  # type: ignore[union-attr] # it has one
        channel = open_channel(event.hello["listens"], stranger, HOST_NAME, QUICK)
        with pytest.raises(grpc.FutureTimeoutError):
            grpc.channel_ready_future(channel).result(0.3)
        channel.close()


# Revoked.


@claim("revoked", "Revoking shuts one machine out")
def test_a_revoked_certificate_shuts_out_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "authority"
    make_folder_of_authority(folder, DAY)
    for name, role in (("server", "server"), ("lost", "worker"), ("other", "worker")):
        issue(folder, name, role, (), DAY)
    served = identity(folder, "server")
    revocations = Revocations(folder / "revoked.pem", served.authorities)
    network = GrpcNetwork(identity=served, revocations=revocations)
    lost, other = join(network, folder, "lost", 1), join(network, folder, "other", 2)
    listening(network, {1: lost, 2: other})
    revoke(folder, "lost")
    assert network.server.receive(LONG) == Lost(1, "its certificate (lost) was revoked")
    assert isinstance(lost.receive(LONG), Lost)
    echo(network, other, 2)
    with pytest.raises(BadInput, match=r"refused this host: its certificate \(lost\) was revoked"):
        join(network, folder, "lost", 1)
    assert refusal(network).endswith("127.0.0.1: its certificate (lost) was revoked")
    with pytest.raises(BadInput, match="was revoked"):
        ask_at(network.place, identity=identity(folder, "lost"), seconds=FOR_EVER)
    network.close()


# What a peer learns.


def health_of(place: str, shown: Identity | None, service: str = "") -> int:
    channel = open_channel(place, shown, SERVER_NAME, QUICK)
    try:
        stub = health_pb2_grpc.HealthStub(channel)
        question = health_pb2.HealthCheckRequest(service=service)
        return int(stub.Check(question, timeout=LONG).status)
    finally:
        channel.close()


def test_the_health_service_answers(network: GrpcNetwork, folder: Path) -> None:
    shown = identity(folder, "worker")
    assert health_of(network.place, shown) == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as caught:
        health_of(network.place, shown, "mdgan.Else")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_on_a_socket_in_a_private_folder_no_certificate_is_needed(
    folder: Path, tmp_path: Path
) -> None:
    places = [f"unix:{tmp_path}/server", "127.0.0.1:0"]
    shown = identity(folder, "server")
    allowed = access(shown)
    server = GrpcServerTransport(places, allowed, admit_all, accept_all, lambda _: {}, QUICK)
    assert ask_at(server.places[0]) == ask_at(server.places[1], identity=identity(folder, "worker"))
    with pytest.raises(BadInput, match="wants certificates"):
        ask_at(server.places[1], seconds=FOR_EVER)
    server.close()
