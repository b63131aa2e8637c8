"""One caller with a worker's certificate that calls at random: see `main` for how it is run.

It makes every kind of call, known and unknown, with right, changed, random and oversized requests,
joins with hellos of which a part is wrong and then sends what it likes, and opens connections that
it does not use as TLS wants. How often it does so changes from moment to moment. All it chooses
follows from the seed; when things happen does not.
"""

import contextlib
import json
import random
import signal
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from mdgan.credentials.identity import Identity, read_credentials
from mdgan.credentials.permit import HOST_NAME, SERVER_NAME
from mdgan.messages import Kind, Message
from mdgan.timeouts import Timeouts
from mdgan.transport.frames import encode
from mdgan.transport.links_pb2 import Order, Piece
from mdgan.transport.streams import ASK, CLOCK, FETCH, TAKE_PART, WATCH, open_channel
from mdgan.transport.until import Until
from mdgan.transport.visit import ask
from tests.hostile.lies import VALUES

THREADS = 6
TIMEOUTS = Timeouts(connect=20.0)
KINDS = (*Kind, "BATCHES", "FEEDBACK", "SWAP", "SWAPPED", "DISCRIMINATORS", "", "x", "A" * 17)
METHODS = (
    *(ASK, WATCH, CLOCK, FETCH, TAKE_PART),
    *("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"),
    *("/mdgan.Server/Stop", "/mdgan.Parcels/Ask", "/x/y"),
)
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_LONGEST_SECONDS = 1.0
"""No link lasts longer, since the others may wait that long for the answer of a host that is in."""


