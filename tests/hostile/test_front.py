"""What the process in front of a port keeps away from the server or host behind it."""

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import psutil
import pytest

from mdgan.credentials.files import issue, make_folder_of_authority, revoke
from mdgan.credentials.identity import Identity, read_credentials
from mdgan.credentials.permit import HOST_NAME, SERVER_NAME
from mdgan.credentials.revocations import Revocations
from mdgan.transport import front_process
from mdgan.transport.base import Joined
from mdgan.transport.streams import FETCH, open_channel
from tests.claims.registry import claim
from tests.hostile.flooding import CALLERS, client_hello, context_of, frame, headers
from tests.processes import REPOSITORY, wait_until
from tests.unit.transport.networks import (
    LONG,
    QUICK,
    GrpcNetwork,
    ask_at,
    credentials,
    echo,
    expect,
    host_of,
    refusal,
)

UNKNOWN = "/mdgan.Server/Nothing"
BEGIN = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)
CALLS = 400
"""More than any caller is refused on one connection."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "authority"
    make_folder_of_authority(made, timedelta(days=1))
    issue(made, "server", "server", (), timedelta(days=1))
    for name, rank in (("good", 1), ("bad", 2)):
        issue(made, name, "worker", (rank,), timedelta(days=1))
    return made


@contextmanager
def staged(folder: Path, *, at_host: bool) -> Iterator[tuple[GrpcNetwork, Any, str]]:
    """A server, a host, and where the caller calls: at the one or at the other."""
    served, good = (read_credentials(folder / f"{name}.cred") for name in ("server", "good"))
    revoked = Revocations(folder / "revoked.pem", served.authorities)
    network = GrpcNetwork(identity=served, revocations=revoked)
    host = host_of(network, {"host": 1, "workers": [1]}, identity=good, revocations=revoked)
    place = str(expect(network.server, Joined).hello["listens"])
    yield network, host, place if at_host else network.place
    host.close()
    network.close()


def fronts(before: Sequence[psutil.Process] = ()) -> list[psutil.Process]:
    """Those of this process that live, but for some of before."""
    results = []
    for child in set(psutil.Process().children()).difference(before):
        with suppress(psutil.Error):  # it is gone
            if "front_process" in " ".join(child.cmdline()):
                results.append(child)
    return results


def codes_of(shown: Identity, place: str, name: str, method: str) -> list[grpc.StatusCode]:
    """How many calls end, one after the other, over one connection that is not opened again."""
    channel: Any = open_channel(place, shown, name, QUICK)
    codes = []
    for _ in range(CALLS):
        try:
            channel.unary_unary(method)(b"", timeout=LONG)
        except grpc.RpcError as error:
            codes.append(error.code())
        if codes[-1] is grpc.StatusCode.UNAVAILABLE:
            break
    channel.close()
    return codes


@pytest.mark.parametrize("at_host", [False, True], ids=["server", "host"])
def test_calls_that_nobody_knows_are_counted_and_told_and_end(
    folder: Path, caplog: pytest.LogCaptureFixture, at_host: bool
) -> None:
    with staged(folder, at_host=at_host) as (network, host, place):
        name = HOST_NAME if at_host else SERVER_NAME
        codes = codes_of(read_credentials(folder / "bad.cred"), place, name, UNKNOWN)
        assert codes[0] is grpc.StatusCode.UNIMPLEMENTED
        assert codes[-1] is grpc.StatusCode.UNAVAILABLE
        said = caplog.text if at_host else refusal(network)
        assert "it calls a method that this server does not have" in said
        echo(network, host, 1)


@pytest.mark.parametrize("at_host", [False, True], ids=["server", "host"])
@pytest.mark.parametrize("path", [UNKNOWN, FETCH])
def test_the_connection_of_a_revoked_certificate_ends(
    folder: Path, at_host: bool, path: str
) -> None:
    revoke(folder, "bad")
    with staged(folder, at_host=at_host) as (network, host, place):
        address, _, port = place.rpartition(":")
        bare = socket.create_connection((address, int(port)), LONG)
        with context_of(str(folder / "bad.cred")).wrap_socket(bare) as link:
            link.sendall(BEGIN)
            made = 0
            with suppress(ConnectionError, ssl.SSLError):
                for made in range(CALLS):
                    link.sendall(frame(1, 5, 2 * made + 1, headers(path)))
                    if not link.recv(1 << 16):
                        break
            assert made < CALLS - 1
        echo(network, host, 1)


@claim("flood", "A port takes 256 of their connections, for 5 s each.")
def test_few_connections_without_a_certificate_reach_the_server() -> None:
    others, network = fronts(), GrpcNetwork(identity=credentials())
    address, _, port = network.place.rpartition(":")
    me, (front,) = psutil.Process(), fronts(others)
    before = me.num_fds()
    with ExitStack() as strangers:
        for number in range(600):
            own = (f"127.0.1.{number % 100 + 1}", 0)
            stranger = socket.create_connection((address, int(port)), LONG, own)
            strangers.enter_context(stranger).sendall(client_hello()[: 9 if number % 2 else None])
        assert ask_at(network.place, identity=credentials()) == {"generation": 1}
        assert me.num_fds() - before - 600 < 150
        assert front.num_fds() < 256 + 64 + 50
    network.close()


def test_many_addresses_do_not_make_one_forgotten_that_was_let_in() -> None:
    async def flood() -> bool:
        with socket.socket() as listening:
            front = front_process.FrontProcess(listening)
            known, *strangers = (cast("Any", SimpleNamespace(site=n)) for n in range(5000))
            front._address(known).is_known = True
            for stranger in strangers:
                front._address(stranger)
            assert len(front._addresses) < len(strangers)
            return front._address(known).is_known

    assert asyncio.run(flood())


def test_the_front_is_started_again() -> None:
    others, network = fronts(), GrpcNetwork(identity=credentials())
    (first,) = fronts(others)
    first.send_signal(signal.SIGKILL)
    wait_until(lambda: fronts(others) not in ([], [first]), "a new one")
    assert ask_at(network.place, identity=credentials()) == {"generation": 1}
    (second,) = fronts(others)
    folder = Path(second.cwd())
    network.close()
    wait_until(lambda: not (fronts(others) or folder.exists()), "it is gone, and its folder")


SERVER = """
import os, sys
from tests.unit.transport.networks import GrpcNetwork, credentials
from mdgan.credentials.identity import read_credentials
from pathlib import Path
network = GrpcNetwork(identity=read_credentials(Path(sys.argv[1])))
print(network.place.rpartition(":")[2], flush=True)
while True:
    network.server.receive(1.0)
