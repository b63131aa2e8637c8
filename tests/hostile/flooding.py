"""Floods a port: `python -m tests.hostile.flooding KIND PORT SECONDS [CREDENTIALS [CONNECTIONS]]`.

Without credentials come strangers from 180 addresses of the loopback network, or from `127.0.0.1`
where the kind ends in `-here`, as many a second as this process can make, up to `MOST_A_SECOND`.
With credentials come clients that speak HTTP/2 and read nothing, in as many connections. Says at
its end how many there were, as JSON.
"""

import contextlib
import json
import socket
import ssl
import struct
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from functools import partial
from itertools import count, cycle

STRANGERS = ("connect", "hello", "slow", "silent", "handshake")
CALLERS = ("unknown", "questions", "resets", "pings", "settings", "data", "metadata")
MOST_A_SECOND = 3000
MOST_OPEN = 4000
AT_ONCE = 16
_RESET = struct.pack("ii", 1, 0)
_HEADERS, _RST, _SETTINGS, _PING, _DATA = 1, 3, 4, 6, 0


def strangers(kind: str, port: int, until: float, done: Counter[str]) -> None:
    """Connections that never show a certificate, one after the other."""
    kind, _, source = kind.partition("-")
    addresses = cycle(["127.0.0.1"] if source else [f"127.0.1.{n}" for n in range(1, 181)])
    connections, began = deque[socket.socket](), time.monotonic()
    hello = client_hello()
    context = context_of(None)
    for number in count(1):
        now = time.monotonic()
        if now > until:
            break
        time.sleep(max(0.0, began + number * AT_ONCE / MOST_A_SECOND - now))
        try:
            knock = socket.create_connection(("127.0.0.1", port), 2.0, (next(addresses), 0))
            if kind == "handshake":
                knock = context.wrap_socket(knock)
            elif kind != "connect":
                knock.sendall({"hello": hello, "slow": hello[:7], "silent": b""}[kind])
        except OSError:
            done["failed"] += 1
            continue
        done[kind] += 1
        knock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        if kind in ("slow", "silent"):
            connections.append(knock)
            knock = (
                connections.popleft() if len(connections) > MOST_OPEN / AT_ONCE else connections[-1]
            )
        if not connections or knock is not connections[-1]:
            knock.close()


def client_hello() -> bytes:
    """What a client of TLS says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context_of(None).wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def context_of(credentials: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if credentials is not None:
        context.load_cert_chain(credentials)
    return context


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    """One of HTTP/2."""
    head = struct.pack(">IBI", len(body), kind, 0)[1:5] + bytes([flags])
    return head + struct.pack(">I", stream) + body


def headers(path: str, **others: bytes) -> bytes:
    """Those of a call, nothing of them compressed."""
    headers = {":method": b"POST", ":scheme": b"https", ":path": path.encode(), ":authority": b"x"}
    headers |= {"te": b"trailers", "content-type": b"application/grpc"}
    pairs = [(name.encode(), value) for name, value in (headers | others).items()]
    return b"".join(b"\0%c%b%c%b" % (len(n), n, len(value), value) for n, value in pairs)


def calls(kind: str) -> Iterator[bytes]:
    """What a client sends, without an end."""
    for number in count(1, 2):
        take_part = frame(_HEADERS, 4, number, headers("/mdgan.Server/TakePart"))
        if kind == "unknown":
            yield frame(_HEADERS, 5, number, headers(f"/mdgan.Server/Nothing{number}"))
        elif kind == "questions":
            yield frame(_HEADERS, 4, number, headers("/mdgan.Server/Clock"))
            yield frame(_DATA, 1, number, bytes(5))
        elif kind == "resets":
            yield take_part + frame(_RST, 0, number, struct.pack(">I", 8))
        elif kind == "pings":
            yield frame(_PING, 0, 0, bytes(8)) * 100
        elif kind == "settings":
            yield frame(_SETTINGS, 0, 0) * 100
        elif kind == "data":
            piece = frame(_DATA, 0, number, bytes(16_000))
            yield take_part + frame(_DATA, 0, number, struct.pack(">BI", 0, 1 << 20)) + piece * 10
        elif kind == "metadata":
            long = {f"x-{n}": bytes(100) for n in range(60)}
            yield frame(_HEADERS, 4, number, headers("/mdgan.Server/TakePart", **long))


def call(kind: str, port: int, until: float, credentials: str, done: Counter[str]) -> None:
    """One client, which comes again when it was sent away."""
    context = context_of(credentials)
    begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(_SETTINGS, 0, 0)
    while (remaining := until - time.monotonic()) > 0:
        try:
            with socket.create_connection(("127.0.0.1", port), remaining) as bare:
                bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
                with context.wrap_socket(bare) as link:
                    done["connections"] += 1
                    link.sendall(begin)
                    for payload in calls(kind):
                        link.settimeout(max(0.01, until - time.monotonic()))
                        link.sendall(payload)
                        done[kind] += 1
        except OSError:
            done["ended"] += 1
            time.sleep(0.01)


def main(kind: str, port: str, seconds: str, credentials: str = "", connections: str = "8") -> None:
    until, done = time.monotonic() + float(seconds), Counter[str]()
    common = kind, int(port), until
    works = [partial(strangers, *common, done)] * AT_ONCE
    if credentials:
        works = [partial(call, *common, credentials, done)] * int(connections)
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
