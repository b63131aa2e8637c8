import socket
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from mdgan.transport.rendezvous import listen, local_addresses

# torch exports it without saying so.
from torch.distributed import TCPStore  # type: ignore[attr-defined] # see above

from mdgan.engine.hello import make_hello
from mdgan.errors import BadInput, Interrupted
from mdgan.families.mdgan.messages import BATCHES, FEEDBACK
from mdgan.launch import links
from mdgan.launch.links import connector, open_server
from mdgan.launch.prepare import Prepared, prepare
from mdgan.launch.settings import LaunchSettings, check_exposed, is_readable_by_others, read_token
from mdgan.launch.task import Task
from mdgan.messages import Message
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Joined, Lost, Received

LIMITS = Timeouts(connect=10.0, farewell=1.0, link=5.0, swap=10.0, answer=20.0)
SECRET = "0123456789abcdef0123"


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text(SECRET + "\n")
    return path


def test_a_token_is_what_is_in_the_file_but_for_white_space_around_it(token: Path) -> None:
    assert read_token(LaunchSettings(join_token=str(token))) == SECRET.encode()
    token.write_bytes(b"\xff\x00" * 20)
    assert read_token(LaunchSettings(join_token=str(token))) == b"\xff\x00" * 20


def test_without_a_file_there_is_no_token() -> None:
    assert read_token(LaunchSettings()) == b""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("", "holds 0 bytes"),
        ("  short of 16  \n", "holds 11 bytes, too few"),
    ],
)
def test_a_token_that_is_no_secret(token: Path, content: str | None, says: str) -> None:
    token.unlink() if content is None else token.write_text(content)
    with pytest.raises(BadInput) as caught:
        read_token(LaunchSettings(join_token=str(token)))
    assert says in str(caught.value)
    assert f"--join-token {token}" in str(caught.value)
    assert "mdgan token FILE" in str(caught.value)


@pytest.mark.parametrize(("mode", "others"), [(0o600, False), (0o640, True), (0o604, True)])
def test_other_users_may_be_able_to_read_a_token(token: Path, mode: int, others: bool) -> None:
    token.chmod(mode)
    assert is_readable_by_others(LaunchSettings(join_token=str(token))) == others
    assert not is_readable_by_others(LaunchSettings())


@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.7.3", "0.0.0.0", "::", "fe80::1%eth0"])
def test_an_address_that_others_can_reach_needs_a_token(token: Path, address: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_exposed(["127.0.0.1", address], LaunchSettings(master_addr="somewhere"))
    for part in ("--master-addr somewhere", address, "--join-token FILE", "--insecure"):
        assert part in str(caught.value)
    check_exposed([address], LaunchSettings(join_token=str(token)))
    check_exposed([address], LaunchSettings(insecure=True))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1"])
def test_what_no_other_machine_can_reach_needs_none(address: str) -> None:
    check_exposed([address], LaunchSettings())


def prepared(**settings: Any) -> Prepared:
    return prepare({"world_size": 3, "iterations": 10, "eval_interval": 0, **settings})


def admit(_hello: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"generation": 1}


def hello(host: int) -> dict[str, Any]:
    return make_hello(host, {host: [30, 30]}, {})


def test_a_host_and_a_server_find_each_other_with_a_token(token: Path) -> None:
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    made = prepared(join_token=str(token))
    server = open_server(made, listener, admit, LIMITS)
    connect = connector(made, (1,), port, LIMITS, threading.Event())
    host = connect(hello(1), 10)
    assert isinstance(server.receive(10), Joined)
    b, shape = made.settings.batch_size, made.dataset.shape
    server.send(1, Message(BATCHES, 1, {}, {"batches": torch.zeros(2, b, *shape)}))
    assert isinstance(host.receive(10), Received)
    host.send(Message(FEEDBACK, 1, {}, {"answers.values": torch.zeros(1, b, *shape)}))
    assert isinstance(server.receive(10), Received)
    # Feedback for one more worker than the host has is too large.
    host.send(Message(FEEDBACK, 1, {}, {"answers.values": torch.zeros(40, b, *shape)}))
    lost = server.receive(10)
    assert isinstance(lost, Lost)
    assert "a FEEDBACK message of" in lost.reason
    host.close()
    server.close()


def test_the_servers_address_comes_first_then_its_standbys() -> None:
    made = prepared(master_addr="127.0.0.1,127.0.0.2", master_port=4000)
    assert links.server_addresses(made.launch) == [("127.0.0.1", 4000), ("127.0.0.2", 4000)]
    assert links.server_addresses(made.launch, 5000) == [
        ("127.0.0.1", 5000),
        ("127.0.0.2", 5000),
    ]
    assert links.server_addresses(prepared().launch) == [("127.0.0.1", 29500)]


def other_address() -> str:
    """An address of this machine that is not its own alone."""
    for address in local_addresses():
        if ":" not in address and not address.startswith("127."):
            return address
    pytest.skip("this machine has no address but its own")


def test_nothing_that_others_can_reach_is_opened_without_a_token() -> None:
    address = other_address()
    with (
        socket.create_server((address, 0)) as listener,
        pytest.raises(BadInput, match="--insecure"),
    ):
        open_server(prepared(), listener, admit, LIMITS)
    made = prepared(master_addr=address)
    with pytest.raises(BadInput, match="--insecure"):
        connector(made, (1,), 4000, LIMITS, threading.Event())
    connector(prepared(master_addr=address, insecure=True), (1,), 4000, LIMITS, threading.Event())


def test_hosts_listen_where_they_are_told_to(token: Path) -> None:
    listener = listen("127.0.0.1", 0)
    made = prepared(join_token=str(token), network_interface="lo")
    server = open_server(made, listener, admit, LIMITS)
    port = listener.getsockname()[1]
    host = connector(made, (2,), port, LIMITS, threading.Event())(hello(2), 10)
    event = server.receive(10)
    assert isinstance(event, Joined)
    assert event.hello["listens"][0] == "127.0.0.1"
    host.close()
    server.close()


@pytest.fixture
def agent() -> TCPStore:
    """The store that torchrun's agent serves."""
    return TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=10), wait_for_workers=False)


