"""The code has the limits that pages and results state; it keeps two that no other test reaches."""

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
@claim("flood", "A port takes 256 of their connections, for 5 s each.")
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


@claim("callers", "8 calls of a kind at a time and 2 for each rank")
@claim("callers", "and 20 a second")
def test_calls() -> None:
    assert (guard._FIRST_SECONDS, guard._SMALL_BYTES) == (5.0, 4 * KIB)
    assert (guard.AT_ONCE, guard.OF_A_RANK) == (8, 2)
    assert (guard.A_SECOND, guard.IN_A_ROW) == (20.0, 20)
    assert (guard.MOST_CALLS, guard._JOINS_A_SECOND) == (2048, 0.5)
    assert (guard.REFUSALS_IN_A_ROW, guard.REFUSALS_A_SECOND) == (64, 1.0)
    assert front_process._BLOCKED_SECONDS == 2.0
    assert grpc_server._ADMITTED_AT_ONCE == 4


@claim("callers", "Its timelines take 64 MiB of disk and 512 bytes for each second")
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


def test_hosts() -> None:
    assert Timeouts().liveness == 30.0
    patience = collecting.Deadline(None, 1.0, Timeouts()).least_patience_seconds
    assert patience == 120.0
    assert (admission._MOST_PROMISES, admission._PROMISE_SECONDS) == (8, 60.0)
    assert hello.MOST_CLASSES == 1000
    assert (newcomers._MOST_TIMES, newcomers._WITHIN_SECONDS) == (5, 600.0)
    assert parcels.KEPT_EXCHANGES == 2


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
