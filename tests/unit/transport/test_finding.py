"""How a process finds its server, asks it questions and watches it."""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from mdgan.errors import BadInput, Interrupted
from mdgan.transport.base import Joined, Later, Visited
from mdgan.transport.find import check_generation, find_server
from mdgan.transport.streams import Threads
from mdgan.transport.until import Until
from mdgan.transport.visit import ask, watch
from tests.unit.transport.networks import (
    LONG,
    QUICK,
    SOON,
    GrpcNetwork,
    ask_at,
    host_of,
    in_threads,
    joined,
)
from tests.unit.transport.peers import Peer, peer

SHORT = 1.5
"""Seconds of a search that finds no server; each place answers in this time on any machine."""


@pytest.fixture
def deserted() -> str:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        return "127.0.0.1:{1}".format(*gone.getsockname())


def test_a_host_that_is_refused_at_one_place_finds_the_other(
    network: GrpcNetwork, deserted: str
) -> None:
    other = GrpcNetwork(admit=lambda _: "not here")
    host = host_of(network, places=[deserted, other.place, network.place])
    assert isinstance(network.server.receive(LONG), Joined)
    in_threads(host.close, other.close)


def test_nobody_there(tmp_path: Path, deserted: str) -> None:
    for place in (deserted, f"unix:{tmp_path}/nothing"):
        with pytest.raises(BadInput, match=r"no server answers at .* after 1 s; start rank 0"):
            ask_at(place, seconds=1.0)


def test_an_older_server_is_left_alone() -> None:
    older, newer = (
        GrpcNetwork(admit=lambda _: {"generation": 2}),
        GrpcNetwork(admit=lambda _: {"generation": 3}),
    )

    def attempt(place: str, until: Until) -> str:
        check_generation(ask(place, None, QUICK, until), 3, place)
        return place

    def find(*places: str) -> str:
        return find_server(places, attempt, Until(SHORT), SHORT, has_identity=False)

    with pytest.raises(BadInput, match="older one, of generation 2; this host has seen gen"):
        find(older.place)
    assert find(older.place, newer.place) == newer.place
    in_threads(older.close, newer.close)


def test_a_server_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    place, opened = f"unix:{tmp_path}/server", list[GrpcNetwork]()

    def serve() -> None:
        time.sleep(0.3)  # the search has failed several times by then
        opened.append(GrpcNetwork(place=place))

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    assert ask_at(place) == {"generation": 1}
    serving.join(LONG)
    opened[0].close()


def listener(answer: bytes, *, closes: bool) -> tuple[socket.socket, str]:
    """Something else that listens, answers every connection, and may close it."""
    listening = socket.create_server(("127.0.0.1", 0))

    def talk(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(1 << 16)
                connection.sendall(answer)
                while not closes and connection.recv(1 << 16):
                    pass
            except OSError:
                return

    def serve() -> None:
        while True:
            try:
                connection = listening.accept()[0]
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return listening, "127.0.0.1:{1}".format(*listening.getsockname())


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-OpenSSH_9.6\r\n" * 3, b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n"],
    ids=["ssh", "http"],
)
def test_another_program_is_named_at_once(answer: bytes) -> None:
    other, place = listener(answer, closes=False)
    with other, pytest.raises(BadInput, match=f"listens at {place} is no mdgan server"):
        ask_at(place, seconds=1e6)


def test_another_program_with_grpc_is_named_at_once() -> None:
    other = grpc.server(Threads())
    place = f"127.0.0.1:{other.add_insecure_port('127.0.0.1:0')}"
    other.start()
    with pytest.raises(BadInput, match=f"listens at {place} is no mdgan server of this version"):
        ask_at(place, seconds=1e6)
    other.stop(0).wait()


@pytest.mark.parametrize(
    ("closes", "says"),
    [  # what closes connections may be a tunnel to a server that comes later
        (True, "whatever listens at .* closes the connection"),
        (False, "did not answer in time"),
    ],
)
def test_who_does_not_answer_is_waited_for_as_long_as_wished(closes: bool, says: str) -> None:
    other, place = listener(b"", closes=closes)
    with other, pytest.raises(BadInput, match=says):
        ask_at(place, seconds=SHORT)


