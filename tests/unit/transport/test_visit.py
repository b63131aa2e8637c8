"""Asking a server, and watching it."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from mdgan.errors import BadInput, Interrupted
from mdgan.transport.base import Refused
from mdgan.transport.until import Until
from mdgan.transport.visit import watch
from tests.unit.transport.networks import LONG, QUICK, SOON, GrpcNetwork, ask_at, joined
from tests.unit.transport.peers import Peer, peer

BRISK = replace(QUICK, liveness=2.0)


def tell(hello: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"generation": 3, "settings": {"seed": 7}, "purpose": hello["purpose"]}


@pytest.fixture
def opened_with() -> Mapping[str, Any]:
    return {"admit": tell}


def test_a_process_that_asks_is_answered_and_is_no_host(network: GrpcNetwork) -> None:
    assert ask_at(network.place) == {"generation": 3, "settings": {"seed": 7}, "purpose": "ask"}
    assert network.server.receive(SOON) is None


def test_a_process_that_asks_may_be_refused() -> None:
    network = GrpcNetwork(admit=lambda _: "you may not")
    with pytest.raises(BadInput, match="the server refused this host: you may not"):
        ask_at(network.place)
    assert network.server.receive(LONG) == Refused("you may not")
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
