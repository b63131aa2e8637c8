"""Asking a server, and watching it."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from mdgan.transport.dial import ask_server, watch_server
from mdgan.transport.tcp_server import TcpServerTransport

from mdgan.errors import BadInput, Interrupted
from mdgan.transport.base import Refused
from tests.unit.transport.networks import (
    LONG,
    QUICK,
    SOON,
    TOKEN,
    TcpNetwork,
    accept_all,
    admit_all,
    in_threads,
    joined,
)
from tests.unit.transport.sockets import in_child

BRISK = replace(QUICK, liveness=2.0)
OTHER = replace(QUICK, liveness=QUICK.liveness + 1)


def tell(hello: Mapping[str, Any]) -> Mapping[str, Any] | str:
    """What a process that asks gets to know; one with another liveness is refused."""
    if hello["liveness"] == OTHER.liveness:
        return "you may not"
    return {"generation": 3, "settings": {"seed": 7}, "purpose": hello["purpose"]}


@pytest.fixture
def network() -> Iterator[TcpNetwork]:
    opened = TcpNetwork(admit=tell)
    yield opened
    opened.close()


def test_a_process_that_asks_is_answered_and_is_no_host(network: TcpNetwork) -> None:
    answer = ask_server([network.address], TOKEN, QUICK)
    assert answer["settings"] == {"seed": 7}
    assert answer["purpose"] == "ask"
    assert "peers_key" not in answer
    assert network.server.receive(SOON) is None


def test_a_process_that_asks_may_be_refused(network: TcpNetwork) -> None:
    with pytest.raises(BadInput, match="the server refused this host: you may not"):
        ask_server([network.address], TOKEN, OTHER)
    assert network.server.receive(LONG) == Refused("you may not")
    with pytest.raises(BadInput, match="wants a join token"):
        ask_server([network.address], b"", QUICK)


def watched(network: TcpNetwork) -> tuple[threading.Thread, list[str], threading.Event]:
    """A standby that has been welcomed, and what it finds in the end."""
    found: list[str] = []
    interrupted, is_welcome = threading.Event(), threading.Event()

    def watch() -> None:
        try:
            end = watch_server(
                [network.address], TOKEN, BRISK, interrupted, lambda _: is_welcome.set()
            )
            found.append(end)
        except Interrupted:
            found.append("interrupted")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    assert is_welcome.wait(LONG)
    return thread, found, interrupted


def test_a_watched_server_that_ends_says_so(network: TcpNetwork) -> None:
    hosts = joined(network, 1)
    thread, found, _ = watched(network)
    thread.join(1.5 * BRISK.liveness)  # pulses keep it calm
    assert found == []
    in_threads(network.server.close, hosts[1].close)
    thread.join(LONG)
    assert found == ["ended"]


def test_watching_ends_when_asked_and_the_server_goes_on(network: TcpNetwork) -> None:
    thread, found, interrupted = watched(network)
    interrupted.set()
    thread.join(LONG)
    assert found == ["interrupted"]
    joined(network, 1)


@pytest.mark.parametrize(
    ("number", "liveness_seconds"),
    # Who waits for so long in vain has not noticed the closed connection.
    [(signal.SIGKILL, 1e6), (signal.SIGSTOP, BRISK.liveness)],
)
def test_a_watched_server_that_dies_or_stands_still_is_lost(
    number: signal.Signals, liveness_seconds: float
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        TcpServerTransport(listener, TOKEN, admit_all, accept_all, QUICK)
        time.sleep(1000)

    with in_child(serve) as child:
        address = listener.getsockname()[:2]
        listener.close()

        def strike(_welcome: Mapping[str, Any]) -> None:
            os.kill(child, number)

        patience = replace(BRISK, liveness=liveness_seconds)
        assert watch_server([address], TOKEN, patience, None, strike) == "lost"


def test_there_is_nothing_to_watch() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = gone.getsockname()[:2]
    hasty = replace(QUICK, connect=0.2)
    with pytest.raises(BadInput, match="no server answers"):
        watch_server([address], TOKEN, hasty)
