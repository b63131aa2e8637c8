"""How hosts and the server find each other, also in torchrun's store."""

import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined] # torch does not say it

from mdgan.credentials.files import issue, make_folder_of_authority, revoke, write_shared
from mdgan.engine.hello import make_hello
from mdgan.errors import BadInput, Interrupted
from mdgan.families.mdgan.messages import BATCHES, FEEDBACK
from mdgan.launch import links
from mdgan.launch.addresses import Sockets, local_addresses, split
from mdgan.launch.checked import Checked, prepare
from mdgan.launch.given import Given
from mdgan.launch.links import connector, open_server, place_for_others
from mdgan.launch.task import LaunchedTask
from mdgan.messages import Message
from mdgan.timeouts import Timeouts
from mdgan.transport.base import RELAY, Joined, Lost, Received
from mdgan.transport.host_end import HostTransport
from mdgan.transport.server_end import ServerTransport
from tests.claims.registry import claim
from tests.unit.transport.networks import expect

LIMITS = Timeouts(connect=10.0, farewell=1.0, link=5.0, swap=10.0, answer=20.0)
DAY = timedelta(days=1)


@pytest.fixture
def shared(tmp_path: Path) -> str:
    """A file that all machines share."""
    path = tmp_path / "run.cred"
    write_shared(path, DAY)
    return str(path)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """The folder of one that has issued a certificate to the server and to two workers."""
    folder = tmp_path / "authority"
    make_folder_of_authority(folder, DAY)
    issue(folder, "main", "server", (), DAY)
    issue(folder, "alice", "worker", (1,), DAY)
    issue(folder, "bob", "worker", (), DAY)
    return folder


@pytest.fixture
def sockets(tmp_path: Path) -> Sockets:
    return Sockets(tmp_path, alone=True)


def prepared(**settings: Any) -> Checked:
    small = {"world_size": 3, "iterations": 10, "eval_interval": 0}
    return prepare(Given([{**small, **settings}]))


def admit(_hello: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"generation": 1}


def hello(host: int) -> dict[str, Any]:
    return make_hello(host, {host: [30, 30]}, {})


class Linked:
    """A server, and hosts that join it; all are closed at the end."""

    def __init__(self) -> None:
        self.server: ServerTransport | None = None
        self.place = ""
        self.hosts: list[HostTransport] = []

    def serve(self, made: Checked, place: str) -> ServerTransport:
        opened = open_server(made, [place], admit, LIMITS)
        self.server, (self.place,) = opened, opened.places  # type: ignore[attr-defined] # gRPC's
        return opened

    def join(self, made: Checked, rank: int, sockets: Sockets | None = None) -> HostTransport:
        if sockets is None and made.task is None:
            address, port = split(self.place)
            made = replace(made, launch=made.launch.but(master_addr=address, master_port=port))
        connect = connector(made, (rank,), sockets, LIMITS, threading.Event())
        self.hosts.append(connect(hello(rank), 10))
        return self.hosts[-1]

    def close(self) -> None:
        for end in (*self.hosts, self.server):
            if end is not None:
                end.close()


@pytest.fixture
def linked() -> Iterator[Linked]:
    made = Linked()
    yield made
    made.close()


def test_a_host_and_a_server_find_each_other_with_credentials(linked: Linked, shared: str) -> None:
    made = prepared(credentials=shared)
    server, host = linked.serve(made, "127.0.0.1:0"), linked.join(made, 1)
    assert isinstance(server.receive(10), Joined)
    b, shape = made.settings.training.batch_size, made.dataset.shape
    server.send(1, Message(BATCHES, 1, {}, {"batches": torch.zeros(2, b, *shape)}))
    assert isinstance(host.receive(10), Received)
    host.send(Message(FEEDBACK, 1, {}, {"answers.values": torch.zeros(1, b, *shape)}))
    assert isinstance(server.receive(10), Received)
    # Feedback for one more worker than the host has is too large.
    host.send(Message(FEEDBACK, 1, {}, {"answers.values": torch.zeros(40, b, *shape)}))
    lost = expect(server, Lost)
    assert "a FEEDBACK message of" in lost.reason


