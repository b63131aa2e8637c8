"""What hostile hosts do beside: calls and connections of their own.

gRPC does not survive forks, so each function imports it when it is called.
"""

import contextlib
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.hostile_hosts.acts import CHANGES, TIMEOUTS, Act, Place, Raid
from mdgan.credentials.permit import HOST_NAME, SERVER_NAME
from mdgan.messages import Kind, Message, ready

IDLE = 300
"""Connections that a host holds and does not use."""
SECONDS = 5.0


@contextlib.contextmanager
def channel_to(place: str, own: Place, name: str = SERVER_NAME) -> Iterator[Any]:
    """A channel that shows the host's certificate."""
    from mdgan.transport.streams import open_channel

    channel = open_channel(place, own.identity, name, TIMEOUTS)
    try:
        yield channel
    finally:
        channel.close()


def join(own: Place, **said: Any) -> None:
    """Says a hello, in which some fields are wrong, and waits for what becomes of it."""
    from mdgan.transport.frames import encode
    from mdgan.transport.streams import TAKE_PART

    hello = {**own.hello, "purpose": "join", "listens": None, **said}
    with channel_to(own.server, own) as channel:
        sent = iter(encode(Message(Kind.HELLO, 0, hello)).pieces)
        for _ in channel.stream_stream(TAKE_PART)(sent, timeout=SECONDS):
            break


def long_hellos(own: Place, _state: Mapping[str, Any]) -> None:
    """64 MiB of hello, and a question of 1 MiB."""
    from mdgan.transport.streams import WATCH

    with channel_to(own.server, own) as channel:
        for _ in channel.unary_stream(WATCH)(bytes(1 << 20), timeout=SECONDS):
            pass
    join(own, key="x" * (1 << 26))


def idle_connections(own: Place, state: dict[str, Any]) -> None:
    """Holds connections that say nothing; opens new ones for those that were closed."""
    address, _, port = own.server.rpartition(":")
    held: list[socket.socket] = state.setdefault("held", [])
    for link in list(held):
        with contextlib.suppress(BlockingIOError):
            if not link.recv(1, socket.MSG_DONTWAIT):
                held.remove(link)
                link.close()
    while len(held) < IDLE:
        held.append(socket.create_connection((address, int(port)), SECONDS))


def many_classes(own: Place, _state: Mapping[str, Any]) -> None:
    """A hello with 330,000 class counts."""
    join(own, class_counts={str(own.rank): [0] * 330_000})


def questions(own: Place, _state: Mapping[str, Any]) -> None:
    """Asks what a standby, a newcomer and a host may ask, a hundred times each."""
    from mdgan.transport.links_pb2 import Nothing
    from mdgan.transport.streams import ASK, CLOCK, WATCH

    nothing = Nothing().SerializeToString()
    with channel_to(own.server, own) as channel:
        for method in (ASK, CLOCK, WATCH):
            calls = [channel.unary_stream(method)(nothing, timeout=1.0) for _ in range(100)]
            for call in calls:
                with contextlib.suppress(Exception):
                    next(call)
                call.cancel()


def others_ranks(own: Place, _state: Mapping[str, Any]) -> None:
    """Claims the rank of an honest host, which its certificate does not name; then its own, too."""
    rank = secrets.choice(own.honest)
    for workers in ([rank], [own.rank, rank]):
        counts = {str(worker): [1] * 10 for worker in workers}
        samples = dict.fromkeys(counts, 10)
        with contextlib.suppress(Exception):
            join(own, host=workers[0], workers=workers, num_samples=samples, class_counts=counts)


def replays(own: Place, _state: Mapping[str, Any]) -> None:
    """Says its own hello again, while its link is there."""
    join(own)


def foreign_parcels(own: Place, _state: Mapping[str, Any]) -> None:
    """Fetches what others have laid out for others, at the server and at each host."""
    from mdgan.transport.links_pb2 import Order
    from mdgan.transport.streams import FETCH

    for giver, place in [*own.hosts.items(), (secrets.choice(own.honest), own.server)]:
        at, name = (own.server, SERVER_NAME) if ":" not in place else (place, HOST_NAME)
        with channel_to(at, own, name if at != own.server else SERVER_NAME) as channel:
            for taker in (own.rank, *own.honest):
                order = Order(
                    giver=giver,
                    iteration=own.iteration,
                    taker=taker,
                    ticket=secrets.token_hex(16),
                )
                fetch = channel.unary_stream(FETCH)(order.SerializeToString(), timeout=0.2)
                with contextlib.suppress(Exception):
                    next(fetch)
                fetch.cancel()


def reads_nothing(own: Place, _state: Mapping[str, Any]) -> None:
    """Comes in once more, and takes nothing in of what it is sent."""
    from mdgan.transport.frames import encode
    from mdgan.transport.streams import TAKE_PART

    over = threading.Event()

    def sent() -> Iterator[bytes]:
        hello = {**own.hello, "purpose": "join", "listens": None}
        yield from encode(Message(Kind.HELLO, 0, hello)).pieces
        over.wait(1.0)
        yield from encode(ready(own.iteration, [own.rank])).pieces
        over.wait(600.0)

    with channel_to(own.server, own) as channel:
        call = channel.stream_stream(TAKE_PART)(sent())
        call.add_done_callback(lambda _: over.set())
        over.wait(600.0)


RAIDS: Mapping[str, Act] = {
    "hellos of 64 MiB": Raid(long_hellos, 0.5),
    "idle connections": Raid(idle_connections, 0.5),
    "330,000 class counts": Raid(many_classes, 0.5),
    "floods of questions": Raid(questions, 0.1),
    "claims ranks of others": Raid(others_ranks, 0.5),
    "its own hello again": Raid(replays, 0.5),
    "fetches parcels of others": Raid(foreign_parcels, 0.1),
    "takes nothing in": Raid(reads_nothing, 1.0),
}
"""By what they do."""
ACTS: Mapping[str, Act] = {**CHANGES, **RAIDS}
"""All."""
