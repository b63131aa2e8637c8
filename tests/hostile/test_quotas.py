"""A caller, with a certificate or without, that opens and asks as much as it can."""

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from grpc_health.v1.health_pb2 import HealthCheckRequest

from mdgan.credentials.files import issue, make_folder_of_authority, revoke
from mdgan.credentials.identity import Identity, read_credentials
from mdgan.credentials.permit import HOST_NAME, SERVER_NAME, permit_of
from mdgan.credentials.revocations import Revocations
from mdgan.engine.message_sizes import MessageSizes, from_host
from mdgan.messages import Kind, Message
from mdgan.transport.base import SLOWED, Joined, Lost, Received, Visited, Visitor
from mdgan.transport.links_pb2 import Nothing, Order, Welcome
from mdgan.transport.streams import ASK, CLOCK, FETCH, TAKE_PART, WATCH, open_channel
from tests.claims.registry import claim
from tests.processes import REPOSITORY, wait_until
from tests.unit.transport.networks import (
    LONG,
    QUICK,
    SOON,
    GrpcNetwork,
    ask_at,
    echo,
    expect,
    host_of,
    joined,
    refusal,
    word,
)

DAY = timedelta(days=1)
HEALTH = "/grpc.health.v1.Health/Check"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "authority"
    make_folder_of_authority(made, DAY)
    issue(made, "server", "server", (), DAY)
    for name, rank in (("good", 1), ("bad", 2)):
        issue(made, name, "worker", (rank,), DAY)
    issue(made, "spare", "standby", (), DAY)
    return made


def identity(folder: Path, name: str) -> Identity:
    return read_credentials(folder / f"{name}.cred")


@contextlib.contextmanager
def channel_of(shown: Identity, place: str, name: str = SERVER_NAME) -> Iterator[Any]:
    channel = open_channel(place, shown, name, QUICK)
    yield channel
    channel.close()


def code_of(call: Any) -> grpc.StatusCode:
    """How a call with one question ends."""
    try:
        list(call)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


METHODS = {
    ASK: Nothing(),
    WATCH: Nothing(),
    CLOCK: Nothing(),
    FETCH: Order(giver=1, iteration=1, taker=2),
    HEALTH: HealthCheckRequest(),
}


@pytest.mark.parametrize("method", [ASK, WATCH, CLOCK, FETCH, TAKE_PART, HEALTH])
@claim("callers", "8 calls of a kind at a time and 2 for each rank")
def test_calls_in_which_nothing_is_asked_keep_no_other_caller_out(
    folder: Path, method: str
) -> None:
    network = GrpcNetwork(identity=identity(folder, "server"))
    good = host_of(network, {"host": 1, "workers": [1]}, identity=identity(folder, "good"))
    assert isinstance(network.server.receive(LONG), Joined)
    ended = threading.Event()
    refused = threading.Semaphore(0)
    held = iter(ended.wait, True)  # no request ever comes

    def note(call: Any) -> None:
        if call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
            refused.release()

    with channel_of(identity(folder, "bad"), network.place) as channel:
        start = channel.stream_stream(method)
        calls = [start(held) for _ in range(60)]
        for call in calls:
            if not call.add_callback(partial(note, call)):
                note(call)  # it has ended already
        for _ in range(40):
            assert refused.acquire(timeout=LONG), "a certificate for one rank has so many calls"
        assert ask_at(network.place, identity=identity(folder, "good")) == {"generation": 1}
        echo(network, good, 1)
        for call in calls:
            call.cancel()
    ended.set()
    good.close()
    network.close()


@claim("callers", "and 20 a second")
def test_a_caller_asks_so_often_and_its_refusals_are_few_lines(folder: Path) -> None:
    network = GrpcNetwork(identity=identity(folder, "server"))
    with channel_of(identity(folder, "bad"), network.place) as channel:
        clock = channel.unary_stream(CLOCK, Nothing.SerializeToString)
        codes = list[grpc.StatusCode]()
        for _ in range(50):
            calls = [clock(Nothing(), timeout=LONG) for _ in range(4)]  # more at a time may not be
            codes += map(code_of, calls)
    assert grpc.StatusCode.RESOURCE_EXHAUSTED in codes
    lines = []
    while (event := network.server.receive(SOON)) is not None:
        assert isinstance(event, Visited)
        assert event.is_refused
        lines.append(event.told)
    assert 1 <= len(lines) <= 8, "the 1st, 2nd, 4th, 8th, … of 200"
    assert lines[0].startswith("certificate ")
    assert " at 127.0.0.1: its Clock calls come too often" in lines[0]
    assert lines[-1].endswith(" times so far)")
    network.close()