class Attacker:
    """What one thread does, one thing after another.

    Args:
        rank: that its certificate names.
        settings: the run's, which each host says when it joins.
        places: the server's first, then those of hosts.
    """

    def __init__(
        self,
        draws: random.Random,
        identity: Identity,
        rank: int,
        settings: Any,
        places: Sequence[str],
    ) -> None:
        self.draws, self.identity, self.places = draws, identity, places
        self.rank, self.settings = rank, settings
        self.done: Counter[str] = Counter()
        self._acts: dict[str, Callable[[], None]] = {
            "call": self.call,
            "join": self.join,
            "connection": self.connection,
            "TLS": self.garbage_in_tls,
        }

    def run(self, over: threading.Event) -> None:
        """Acts, at a rate that changes, until it is over."""
        draws, pause = self.draws, 0.0
        while not over.wait(pause):
            if draws.random() < 0.05:
                pause = draws.choice((0.0, 0.001, 0.02, 0.2))
            name = draws.choices([*self._acts], (6, 3, 2, 1))[0]
            with contextlib.suppress(OSError, ValueError, grpc.RpcError):
                self._acts[name]()
            self.done[name] += 1

    def call(self) -> None:
        """Any call, in any form, with any requests."""
        draws, place = self.draws, draws_place(self.draws, self.places)
        forms = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
        with self._channel(place) as channel:
            for _ in range(draws.choice((1, 1, 5, 50))):
                form, method = draws.choice(forms), draws.choice(METHODS)
                start = getattr(channel, form)(method)
                self.done[method] += 1
                requests: Any = (
                    self._request() if form.startswith("unary") else iter(self._requests())
                )
                self._attend(
                    start(requests, timeout=draws.choice((0.01, 0.1, 1.0)))
                    if form.endswith("stream")
                    else start.future(requests, timeout=draws.choice((0.01, 0.1, 1.0)))
                )

    def join(self) -> None:
        """Comes in, or nearly, and sends what it likes."""
        with self._channel(self.places[0]) as channel:
            sent = self._frames_of(self._hello())
            call = channel.stream_stream(TAKE_PART)(sent, timeout=_LONGEST_SECONDS)
            self._attend(call)

    def connection(self) -> None:
        """A connection without TLS, or with half of its handshake."""
        draws = self.draws
        with self._connected() as link:
            sent = draws.choice(
                (
                    b"",
                    draws.randbytes(draws.choice((1, 100, 100_000))),
                    _PREFACE + draws.randbytes(200),
                    b"GET / HTTP/1.1\r\n\r\n",
                    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + draws.randbytes(40),
                )
            )
            link.sendall(sent)
            time.sleep(draws.choice((0.0, 0.0, 0.05, 0.5)))
            if draws.random() < 0.5:  # a reset instead of an end
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def garbage_in_tls(self) -> None:
        """Shakes hands with its certificate, and then does not speak HTTP/2."""
        draws, context = self.draws, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        with tempfile.NamedTemporaryFile() as file:
            file.write(self.identity.certificate + self.identity.key)
            file.flush()
            context.load_cert_chain(file.name)
        with self._connected() as link, context.wrap_socket(link) as guarded:
            begins = draws.choice((b"", _PREFACE, _PREFACE + bytes(3) + b"\x04" + bytes(5)))
            guarded.sendall(begins + draws.randbytes(draws.choice((0, 9, 9000))))
            time.sleep(draws.choice((0.0, 0.05, 0.5)))

    @contextlib.contextmanager
    def _channel(self, place: str) -> Iterator[Any]:
        name = SERVER_NAME if place == self.places[0] else HOST_NAME
        channel = open_channel(place, self.identity, name, TIMEOUTS)
        try:
            yield channel
        finally:
            channel.close()

    def _connected(self) -> socket.socket:
        address, _, port = draws_place(self.draws, self.places).rpartition(":")
        return socket.create_connection((address, int(port)), 5.0)

    def _attend(self, call: Any) -> None:
        """Reads some of what is answered, then ends the call."""
        draws, until = self.draws, time.monotonic() + self.draws.choice((0.0, 0.05, 0.5))
        try:
            if draws.random() < 0.5 and hasattr(call, "__next__"):
                while time.monotonic() < until and next(call, None) is not None:
                    pass
            else:
                time.sleep(max(0.0, until - time.monotonic()))
        finally:
            call.cancel()

    def _requests(self) -> list[bytes]:
        return [self._request() for _ in range(self.draws.choice((0, 1, 1, 3, 100)))]

    def _request(self) -> bytes:
        """The bytes of a request: right for some call, random, or far too long."""
        draws = self.draws
        return draws.choice(
            (
                lambda: b"",
                lambda: draws.randbytes(draws.choice((1, 50, 5000))),
                lambda: b"\x0a" + b"\xff" * 3 + b"\x07" + bytes(1 << 20),
                lambda: draws.randbytes(3 << 20),
                lambda: self._order().SerializeToString(),
                lambda: self._piece().SerializeToString(),
                lambda: encode(Message(Kind.HELLO, 0, self._hello())).pieces[0],
            )
        )()

    def _order(self) -> Order:
        draws = self.draws
        return Order(
            giver=draws.choice((0, 1, 2, 3, 1 << 63)),
            iteration=draws.randrange(-1, 500),
            taker=draws.choice((self.rank, 1, 2, 1 << 40)),
            ticket=draws.choice(("", "é", draws.randbytes(16).hex(), "0" * 4000)),
        )

    def _piece(self) -> Piece:
        draws, data = self.draws, self.draws.randbytes(self.draws.choice((0, 8, 1000, 1 << 20)))
        return Piece(
            kind=draws.choice(KINDS),
            iteration=draws.randrange(-1, 500),
            size=draws.choice((0, len(data), len(data) + 1, 1 << 34, 1 << 63)),
            taker=draws.choice((0, 1, 2, 99)),
            data=data,
        )

    def _hello(self) -> dict[str, Any]:
        """A right one, or one with a part replaced or missing."""
        draws, rank = self.draws, str(self.rank)
        hello: dict[str, Any] = {
            "purpose": "join",
            "host": self.rank,
            "workers": [self.rank],
            "num_samples": {rank: 50},
            "class_counts": {rank: [5] * 10},
            "identity": self.settings,
            "generation": 0,
            "key": "the attacker's",
            "listens": None,
        }
        if draws.random() < 0.6:
            part = draws.choice([*hello])
            del hello[part]
            if draws.random() < 0.9:
                big = ([0] * 330_000, "x" * 100_000, [*range(2000)], {str(n): n for n in range(99)})
                hello[part] = draws.choice((*VALUES, *big, 1, [1, self.rank], {"1": [0] * 9}))
        return hello

    def _frames_of(self, hello: dict[str, Any]) -> Iterator[bytes]:
        """What goes over a link: a hello, then messages of any kind with any fields."""
        draws = self.draws
        yield from encode(Message(Kind.HELLO, 0, hello)).pieces
        if draws.random() < 0.7:
            time.sleep(0.05)  # its pace; whether the server has let it in by then is all the same
            holds = draws.choice(([self.rank], [self.rank], [], [1, 2]))
            details = {} if draws.random() < 0.8 else draws.choice(VALUES)
            ready = {"holds": holds, "told": details}
            yield from encode(Message(Kind.READY, 0, ready)).pieces
            time.sleep(draws.choice((0.0, 0.05, 0.3)))
        for _ in range(draws.choice((0, 1, 20, 300))):
            if draws.random() < 0.1:
                yield self._piece().SerializeToString()
            names = ["holds", "reason", "rows", "files", "losses", "slow", "given", "told"]
            names += ["taken", "refused"]
            fields = {draws.choice(names): draws.choice(VALUES) for _ in range(3)}
            kind = draws.choice([kind for kind in KINDS if kind.isupper() and len(kind) <= 16])
            message = Message(kind, draws.randrange(-1, 500), fields)
            yield from encode(message).pieces
            time.sleep(draws.choice((0.0, 0.0, 0.0, 0.05)))


def draws_place(draws: random.Random, places: Sequence[str]) -> str:
    """Mostly the server's."""
    return places[0] if draws.random() < 0.7 else draws.choice(places)


def main(credentials: str, rank: str, seed: str, server: str) -> None:
    """Asks for the run's settings, reads where hosts are, and calls until it is asked to stop.

    `python -m tests.hostile.random_calls FILE.cred RANK SEED PLACE` says `ready`, reads one line
    with the places of hosts, and says at the end how often it did what, as JSON.
    """
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    identity = read_credentials(Path(credentials))
    settings = ask(server, identity, TIMEOUTS, Until(20.0))["identity"]
    print("ready", flush=True)
    places = [server, *sys.stdin.readline().split()]
    attackers = [
        Attacker(random.Random(f"{seed} {n}"), identity, int(rank), settings, places)
        for n in range(THREADS)
    ]
    threads = [threading.Thread(target=each.run, args=(over,), daemon=True) for each in attackers]
    for thread in threads:
        thread.start()
    over.wait()
    for thread in threads:
        thread.join(5.0)
    total: Counter[str] = Counter()
    for each in attackers:
        total += each.done
    print(json.dumps(total), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