"""


@contextmanager
def server(credentials: Path) -> Iterator[tuple[psutil.Popen, str]]:
    """A process with a port."""
    command = [sys.executable, "-c", SERVER, str(credentials)]
    with psutil.Popen(command, cwd=REPOSITORY, text=True, stdout=subprocess.PIPE) as process:
        yield process, process.stdout.readline().strip()
        process.kill()


def test_no_front_is_left_behind(folder: Path) -> None:
    with server(folder / "server.cred") as (process, port):
        (front,) = process.children()
        process.send_signal(signal.SIGKILL)
        wait_until(lambda: not front.is_running(), "the front is gone")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(port)), LONG)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CALLERS)
def test_a_caller_cannot_fill_memory(folder: Path, kind: str) -> None:
    with server(folder / "server.cred") as (process, port):
        before = process.memory_info().rss
        most = 0
        flood = [sys.executable, "-m", "tests.hostile.flooding", kind, port, "15"]
        flood += [str(folder / "bad.cred"), "32"]
        with subprocess.Popen(flood, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as end:
            while end.poll() is None:
                most = max(most, process.memory_info().rss)
                os.sched_yield()
            assert end.stdout is not None
            record = json.loads(end.stdout.read())
        print(f"\n{record}: {(most - before) / 1e6:+.0f} MB")
        assert record[kind] > 100
        assert most - before < 1 << 28