def test_looking_for_a_server_ends_when_asked(network: GrpcNetwork, deserted: str) -> None:
    other, silent = listener(b"", closes=False)
    looks: list[Callable[[threading.Event], Any]] = [
        lambda asked: ask_at(silent, interrupted=asked),
        lambda asked: ask_at(deserted, interrupted=asked),
        lambda asked: host_of(network, places=[silent], interrupted=asked),
    ]
    with other:
        for look in looks:
            interrupted = threading.Event()
            threading.Timer(0.2, interrupted.set).start()
            with pytest.raises(Interrupted):
                look(interrupted)


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(BadInput, match=r"--master-addr no-such-host\.invalid: unknown host"):
        ask_at("no-such-host.invalid:29500", seconds=SHORT)


def test_no_host_comes_in_after_the_end(network: GrpcNetwork) -> None:
    network.server.close()
    with pytest.raises(BadInput, match=r"no server answers at|is it still running"):
        host_of(network, seconds=QUICK.farewell / 10)


BRISK = replace(QUICK, liveness=1.5)


def tell(hello: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"generation": 3, "settings": {"seed": 7}, "purpose": hello["purpose"]}


@pytest.fixture
def opened_with() -> Mapping[str, Any]:
    return {"admit": tell}


def test_a_process_that_asks_is_answered_and_is_no_host(network: GrpcNetwork) -> None:
    assert ask_at(network.place) == {"generation": 3, "settings": {"seed": 7}, "purpose": "ask"}
    assert network.server.receive(LONG) == Visited("answered", False)
    assert network.server.receive(SOON) is None


def test_a_process_that_asks_may_be_refused() -> None:
    network = GrpcNetwork(admit=lambda _: "you may not")
    with pytest.raises(BadInput, match="the server refused this host: you may not"):
        ask_at(network.place)
    assert network.server.receive(LONG) == Visited("you may not", True)
    network.close()


def test_who_may_come_later_tries_again_until_then() -> None:
    answers: list[Mapping[str, Any] | str] = [Later("it may come back in 1 s"), {"generation": 1}]
    network = GrpcNetwork(admit=lambda _: answers.pop(0))
    assert ask_at(network.place) == {"generation": 1}
    assert network.server.receive(LONG) == Visited("it may come back in 1 s", True)
    network.close()


def test_the_key_of_parcels_is_for_hosts_alone(network: GrpcNetwork) -> None:
    host = network.join(1, {})
    assert host.welcome == {"generation": 3, "settings": {"seed": 7}, "purpose": "join"}


class Standby:
    """Watches in a thread until it finds something."""

    def __init__(self, place: str) -> None:
        self.found: list[str] = []
        self.interrupted = threading.Event()
        self._welcome = threading.Event()
        self.thread = threading.Thread(target=self._watch, args=(place,), daemon=True)
        self.thread.start()
        assert self._welcome.wait(LONG)

    def _watch(self, place: str) -> None:
        until = Until(LONG, self.interrupted)
        try:
            self.found.append(watch(place, None, BRISK, until, lambda _: self._welcome.set()))
        except Interrupted:
            self.found.append("interrupted")

    def finds(self) -> list[str]:
        self.thread.join(LONG)
        return self.found


def test_a_watched_server_that_ends_says_so(network: GrpcNetwork) -> None:
    standby = Standby(network.place)
    standby.thread.join(1.2 * BRISK.liveness)  # it is silent, but there
    assert standby.found == []
    network.server.close()
    assert standby.finds() == ["ended"]


def test_watching_ends_when_asked_and_the_server_goes_on(network: GrpcNetwork) -> None:
    standby = Standby(network.place)
    standby.interrupted.set()
    assert standby.finds() == ["interrupted"]
    joined(network, 1)


@pytest.mark.parametrize("strike", [Peer.kill, Peer.halt])
def test_a_watched_server_that_dies_or_stands_still_is_lost(strike: Callable[[Peer], None]) -> None:
    with peer("server") as child:
        standby = Standby(child.place)
        strike(child)
        assert standby.finds() == ["lost"]