@claim("one-machine", "no port is open")
def test_on_one_machine_no_port_is_open(linked: Linked, sockets: Sockets) -> None:
    made = prepared()
    assert place_for_others(made) is None
    server = linked.serve(made, sockets.server)
    linked.join(made, 2, sockets)
    event = expect(server, Joined)
    assert event.hello["listens"] == sockets.host(2)


def test_what_hosts_beside_the_server_hand_out_to_other_machines_goes_through_it(
    linked: Linked, sockets: Sockets
) -> None:
    server = linked.serve(prepared(), sockets.server)
    linked.join(prepared(), 2, replace(sockets, alone=False))
    event = expect(server, Joined)
    assert event.hello["listens"] == RELAY


@pytest.mark.parametrize(
    ("listen", "place"),
    [
        ("127.0.0.2", "127.0.0.2:4321"),
        ("127.0.0.2:4000", "127.0.0.2:4000"),
        ("[::1]", "[::1]:4321"),
        ("::1", "[::1]:4321"),
        ("[::1]:4000", "[::1]:4000"),
    ],
)
def test_where_rank_0_listens_for_others(listen: str, place: str) -> None:
    assert place_for_others(prepared(listen=listen, master_port=4321)) == place


@pytest.mark.parametrize(
    ("listen", "says"),
    [
        ("127.0.0.1:x", "--listen 127.0.0.1:x: must be ADDRESS or ADDRESS:PORT"),
        ("127.0.0.1:70000", "--listen 127.0.0.1:70000: must be ADDRESS or ADDRESS:PORT"),
        ("no.such.host.invalid", "no.such.host.invalid: unknown host"),
        ("192.0.2.77", "192.0.2.77: not an address of this machine"),
        ("", "--listen"),
        (":4000", "--listen"),
        ("0.0.0.0", "others can reach 0.0.0.0; give --credentials FILE"),
    ],
)
def test_where_rank_0_cannot_listen(listen: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        place_for_others(prepared(listen=listen))
    assert says in str(caught.value)


def test_a_port_that_is_taken_is_told_by_the_flag_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BadInput, match=f"--listen 127.0.0.1:{port}: .*in use"):
            place_for_others(prepared(listen=f"127.0.0.1:{port}"))
        with pytest.raises(BadInput, match=f"--master-port {port}: in use on 127.0.0.1"):
            place_for_others(prepared(master_port=port))


def test_the_servers_address_comes_first_then_its_standbys() -> None:
    made = prepared(master_addr="127.0.0.1,127.0.0.2", master_port=4000)
    assert links.server_places(made.launch.links) == ["127.0.0.1:4000", "127.0.0.2:4000"]
    assert links.server_places(prepared().launch.links) == ["127.0.0.1:29500"]


def other_address() -> str:
    """An address of this machine that is not its own alone."""
    for address in local_addresses():
        if ":" not in address and not address.startswith("127."):
            return address
    pytest.skip("this machine has no address but its own")


@claim("guarded", "no machine takes part without a certificate, unless you say --insecure.")
@claim(
    "strangers",
    "Where others could reach a port, mdgan refuses to start without certificates, unless"
    " you say --insecure",
)
def test_nothing_that_others_can_reach_is_opened_without_credentials() -> None:
    address = other_address()
    with pytest.raises(BadInput, match="--insecure"):
        place_for_others(prepared(master_addr=address))
    made = prepared(master_addr=address)
    with pytest.raises(BadInput, match="--insecure"):
        connector(made, (1,), None, LIMITS, threading.Event())
    connector(prepared(master_addr=address, insecure=True), (1,), None, LIMITS, threading.Event())


def test_hosts_listen_where_they_are_told_to(linked: Linked, shared: str) -> None:
    made = prepared(credentials=shared, network_interface="lo")
    server = linked.serve(made, "127.0.0.1:0")
    linked.join(made, 2)
    event = expect(server, Joined)
    assert event.hello["listens"].startswith("127.0.0.1:")


