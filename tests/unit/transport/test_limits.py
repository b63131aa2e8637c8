"""How often messages may come, and how much memory they may take before they are looked at."""

import threading
import tracemalloc
from typing import Any

import pytest
import torch

from mdgan.messages import Kind, Message
from mdgan.transport import frames
from mdgan.transport.base import Lost, Received
from mdgan.transport.frames import MOST_IN_A_ROW, Frame, Most, Rates, decode, encode
from mdgan.transport.server_end import ServerTransport
from tests.unit.transport.networks import ACCEPTS, LONG, SOON, GrpcNetwork, echo, joined


class Clock:
    """One that goes only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_who_tells_once_a_second_is_heard_for_ever_and_after_any_stall() -> None:
    clock = Clock()
    rates = Rates({"SPANS": Most(1, 1, a_second=2.0)}, clock)
    for _ in range(5000):
        clock.now += 1
        assert rates.allows("SPANS")
    clock.now += 500
    assert all(rates.allows("SPANS") for _ in range(500))


def test_who_tells_all_the_time_is_not() -> None:
    rates = Rates({"SPANS": Most(1, 1, a_second=2.0), "FEEDBACK": Most(1, 1)}, Clock())
    assert all(rates.allows("SPANS") for _ in range(MOST_IN_A_ROW))
    assert not rates.allows("SPANS")
    assert all(rates.allows("FEEDBACK") for _ in range(2 * MOST_IN_A_ROW))


def test_a_flood_of_spans_ends_the_link_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MOST_IN_A_ROW", 5)
    accepts = {**ACCEPTS, Kind.SPANS: Most(1 << 20, 1 << 20, a_second=0.001)}
    network = GrpcNetwork(accepts_from=lambda _: accepts)
    hosts = joined(network, 1, 2)
    for iteration in range(7):
        hosts[2].send(Message(Kind.SPANS, iteration))
    events = [network.server.receive(LONG) for _ in range(6)]
    assert all(isinstance(event, Received) for event in events[:5])
    assert isinstance(events[5], Lost)
    assert "SPANS messages come too often" in events[5].reason
    echo(network, hosts[1], 1)
    network.close()


NASTY: dict[str, Message] = {
    "lists": Message("SWAP", 1, {"x": [[]] * 20_000}),
    "lists in lists": Message("SWAP", 1, {"x": [[[]]] * 20_000}),
    "objects": Message("SWAP", 1, {"x": [{"": []}] * 20_000}),
    "tensors": Message("SWAP", 1, {}, {f"{n:x}": torch.empty(0) for n in range(2000)}),
}


@pytest.mark.parametrize("name", NASTY)
def test_a_message_takes_no_more_memory_than_is_counted_for_it(name: str) -> None:
    frame = encode(NASTY[name])
    decode(frame)
    tracemalloc.start()
    held = decode(frame)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held.kind == "SWAP"
    assert 10 * len(frame.body) < most < frame.held_bytes


class Way:
    """To a host that takes nothing in."""

    def put(self, frame: Frame) -> bool:
        return True

    def end(self) -> None:
        pass

    def cut(self) -> None:
        pass


def test_json_that_waits_counts_as_what_it_takes_in_memory() -> None:
    server = ServerTransport(lambda _: {})
    guest = server.let_in(1, {}, Way())
    frame = encode(NASTY["lists"])
    server.take_in(guest, frame)
    there_is_room = threading.Event()
    most: Any = 20 * len(frame.body)

    def wait() -> None:
        guest.await_room(most)
        there_is_room.set()

    threading.Thread(target=wait, daemon=True).start()
    assert not there_is_room.wait(SOON)
    while not isinstance(server.receive(LONG), Received):
        pass
    assert there_is_room.wait(LONG)
