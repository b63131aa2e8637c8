"""The figures of `security.md` are those of the code, and two limits that no other test reaches."""

import threading
from typing import Any

import grpc
import pytest

from mdgan.credentials.permit import SERVER_NAME
from mdgan.engine import hello, message_sizes
from mdgan.engine.server import admission, collecting, newcomers
from mdgan.observe import timelines
from mdgan.timeouts import Timeouts
from mdgan.transport import frames, front_process, grpc_server, guard, parcels, server_end, streams
from mdgan.transport.links_pb2 import Nothing, Welcome
from mdgan.transport.streams import WATCH, open_channel
from tests.claims.registry import claim
from tests.unit.transport.networks import (
    LONG,
    QUICK,
    GrpcNetwork,
    credentials,
    echo,
    joined,
    refusal,
)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.mark.parametrize("num_places", [1, 2])
@claim("limit-handshake", "does not end its TLS handshake | 5 s; 1 s while others wait")
@claim("limit-idle", "a connection on which nothing is called | 5 s")
@claim("limit-connections", "up to 16,384) leaves when 256 are kept for files")
@claim("limit-strangers", "256 at a port; 64 of them reach the server, 50 a second for nothing.")
@claim("limit-streams", "64; further ones are refused before they are read")
def test_connections(num_places: int) -> None:
    assert streams._HANDSHAKE_MS == 5000
    options = dict(streams.options(Timeouts(), num_places))
    assert options["grpc.server_handshake_timeout_ms"] == 5000
    assert options["grpc.max_connection_idle_ms"] == 5000
    assert (front_process._MOST_FILES, front_process._SPARE_FILES) == (16_384, 256)
    assert options["grpc.max_concurrent_streams"] == 64
    assert (front_process.MOST_STRANGERS, front_process._MOST_TRYING) == (256, 64)
    assert front_process._FAILURES_A_SECOND == 50
    assert (front_process._PATIENCE_SECONDS, front_process._IMPATIENCE_SECONDS) == (5.0, 1.0)


@claim("limit-question", "time until a call says what it wants | 5 s; a question has at most 4 KiB")
@claim("limit-calls", "8, and 2 for each rank; further ones are refused")
@claim("limit-rate", "20 a second on average, and 20 at once for itself and for each rank")
@claim("limit-all-calls", "calls at a time of all callers | 2048")
@claim(
    "limit-joins",
    "20 at once and 20 for each rank that the caller may have, and one in two seconds after that",
)
@claim("limit-hello", "four are read at a time")
@claim(
    "limit-refused",
    "calls of one caller that are refused, unknown ones among them | 64 at once, and one a second "
    "after that; then its connection ends, and its address waits 2 s for the next",
)
def test_calls() -> None:
    assert (guard._FIRST_SECONDS, guard._SMALL_BYTES) == (5.0, 4 * KIB)
    assert (guard.AT_ONCE, guard.OF_A_RANK) == (8, 2)
    assert (guard.A_SECOND, guard.IN_A_ROW) == (20.0, 20)
    assert (guard.MOST_CALLS, guard._JOINS_A_SECOND) == (2048, 0.5)
    assert (guard.REFUSALS_IN_A_ROW, guard.REFUSALS_A_SECOND) == (64, 1.0)
    assert front_process._BLOCKED_SECONDS == 2.0
    assert grpc_server._ADMITTED_AT_ONCE == 4