def under_torchrun(port: int, *, store_is_up: bool = True, attempt: str = "0") -> Prepared:
    task = Task("torchrun", 0, 3, 3, 0, "127.0.0.1", port, store_is_up, attempt)
    return replace(prepared(), task=task)


def test_under_torchrun_hosts_are_told_in_its_store_where_the_server_is(agent: TCPStore) -> None:
    stale = under_torchrun(agent.port, attempt="0")
    links._listen_beside_store(stale.task, stale.launch, LIMITS).close()  # type: ignore[arg-type] # it is set
    made = under_torchrun(agent.port, attempt="1")
    found: list[Any] = []

    def join() -> None:
        connect = connector(made, (1,), None, LIMITS, threading.Event())
        found.append(connect(hello(1), 10))

    thread = threading.Thread(target=join)
    thread.start()  # the host is there before the server
    server = open_server(made, None, admit, LIMITS)
    assert isinstance(server.receive(10), Joined)
    thread.join(10)
    found[0].close()
    server.close()


def test_under_torchrun_a_server_that_does_not_come(agent: TCPStore) -> None:
    made = under_torchrun(agent.port)
    connect = connector(made, (1,), None, LIMITS, threading.Event())
    with pytest.raises(BadInput, match="rank 0 did not say in torchrun's store"):
        connect(hello(1), 0.3)
    interrupted = threading.Event()
    interrupted.set()
    with pytest.raises(Interrupted):
        connector(made, (1,), None, LIMITS, interrupted)(hello(1), 10)


@pytest.mark.parametrize("text", ["", "nowhere", "host port", "x" * 1000])
def test_under_torchrun_a_store_that_tells_nonsense(agent: TCPStore, text: str) -> None:
    agent.set("mdgan/0/door", text)
    connect = connector(under_torchrun(agent.port), (1,), None, LIMITS, threading.Event())
    with pytest.raises(BadInput, match="for an address"):
        connect(hello(1), 5)


def test_under_torchrun_without_a_store_rank_0_is_at_its_port() -> None:
    listener = listen("127.0.0.1", 0)
    made = under_torchrun(listener.getsockname()[1], store_is_up=False)
    server = open_server(made, listener, admit, LIMITS)
    host = connector(made, (1,), None, LIMITS, threading.Event())(hello(1), 10)
    assert isinstance(server.receive(10), Joined)
    host.close()
    server.close()


def test_giving_up_while_no_server_answers() -> None:
    interrupted = threading.Event()
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        connect = connector(prepared(), (1,), bound.getsockname()[1], LIMITS, interrupted)
        threading.Timer(0.2, interrupted.set).start()
        with pytest.raises(Interrupted):
            connect(hello(1), 1e6)
