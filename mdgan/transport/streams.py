"""Functions that both ends of gRPC's links share: options, channels, ports, addresses, an outbox.

gRPC does not survive a fork, so only processes that fork no more may import this module.
"""

import ipaddress
import logging
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any
from urllib.parse import unquote

import grpc

from mdgan.credentials.identity import Identity, OwnIdentity
from mdgan.errors import one_line
from mdgan.timeouts import Timeouts
from mdgan.transport.frames import PIECE_BYTES, Frame
from mdgan.transport.front import Front
from mdgan.transport.front_process import most_connections

# Without this, gRPC logs a traceback for some bytes that a stranger sends.
logging.getLogger("grpc").setLevel(logging.CRITICAL + 1)

ASK = "/mdgan.Server/Ask"
GIVES_BACK = "gives-back"
"""Key in the metadata of `ASK`: a host that could not join names its ranks there, for others."""
WHY = "why-bin"  # in the same metadata: the reason why the host could not join
WATCH = "/mdgan.Server/Watch"
TAKE_PART = "/mdgan.Server/TakePart"
CLOCK = "/mdgan.Server/Clock"
FETCH = "/mdgan.Parcels/Fetch"

CLOSE_SECONDS = 1.0  # how long gRPC has to close calls that it has cancelled
MOST_UNSENT_BYTES = 1 << 30
"""Most bytes that wait for a peer that does not read; beyond, the peer counts as lost."""
_WINDOW_BYTES = 1 << 22
_PIECE_MARGIN_BYTES = 1 << 16
_LEAST_PING_MS, _MOST_PING_STRIKES = 20, 1000
_MOST_STREAMS = 64  # calls of one connection at a time; gRPC's clients delay further calls
_HANDSHAKE_MS = 5000
"""After this time the server ends a connection without a certificate, or without a call."""
_PLACE = re.compile(r"(?:([0-9.]{7,15})|\[([0-9a-fA-F:.]{2,45})\]):([0-9]{1,5})")
_MOST_PORT = 65_535


