"""Attacks beside honest answers: further calls and connections of a hostile host.

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
"""Connections that a host opens and does not use."""
SECONDS = 5.0


@contextlib.contextmanager
def channel_to(place: str, knowledge: Place, name: str = SERVER_NAME) -> Iterator[Any]:
    """A channel that shows the host's certificate."""
    from mdgan.transport.streams import open_channel

    channel = open_channel(place, knowledge.identity, name, TIMEOUTS)
    try:
        yield channel
    finally:
        channel.close()


def join(knowledge: Place, **fields: Any) -> None:
    """Sends a hello with some wrong fields, and waits for the server's first answer."""
    from mdgan.transport.frames import encode
    from mdgan.transport.streams import TAKE_PART

    hello = {**knowledge.hello, "purpose": "join", "listens": None, **fields}
    with channel_to(knowledge.server, knowledge) as channel:
        sent = iter(encode(Message(Kind.HELLO, 0, hello)).pieces)
        for _ in channel.stream_stream(TAKE_PART)(sent, timeout=SECONDS):
            break


def long_hellos(knowledge: Place, _state: Mapping[str, Any]) -> None:
    """Sends a question of 1 MiB and a hello of 64 MiB."""
    from mdgan.transport.streams import WATCH

    with channel_to(knowledge.server, knowledge) as channel:
        for _ in channel.unary_stream(WATCH)(bytes(1 << 20), timeout=SECONDS):
            pass
    join(knowledge, key="x" * (1 << 26))


def idle_connections(knowledge: Place, state: dict[str, Any]) -> None:
    """Keeps silent connections open, and replaces those that the server closes."""
    address, _, port = knowledge.server.rpartition(":")
    held: list[socket.socket] = state.setdefault("held", [])
    for link in list(held):
        with contextlib.suppress(BlockingIOError):
            if not link.recv(1, socket.MSG_DONTWAIT):
                held.remove(link)
                link.close()
    while len(held) < IDLE:
        held.append(socket.create_connection((address, int(port)), SECONDS))


def many_classes(knowledge: Place, _state: Mapping[str, Any]) -> None:
    """Sends a hello with 330,000 class counts."""
    join(knowledge, class_counts={str(knowledge.rank): [0] * 330_000})


def questions(knowledge: Place, _state: Mapping[str, Any]) -> None:
    """Asks the questions of a standby, a newcomer and a host, a hundred times each."""
    from mdgan.transport.links_pb2 import Nothing
    from mdgan.transport.streams import ASK, CLOCK, WATCH

    nothing = Nothing().SerializeToString()
    with channel_to(knowledge.server, knowledge) as channel:
        for method in (ASK, CLOCK, WATCH):
            calls = [channel.unary_stream(method)(nothing, timeout=1.0) for _ in range(100)]
            for call in calls:
                with contextlib.suppress(Exception):
                    next(call)
                call.cancel()


def others_ranks(knowledge: Place, _state: Mapping[str, Any]) -> None:
    """Claims a rank that its certificate does not name, then that rank together with its own."""
    rank = secrets.choice(knowledge.honest)
    for workers in ([rank], [knowledge.rank, rank]):
        counts = {str(worker): [1] * 10 for worker in workers}
        samples = dict.fromkeys(counts, 10)
        with contextlib.suppress(Exception):
            join(
                knowledge,
                host=workers[0],
                workers=workers,
                num_samples=samples,
                class_counts=counts,
            )


def replays(knowledge: Place, _state: Mapping[str, Any]) -> None:
    """Sends its own hello again, while its link is open."""
    join(knowledge)


def foreign_parcels(knowledge: Place, _state: Mapping[str, Any]) -> None:
    """Fetches parcels that hosts laid out for others, from the server and from each host."""
    from mdgan.transport.links_pb2 import Order
    from mdgan.transport.streams import FETCH

    for giver, place in [
        *knowledge.hosts.items(),
        (secrets.choice(knowledge.honest), knowledge.server),
    ]:
        at, name = (knowledge.server, SERVER_NAME) if ":" not in place else (place, HOST_NAME)
        with channel_to(at, knowledge, name if at != knowledge.server else SERVER_NAME) as channel:
            for taker in (knowledge.rank, *knowledge.honest):
                order = Order(
                    giver=giver,
                    iteration=knowledge.iteration,
                    taker=taker,
                    ticket=secrets.token_hex(16),
                )
                fetch = channel.unary_stream(FETCH)(order.SerializeToString(), timeout=0.2)
                with contextlib.suppress(Exception):
                    next(fetch)
                fetch.cancel()


def reads_nothing(knowledge: Place, _state: Mapping[str, Any]) -> None:
    """Joins once more, and reads no byte that the server sends."""
    from mdgan.transport.frames import encode
    from mdgan.transport.streams import TAKE_PART

    over = threading.Event()

    def sent() -> Iterator[bytes]:
        hello = {**knowledge.hello, "purpose": "join", "listens": None}
        yield from encode(Message(Kind.HELLO, 0, hello)).pieces
        over.wait(1.0)
        yield from encode(ready(knowledge.iteration, [knowledge.rank])).pieces
        over.wait(600.0)

    with channel_to(knowledge.server, knowledge) as channel:
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
"""By a description of the attack."""
ACTS: Mapping[str, Act] = {**CHANGES, **RAIDS}
"""All acts of hostile hosts."""