@pytest.mark.parametrize("method", METHODS)
def test_what_is_asked_is_short(method: str) -> None:
    network = GrpcNetwork()
    channel: Any = open_channel(network.place, None, "", QUICK)
    ask = channel.unary_stream(method, Welcome.SerializeToString)
    long = Welcome(fields='{"x":' + "[" * (1 << 19) + "]" * (1 << 19) + "}")
    assert code_of(ask(long, timeout=LONG)) is grpc.StatusCode.INTERNAL
    channel.close()
    network.close()


@pytest.mark.parametrize("method", METHODS)
@claim("revoked", "ends all calls of that machine within a second or so")
def test_a_revoked_certificate_gets_no_answer_at_all(folder: Path, method: str) -> None:
    served = identity(folder, "server")
    revocations = Revocations(folder / "revoked.pem", served.authorities)
    network = GrpcNetwork(identity=served, revocations=revocations)
    with channel_of(identity(folder, "spare"), network.place) as channel:
        watching = channel.unary_stream(WATCH, Nothing.SerializeToString)(Nothing())
        next(watching)
        revoke(folder, "spare")
        ask = channel.unary_stream(method, lambda message: message.SerializeToString())
        code = code_of(ask(METHODS[method], timeout=LONG))
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert "was revoked" in refusal(network)
        while watching.is_active():
            network.server.receive(SOON)
    network.close()


@claim("revoked", "Give --revoked to mdgan join, too")
def test_a_host_hands_nothing_out_to_a_revoked_certificate(folder: Path) -> None:
    network = GrpcNetwork(identity=identity(folder, "server"))
    shown = identity(folder, "good")
    revoked = Revocations(folder / "revoked.pem", shown.authorities)
    host = host_of(network, {"host": 1}, identity=shown, revocations=revoked)
    place = expect(network.server, Joined).hello["listens"]
    revoke(folder, "bad")
    with channel_of(identity(folder, "bad"), place, HOST_NAME) as channel:
        fetch = channel.unary_stream(FETCH, Order.SerializeToString)
        code = code_of(fetch(Order(giver=1, iteration=1, taker=2), timeout=LONG))
    assert code is grpc.StatusCode.PERMISSION_DENIED
    host.close()
    network.close()


@pytest.mark.parametrize("kind", [Kind.REAL, Kind.CHECKPOINTED, Kind.COUNTS, "FEEDBACK"])
def test_answers_that_no_host_was_asked_for_end_the_link(kind: str) -> None:
    sizes = MessageSizes(1 << 20, lambda _: {"FEEDBACK": 1 << 20}, lambda _: {})
    network = GrpcNetwork(accepts_from=lambda _: from_host(sizes, 1))
    hosts = joined(network, 1, 2)
    network.server.send(2, Message("BATCHES", 1))
    for iteration in range(3):
        hosts[1].send(Message(kind, iteration, {}, {"sums": torch.zeros(9)}))
    lost = expect(network.server, Lost)
    assert (lost.peer, lost.lied) == (1, True)
    assert f"{kind} messages come too often, or unasked" in lost.reason
    hosts[2].send(Message("FEEDBACK", 1))
    assert isinstance(network.server.receive(LONG), Received)
    network.close()


def test_whose_messages_are_not_read_for_long_is_said_with_its_certificate(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdgan.transport.server_end._OF_AN_OWNER_BYTES", 1 << 16)
    monkeypatch.setattr("mdgan.transport.grpc_server.SLOW_SECONDS", SOON)
    network = GrpcNetwork(identity=identity(folder, "server"))
    shown = identity(folder, "bad")
    host = host_of(network, {"host": 2, "workers": [2]}, identity=shown)
    expect(network.server, Joined)
    for iteration in range(2):
        host.send(word(iteration, size=1 << 16))
    inbox = network.server._inbox._queue  # what waits is not public
    wait_until(lambda: inbox.qsize() == 2, "one message, and the line")
    expect(network.server, Received)
    slowed = expect(network.server, Visited)
    fingerprint = permit_of(shown.certificate).fingerprint
    assert slowed.visitor == Visitor(SLOWED, fingerprint, "127.0.0.1")
    assert slowed.told.startswith(
        f"certificate bad ({fingerprint[:12]}) at 127.0.0.1: the server reads no more of it"
    )
    host.close()
    network.close()


SERVER = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (600, 600))
from tests.unit.transport.networks import GrpcNetwork
network = GrpcNetwork(place="127.0.0.1:0")
print(network.place, flush=True)
sys.stdin.readline()
kept = [open(__import__("os").devnull) for _ in range(200)]
print("opened", len(kept), flush=True)
"""


def test_silent_connections_leave_files_to_open() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], cwd=REPOSITORY, text=True, stdin=pipe, stdout=pipe
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        address, _, port = server.stdout.readline().strip().rpartition(":")
        with contextlib.ExitStack() as strangers:
            for _ in range(700):
                stranger = socket.create_connection((address, int(port)), LONG)
                strangers.enter_context(stranger)
            server.stdin.write("open\n")
            server.stdin.flush()
            assert server.stdout.readline() == "opened 200\n"
        server.kill()
