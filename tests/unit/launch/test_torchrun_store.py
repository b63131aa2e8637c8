"""Torchrun's store, in which rank 0 says where it listens: what else is there gets one line."""

import socket
from datetime import timedelta

import pytest

# torch exports it without saying so.
from torch.distributed import TCPStore  # type: ignore[attr-defined] # see above

from mdgan.errors import BadInput
from mdgan.launch.links import find_place, publish_place
from mdgan.launch.task import LaunchedTask
from mdgan.transport.until import Until

LOCAL = "127.0.0.1"


@pytest.fixture
def agent() -> TCPStore:
    return TCPStore(LOCAL, 0, None, True, timedelta(seconds=10), wait_for_workers=False)


def task(port: int) -> LaunchedTask:
    return LaunchedTask("torchrun", 0, 3, 3, 0, LOCAL, port, store_is_up=True)


@pytest.mark.parametrize("place", ["10.0.0.7:29500", "[fe80::1%eth0]:1", "node-3.cluster:65535"])
def test_what_rank_0_writes_is_read(agent: TCPStore, place: str) -> None:
    for written in (place, "other:1", place):
        publish_place(task(agent.port), written, Until(10))
    assert find_place(task(agent.port), Until(10)) == place


@pytest.mark.parametrize(
    "place",
    [
        *("nowhere", "host port", "x" * 290, "host:0", "host:65536", "host:1\n", "h:\u0661"),
        *("unix:80", "unix:/tmp/socket:80", "dns:1", "ipv4:1", "a@b:1", "\x1b[2Jhost:1"),
    ],
)
def test_what_is_no_address_is_one_line(agent: TCPStore, place: str) -> None:
    publish_place(task(agent.port), place, Until(10))
    with pytest.raises(BadInput, match="for an address; another program") as caught:
        find_place(task(agent.port), Until(10))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_rank_0_that_does_not_come(agent: TCPStore) -> None:
    with pytest.raises(BadInput, match="rank 0 did not say in torchrun's store"):
        find_place(task(agent.port), Until(0.3))


def test_a_server_that_is_no_store() -> None:
    with socket.create_server((LOCAL, 0)) as mute:
        port = mute.getsockname()[1]
        with pytest.raises(BadInput, match="does not answer; check --rdzv-endpoint"):
            find_place(task(port), Until(0.5))
        with pytest.raises(BadInput, match="does not answer; check --rdzv-endpoint"):
            publish_place(task(port), "host:1", Until(0.5))
