import math
import queue
import threading
from typing import cast

import pytest
from mdgan.transport.link import Link, LinkBroken

from mdgan import messages
from mdgan.messages import Kind, Message
from mdgan.transport import clock
from mdgan.transport.until import Until


def limit() -> Until:
    return Until(10)


AHEAD = 5000.0


class Clock:
    """Stands in for the module `time`: it moves only while messages are on their journey."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(clock, "time", made)
    return made


class QueueLink:
    """One end of a link made of queues, which may take its time."""

    def __init__(
        self, put: "queue.Queue[Message]", get: "queue.Queue[Message]", time: Clock
    ) -> None:
        self._time = time
        self._put = put
        self._get = get
        self.delays_seconds: list[float] = []
        self.asked = 0

    def send(self, message: Message) -> int:
        if self.delays_seconds:
            self._time.now += self.delays_seconds.pop(0)
        self._put.put(message)
        return 0

    def receive(self, until: Until) -> tuple[Message, int]:
        message = self._get.get(timeout=until.left())
        self.asked += 1
        return message, 0


@pytest.fixture
def pair(time: Clock) -> tuple[QueueLink, QueueLink]:
    """The host's end, and the server's."""
    there: queue.Queue[Message] = queue.Queue()
    back: queue.Queue[Message] = queue.Queue()
    return QueueLink(there, back, time), QueueLink(back, there, time)


Pair = tuple[QueueLink, QueueLink]


def offset(host: QueueLink, server: QueueLink) -> float:
    """What a host finds out about a server whose clock is `AHEAD` seconds ahead."""

    class Ahead(QueueLink):
        def send(self, message: Message) -> int:
            return server.send(messages.clock(message.fields["now"] + AHEAD))

        def receive(self, until: Until) -> tuple[Message, int]:
            return server.receive(until)

    shifted = cast(Link, Ahead(queue.Queue(), queue.Queue(), Clock()))
    thread = threading.Thread(target=clock.tell_clock, args=(shifted, limit()))
    thread.start()
    found = clock.ask_clock(cast(Link, host), limit())
    thread.join(10)
    assert not thread.is_alive(), "both sides must agree on the number of questions"
    return found


def test_the_offset_is_found(pair: Pair) -> None:
    host, server = pair
    host.delays_seconds, server.delays_seconds = [0.1] * 5, [0.1] * 5
    assert offset(host, server) == pytest.approx(AHEAD)


def test_slow_answers_do_not_spoil_it_while_one_is_quick(pair: Pair) -> None:
    host, server = pair
    server.delays_seconds = [0.1, 0.2, 0.0, 0.1, 0.2]
    assert offset(host, server) == pytest.approx(AHEAD)


def test_a_lopsided_journey_costs_half_of_it(pair: Pair) -> None:
    host, server = pair
    server.delays_seconds = [0.1] * 5
    assert offset(host, server) == pytest.approx(AHEAD - 0.05)


@pytest.mark.parametrize("now", [None, "soon", True, 3, math.nan, math.inf])
def test_a_server_that_does_not_tell_its_time(pair: Pair, now: object) -> None:
    host, server = pair
    server.send(Message(Kind.CLOCK, 0, {"now": now}))
    with pytest.raises(LinkBroken, match="time"):
        clock.ask_clock(cast(Link, host), limit())