def options(timeouts: Timeouts, num_places: int = 0) -> list[tuple[str, Any]]:
    """GRPC's options for a client, or for a server that listens at `num_places` places.

    gRPC pings a peer after a quarter of the silence that makes the peer count as lost. Its own
    threads answer, so a peer may compute for long. Of each stream it holds at most one piece and
    one window that no thread has read.
    """
    silence_ms = int(timeouts.liveness * 1000)
    ask_after_ms = max(_LEAST_PING_MS, silence_ms // 4)
    answer_within_ms = max(_LEAST_PING_MS, silence_ms - ask_after_ms)
    serving = [
        ("grpc.max_allowed_incoming_connections", most_connections() // max(1, num_places)),
        ("grpc.max_connection_idle_ms", _HANDSHAKE_MS),
        ("grpc.max_concurrent_streams", _MOST_STREAMS),
    ]
    return [
        *(serving if num_places else ()),
        ("grpc.max_receive_message_length", PIECE_BYTES + _PIECE_MARGIN_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.http2.lookahead_bytes", _WINDOW_BYTES),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.so_reuseport", 0),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.keepalive_time_ms", ask_after_ms),
        ("grpc.keepalive_timeout_ms", answer_within_ms),
        ("grpc.http2.ping_timeout_ms", answer_within_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.max_ping_strikes", _MOST_PING_STRIKES),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _LEAST_PING_MS // 2),
    ]


def open_channel(
    place: str, identity: OwnIdentity | None, name: str, timeouts: Timeouts
) -> grpc.Channel:
    """Opens a channel to a place (see `listen`); gRPC connects at the first call.

    Args:
        identity: what this process shows and whom it trusts; None without TLS.
        name: the DNS name that the peer's certificate must have, if mdgan has made it.
    """
    chosen = options(timeouts)
    if place.startswith(("unix:", "127.", "localhost:", "[::1]")):
        chosen.append(("grpc.enable_http_proxy", 0))
    if identity is None or place.startswith("unix:"):
        return grpc.insecure_channel(place, chosen)
    ours = identity()
    if ours.by_name:
        chosen.append(("grpc.ssl_target_name_override", name))
    trusted = grpc.ssl_channel_credentials(ours.authorities, ours.key, ours.certificate)
    return grpc.secure_channel(place, trusted, chosen)


class Threads(ThreadPoolExecutor):
    """Runs every call to a gRPC server in its own daemon thread, so that no process's end waits.

    gRPC cannot give up a call over a socket while the other end hangs.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Runs a function in its own daemon thread."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="call", daemon=True).start()
        return future


def close(channel: grpc.Channel) -> None:
    """Closes a channel, but waits only a moment, as gRPC may wait for an end that hangs."""
    closing = threading.Thread(target=channel.close, name="close", daemon=True)
    closing.start()
    closing.join(CLOSE_SECONDS)


class CannotListen(RuntimeError):
    """gRPC cannot listen at a place; the text is that place."""


def listen(
    server: grpc.Server, place: str, identity: OwnIdentity | None
) -> tuple[str, Front | None]:
    """Makes a gRPC server listen at a place.

    Args:
        place: `unix:` and a path, or address and port; port 0 for a free one.
        identity: what the server shows and whom it trusts; None without TLS. A socket in a private
            folder needs none.

    Returns:
        The place with the chosen port, and the front before that port; a socket has no front.

    Raises:
        CannotListen: the port is taken, or the address is not this machine's.
    """
    try:
        if place.startswith("unix:"):
            server.add_insecure_port(place)
            return place, None
        front = Front(place)
        if identity is None:
            server.add_insecure_port(front.behind)
        else:
            server.add_secure_port(front.behind, _shown_to_clients(identity))
    except (OSError, RuntimeError) as error:
        raise CannotListen(place) from error
    front.start()
    return front.place, front


def _shown_to_clients(identity: OwnIdentity) -> grpc.ServerCredentials:
    """Shows each connection the certificate that is valid when the connection begins."""
    shown = [identity()]

    def configuration(ours: Identity) -> grpc.ServerCertificateConfiguration:
        pair = ours.key, ours.certificate
        return grpc.ssl_server_certificate_configuration([pair], ours.authorities)

    def if_renewed() -> grpc.ServerCertificateConfiguration | None:
        ours = identity()
        if ours is shown[0]:
            return None
        shown[0] = ours
        return configuration(ours)

    return grpc.dynamic_ssl_server_credentials(
        configuration(shown[0]),
        if_renewed,  # type: ignore[arg-type] # None means no change; gRPC's types omit it
        require_client_authentication=True,
    )


def is_place(place: str) -> bool:
    """Whether a text is an IP address and a port; an IPv6 address must be in brackets."""
    match = _PLACE.fullmatch(place)
    if match is None or not 0 < int(match[3]) <= _MOST_PORT:
        return False
    try:
        ipaddress.ip_address(match[1] or match[2])
    except ValueError:
        return False
    return True


def may_be_tried(place: str, peer: str) -> bool:
    """Whether the server may try to reach a host at the place that the host has named.

    Args:
        place: must satisfy `is_place`: a DNS name may mean another machine a moment later.
        peer: where the connection of that host comes from, such as `ipv4:10.0.0.7:41250`.

    The address of the connection may be tried. Another address may not if it means a different
    machine on each machine, such as loopback, or a group of machines.
    """
    if not is_place(place):
        return False
    named = ipaddress.ip_address(place.rpartition(":")[0].strip("[]"))
    is_ambiguous = named.is_loopback or named.is_unspecified or named.is_multicast
    return named == address_of(peer) or not (
        is_ambiguous or named.is_link_local or named.is_reserved
    )


def address_of(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address in gRPC's name of a peer; None if the peer is a process of this machine.

    Behind a front, gRPC's name of a peer is that of a Unix socket, which has the client's address.
    """
    rest = unquote(peer).partition(":")[2]
    try:
        address = ipaddress.ip_address(rest.rpartition(":")[0].strip("[]"))
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)  # of a server that listens for both families
    return mapped or address


def reason_of(error: grpc.RpcError) -> str:
    """Why a call has ended, in one line about the peer."""
    code, details = error.code(), one_line(error.details() or "")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "it did not answer in time"
    if code is grpc.StatusCode.CANCELLED:
        return "it ended the connection"
    if code is not grpc.StatusCode.UNAVAILABLE:
        return details or str(code.name).lower()
    if "ping timeout" in details or "keepalive" in details:
        return "it was silent for too long"
    return "its connection closed"


class Outbox:
    """Messages that wait to be sent on a stream: any thread puts, gRPC's thread takes."""

    def __init__(self) -> None:
        self._frames: SimpleQueue[Frame | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._unsent_bytes = 0
        self._ended = False

    def put(self, frame: Frame) -> bool:
        """Adds a message; False if the stream has ended or the peer reads too slowly."""
        with self._lock:
            if self._ended or self._unsent_bytes > MOST_UNSENT_BYTES:
                return False
            self._unsent_bytes += len(frame.body)
        self._frames.put(frame)
        return True

    def end(self) -> None:
        """Refuses further messages; gRPC still sends those that wait."""
        with self._lock:
            self._ended = True
        self._frames.put(None)

    cut = end  # gRPC sends nothing on a stream that has ended

    def pieces(self) -> Iterator[bytes]:
        """Yields the pieces that gRPC sends, until `end`."""
        while (frame := self._frames.get()) is not None:
            yield from frame.pieces
            with self._lock:
                self._unsent_bytes -= len(frame.body)