@claim(
    "limit-hello",
    "4 KiB, the settings of the run, and 12 KB for each of its ranks (more if the data have more "
    "than 1000 classes)",
)
@claim("limit-json", "64 KiB and 1 KiB for each rank of the host")
@claim("limit-json", "(512 bytes for each of their tensors)")
@claim("limit-spans", "1 MiB a message, 600 messages at once and 2 a second after that")
@claim("limit-spans-on-disk", "64 MiB of a host and 512 bytes for each second of the run")
@claim(
    "limit-memory",
    "64 MiB from one certificate, or from one host without one of its own, of which JSON counts "
    "80 times",
)
@claim("limit-memory", "If all together have more than 256 MiB")
@claim("limit-unsent", "what waits to be sent to a peer that takes nothing in | 1 GiB")
def test_messages() -> None:
    of_ranks = [message_sizes.hello_bytes({}, None, ranks) for ranks in (0, 1, 2)]
    assert of_ranks[0] == 4 * KIB + len("{}")
    assert of_ranks[2] - of_ranks[1] == of_ranks[1] - of_ranks[0] <= 12_100
    assert message_sizes.hello_bytes({}, 1000, 1) == of_ranks[1]
    assert message_sizes.small_bytes(3) == 64 * KIB + 3 * KIB
    assert message_sizes._OF_A_TENSOR_BYTES == 512
    spans = message_sizes._SPANS
    assert (spans.body_bytes, spans.a_second, guard.MOST_IN_A_ROW) == (MIB, 2.0, 600)
    assert (timelines.MOST_BYTES, timelines.BYTES_A_SECOND) == (64 * MIB, 512)
    assert (server_end._OF_AN_OWNER_BYTES, server_end._OF_ALL_BYTES) == (64 * MIB, 256 * MIB)
    assert frames.OF_A_HEAD == 80
    assert streams.MOST_UNSENT_BYTES == GIB


@claim("rank-kept", "for --liveness-timeout (30 s)")
@claim("limit-silence", "is waited for 120 s once it is known what is usual")
@claim("limit-promises", "one for a certificate, eight for an address, for 60 s")
@claim("limit-classes", "as many as the data set's NUM_CLASSES, at least 1,000")
@claim("limit-copies", "5 within 10 minutes for a rank")
@claim("limit-relayed", "the last two of each giver")
def test_hosts() -> None:
    assert Timeouts().liveness == 30.0
    patience = collecting.Deadline(None, 1.0, Timeouts()).least_patience_seconds
    assert patience == 120.0
    assert (admission._MOST_PROMISES, admission._PROMISE_SECONDS) == (8, 60.0)
    assert hello.MOST_CLASSES == 1000
    assert (newcomers._MOST_TIMES, newcomers._WITHIN_SECONDS) == (5, 600.0)
    assert parcels.KEPT_EXCHANGES == 2


@claim("limit-idle", "a connection on which nothing is called")
@pytest.mark.parametrize("is_tls", [False, True])
def test_a_connection_on_which_nothing_is_called_ends(
    is_tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_HANDSHAKE_MS", 300)
    shown = credentials() if is_tls else None
    network = GrpcNetwork(identity=shown, place="127.0.0.1:0")
    channel = open_channel(network.place, shown, SERVER_NAME if is_tls else "", QUICK)
    states: list[Any] = []
    ended = threading.Event()

    def note(state: Any) -> None:
        states.append(state)
        if grpc.ChannelConnectivity.READY in states[:-1]:
            ended.set()

    channel.subscribe(note, try_to_connect=True)
    assert ended.wait(LONG), states
    channel.close()
    network.close()


@claim("limit-all-calls", "2048; beyond them the caller with the most loses its newest")
def test_beyond_the_most_calls_the_caller_with_the_most_loses_its_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "MOST_CALLS", 4)
    network = GrpcNetwork(place="127.0.0.1:0")
    hosts = joined(network, 1)
    channel = open_channel(network.place, None, "", QUICK)
    watch: Any = channel.unary_stream(WATCH, Nothing.SerializeToString, Welcome.FromString)
    first = [watch(Nothing()) for _ in range(3)]  # with that of the host there are four
    for call in first:
        next(call)
    for _ in range(3):
        with pytest.raises(grpc.RpcError) as caught:
            list(watch(Nothing(), timeout=LONG))
        assert caught.value.code() is grpc.StatusCode.CANCELLED
    assert all(call.is_active() for call in first)
    assert "127.0.0.1: 4 calls at a time are all, and it has most: its newest" in refusal(network)
    echo(network, hosts[1], 1)
    channel.close()
    network.close()