def cred(authority: Path, name: str, **settings: Any) -> Checked:
    here = {} if name == "main" else {"ranks": "1,2"}
    return prepared(credentials=str(authority / f"{name}.cred"), **here, **settings)


@claim(
    "revoked",
    "reads the list again whenever the file changes, and ends all calls of that machine "
    "within a second or so",
)
def test_who_is_revoked_is_shut_out_and_stays_out(linked: Linked, authority: Path) -> None:
    made = cred(authority, "main", revoked=str(authority / "revoked.pem"))
    server = linked.serve(made, "127.0.0.1:0")
    linked.join(cred(authority, "alice"), 1)
    linked.join(cred(authority, "bob"), 2)
    assert all(isinstance(server.receive(10), Joined) for _ in range(2))
    revoke(authority, "alice")
    lost = None
    while not isinstance(lost, Lost):  # the server looks once a second
        lost = server.receive(0.1)
    assert lost == Lost(1, "its certificate (alice) was revoked")
    with pytest.raises(BadInput, match=r"its certificate \(alice\) was revoked"):
        linked.join(cred(authority, "alice"), 1)


def test_a_list_of_revoked_certificates_that_cannot_serve(shared: str) -> None:
    with pytest.raises(BadInput, match="--revoked nowhere: needs --credentials, too"):
        prepared(revoked="nowhere")
    with pytest.raises(BadInput, match="nowhere: does not exist"):
        prepared(revoked="nowhere", credentials=shared)
    prepared(revoked="nowhere", ranks="1")  # only rank 0 reads it


def test_a_host_that_cannot_listen_for_others(linked: Linked, sockets: Sockets) -> None:
    linked.serve(prepared(), sockets.server)
    gone = replace(sockets, folder=sockets.folder / "gone")
    (gone.folder).mkdir()
    (gone.folder / "server").symlink_to(sockets.folder / "server")
    (gone.folder / "2").mkdir()
    with pytest.raises(BadInput, match="this host cannot listen there; start again"):
        linked.join(prepared(), 2, gone)


@pytest.fixture
def agent() -> TCPStore:
    """The store that torchrun's agent serves."""
    return TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=10), wait_for_workers=False)


def task(port: int, *, store_is_up: bool = True, attempt: str = "0") -> LaunchedTask:
    return LaunchedTask("torchrun", 0, 3, 3, 0, "127.0.0.1", port, store_is_up, attempt)


def under_torchrun(port: int, **how: Any) -> Checked:
    return replace(prepared(), task=task(port, **how))


def test_under_torchrun_hosts_are_told_in_its_store_where_the_server_is(
    linked: Linked, agent: TCPStore
) -> None:
    stale = Linked()
    stale.serve(under_torchrun(agent.port, attempt="0"), "127.0.0.1:0")
    stale.close()
    made = under_torchrun(agent.port, attempt="1")
    thread = threading.Thread(target=linked.join, args=(made, 1))
    thread.start()  # the host is there before the server
    place = place_for_others(made)
    assert place is not None
    assert isinstance(linked.serve(made, place).receive(10), Joined)
    thread.join(10)


def test_under_torchrun_without_a_store_rank_0_is_at_its_port(linked: Linked) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    made = under_torchrun(port, store_is_up=False)
    assert place_for_others(made) == f"127.0.0.1:{port}"
    server = linked.serve(made, f"127.0.0.1:{port}")
    linked.join(made, 1)
    assert isinstance(server.receive(10), Joined)


def test_giving_up_while_no_server_answers(agent: TCPStore) -> None:
    gave_up, interrupted = threading.Event(), threading.Event()
    gave_up.set()
    with pytest.raises(Interrupted):
        connector(under_torchrun(agent.port), (1,), None, LIMITS, gave_up)(hello(1), 10)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        made = prepared(master_port=bound.getsockname()[1])
        connect = connector(made, (1,), None, LIMITS, interrupted)
        threading.Timer(0.2, interrupted.set).start()
        with pytest.raises(Interrupted):
            connect(hello(1), 1e6)
