"""Hosts that choose ranks so that others are punished, and hosts that return as others."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mdgan.credentials.identity import read_credentials
from mdgan.credentials.revocations import Revocations
from mdgan.engine.hello import make_hello
from mdgan.engine.server.peers import Peers
from mdgan.messages import Kind, Message
from mdgan.storage.manifest import Manifest
from mdgan.storage.state_file import StoredFile
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Later, Lost
from mdgan.transport.frames import Most
from mdgan.transport.grpc_host import GrpcHostTransport
from mdgan.transport.guard import Access
from mdgan.transport.until import Until
from mdgan.transport.visit import ask
from tests.claims.registry import claim
from tests.processes import MDGAN, finish, read_events, read_status, run_here, start, wait_until
from tests.unit.engine.alone import Notes, hello, make_peers, welcomed

RANKS = range(5, 16)
LIMIT = 3
ANSWERS = Mapping[str, Any] | str


class Who(NamedTuple):
    """A host, as the transport knows it."""

    certificate: str = ""
    address: str = ""
    ranks: tuple[int, ...] = ()

    def known(self) -> dict[str, Any]:
        return {**self._asdict(), "ranks": list(self.ranks), "serial": "1f"}


ALICE, BOB = Who("alice's", "10.0.0.1"), Who("bob's", "10.0.0.2", (4,))
MALLORY, EVE = Who("mallory's", "10.0.0.66"), Who("eve's", "10.0.0.67")
STRANGER = Who("", "10.0.0.68")


def comes(peers: Peers, who: Who, *workers: int, **said: Any) -> ANSWERS:
    """A host joins, at once or when it is told to try again; its link is open then."""
    says = {**hello(*workers), **who.known(), **said}
    answer = peers.admission.admit(says)
    if isinstance(answer, Later):
        peers.make_room()
        answer = peers.admission.admit(says)
    if isinstance(answer, Mapping):
        peers.joined(workers[0], says)
        peers.arrived(workers[0])
    return answer


def asks(peers: Peers, who: Who) -> ANSWERS:
    return peers.admission.admit({"purpose": "ask", **who.known()})


def is_in(answer: ANSWERS) -> bool:
    return not isinstance(answer, str)


def lies(peers: Peers, who: Who, *workers: int, **said: Any) -> bool:
    """A host joins, if it may, and says what makes no sense."""
    if is_in(comes(peers, who, *workers, **said)):
        peers.blame(workers[0], "its READY message makes no sense")
        return True
    return False


def run_with_alice(**how: Any) -> Peers:
    """A run of four; alice has rank 3 and is away, and none is kept any more for its time alone."""
    peers = make_peers(4, return_seconds=0.0, most_ranks=32, strikes=LIMIT, **how)
    for who, rank in ((Who(), 1), (Who(), 2), (ALICE, 3)):
        assert is_in(comes(peers, who, rank))
    peers.begin()
    peers.lose(3, "gone")
    return peers


@claim(
    "ranks-of-hosts",
    "A host that breaks rules is shut out with its certificate, whatever rank it claims, "
    "after --set strikes messages that make no sense",
)
def test_a_certificate_without_ranks_burns_its_own_standing_alone() -> None:
    peers = run_with_alice()
    assert [rank for rank in (3, *RANKS, *RANKS) if lies(peers, MALLORY, rank)] == [5, 6, 7]
    for rank in RANKS:
        assert "was shut out" in str(comes(peers, MALLORY, rank))
    assert "was shut out" in str(asks(peers, MALLORY))
    assert is_in(comes(peers, ALICE, 3))
    for rank in RANKS:
        assert is_in(comes(peers, Who(f"honest {rank}"), rank))
    assert peers.strikes.strikes_of(3) == peers.strikes.strikes_of(5) == 0


@claim("named-ranks", "The certificate that names a rank goes first.")
def test_a_certificate_gets_the_rank_that_it_names_whoever_has_it() -> None:
    notes = Notes()
    peers = run_with_alice(notes=notes)
    assert is_in(comes(peers, MALLORY, 4, 5))
    assert is_in(comes(peers, BOB, 4))
    assert peers.hosts() == {1: [1], 2: [2], 4: [4]}
    assert not notes.events("shut out")
    assert "names rank 4" in notes.lines[-2]
    peers.lose(4, "gone")
    assert "names rank 4" in str(comes(peers, MALLORY, 4))
    assert is_in(comes(peers, MALLORY, 5)), "it was no strike"
    assert is_in(comes(peers, BOB, 4))
    peers.lose(4, "gone")
    assert is_in(comes(peers, BOB._replace(certificate="bob's again"), 4))


def test_a_certificate_that_asks_has_its_ranks_from_then_on() -> None:
    peers = run_with_alice()
    assert is_in(comes(peers, STRANGER, 4))
    assert welcomed(asks(peers, BOB))["rank"] == 4
    peers.lose(4, "gone")
    for who in (MALLORY, STRANGER):
        assert "names rank 4" in str(comes(peers, who, 4))


def test_ranks_of_the_servers_machine_are_its_users_choice() -> None:
    assert is_in(comes(run_with_alice(), Who(), 3)), "alice's rank was moved there"


def test_hosts_of_the_servers_machine_and_of_the_same_certificate_stay() -> None:
    peers = run_with_alice()
    both = Who("carol's", "10.0.0.3", (1, 6, 7))
    assert is_in(comes(peers, both, 6))
    assert "has joined already" in str(comes(peers, both, 1, 6))
    assert "has joined already" in str(comes(peers, both, 6, 7))
    assert set(peers.hosts()) == {1, 2, 6}


@pytest.mark.parametrize("who", [MALLORY, STRANGER], ids=["certificate", "address"])
def test_strikes_come_along_to_another_rank(who: Who) -> None:
    peers = run_with_alice()
    for rank in (5, 6, 7):
        assert is_in(comes(peers, who, rank))
        peers.strikes.refuse(rank)
        peers.refused(rank, "NaN or Inf")
        peers.lose(rank, "gone")
    assert "was shut out" in str(comes(peers, who, 8))
    assert is_in(comes(peers, EVE, 7)), "the rank is free"


@claim("ranks-of-hosts", "also after --resume and at a standby")
@pytest.mark.parametrize("takes_over", [True, False], ids=["standby", "resume"])
def test_the_next_server_knows(takes_over: bool) -> None:
    peers = run_with_alice()
    while lies(peers, MALLORY, 5) or lies(peers, STRANGER, 6):
        pass
    lies(peers, EVE, 7)
    comes(peers, BOB, 4)
    admission = peers.admission
    entries: dict[str, Any] = {
        "owners": {str(n): owner[1:] for n, owner in admission.owners.items()},
        "strikes": admission.standing.strikes,
        "named": {rank: tuple(names) for rank, names in admission.standing.named.items()},
    }
    written = manifest(shut_out=tuple(sorted(admission.shut_out)), **entries).as_bytes()
    read = Manifest.from_bytes(written)
    after = make_peers(4, return_seconds=0.0, most_ranks=32, strikes=LIMIT)
    after.begin()
    after.admission.restore(read, takes_over=takes_over)
    assert "was shut out" in str(comes(after, MALLORY, 8))
    assert is_in(comes(after, MALLORY._replace(certificate="a new one"), 8))
    assert is_in(comes(after, STRANGER, 9)) is not takes_over
    assert "names rank 4" in str(comes(after, EVE, 4))
    assert [lies(after, EVE, 10), lies(after, EVE, 11), lies(after, EVE, 12)] == [True, True, False]
    assert is_in(comes(after, ALICE, 5)), "nobody waits for the one that had it"


def manifest(**identity: Any) -> Manifest:
    files = {"server": StoredFile("server.safetensors", "0" * 64, 1)}
    record: dict[str, Any] = {"iteration": 1, "generation": 1, "progress": {}, "seconds": 0.0}
    record |= {"workers": (), "files": files, "elsewhere": (), "settings": {}, "version": "1"}
    return Manifest(**record, **identity)


@pytest.mark.parametrize("how", ["spent", "silent", "left", "lost"])
def test_no_other_act_of_a_host_costs_the_next_one_with_its_rank_anything(how: str) -> None:
    peers = run_with_alice()
    assert is_in(comes(peers, MALLORY, 4))
    if how == "spent":
        peers.retire(4, "has spent its budget")
    elif how == "silent":
        peers.give_up_on(4, 600.0)
        assert "did not answer" in str(comes(peers, MALLORY, 6))
    elif how == "left":
        peers.leave(4)
    else:
        peers.lose(4, "gone")
    assert is_in(comes(peers, BOB, 4))


def test_who_is_about_to_come_from_the_servers_machine_comes_first() -> None:
    peers = make_peers(4)
    peers.admission.on_their_way = (1, 2)
    assert "is about to come" in str(comes(peers, MALLORY, 1))
    assert is_in(comes(peers, MALLORY, 3))
    assert is_in(comes(peers, Who(), 1))


def test_a_rank_is_promised_to_a_certificate() -> None:
    peers = run_with_alice()
    assert welcomed(asks(peers, EVE))["rank"] == 4
    assert "is promised to another certificate" in str(comes(peers, MALLORY, 4))
    assert is_in(comes(peers, BOB, 4)), "its certificate names it"


def test_who_comes_with_one_rank_after_the_other_has_few_kept() -> None:
    peers = run_with_alice()
    for rank in range(4, 33):
        assert is_in(comes(peers, MALLORY, rank))
        peers.lose(rank, "gone")
    newcomers = [asks(peers, Who(f"honest {n}")) for n in range(25)]
    assert all(map(is_in, newcomers))


def test_a_revoked_certificate_keeps_no_rank() -> None:
    peers = run_with_alice()
    assert "is kept for another certificate" in str(comes(peers, MALLORY, 3))
    peers.admission.standing.revoked = (0x1F,)
    assert is_in(comes(peers, MALLORY, 3))


# Whatever happens in which order.

RANKLESS = tuple(Who(f"rankless {n}", f"10.0.1.{n}") for n in range(3))
WITHOUT = tuple(Who("", f"10.0.2.{n}") for n in range(2))
NAMED = (Who("named 1", "10.0.3.1", (3,)), Who("named 2", "10.0.3.2", (4, 5)))
acts = st.tuples(
    st.sampled_from(["lies", "joins", "spoils", "lost", "left", "asks", "silent", "spent"]),
    st.sampled_from([*RANKLESS, *WITHOUT, NAMED[1]]),
    st.integers(1, 8),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(acts, max_size=30), st.booleans())
@example([("lies", RANKLESS[0], 3)] * 4 + [("joins", RANKLESS[1], 3)], False)
@example([("joins", RANKLESS[0], 3), ("silent", RANKLESS[0], 3)], True)
def test_an_honest_host_gets_its_rank_and_keeps_its_standing(
    done: list[tuple[str, Who, int]], begun: bool
) -> None:
    peers = make_peers(8, most_ranks=8, strikes=LIMIT)
    assert is_in(comes(peers, Who(), 1))
    assert is_in(comes(peers, ALICE, 2))
    if begun:
        peers.begin()
    peers.lose(2, "gone")
    for act, who, rank in done:
        workers = peers.hosts()
        holder = peers.admission.owners.get(rank)
        is_its = rank in workers and holder is not None and holder.who == owner_of(who)
        if act in ("joins", "lies"):
            if rank in (who.ranks or range(9)):
                (comes if act == "joins" else lies)(peers, who, rank)
        elif act == "asks":
            asks(peers, who)
        elif is_its and act == "spoils":
            peers.strikes.refuse(rank)
            peers.refused(rank, "NaN or Inf")
        elif is_its and act == "lost":
            peers.lose(rank, "gone")
        elif is_its and act == "left":
            peers.leave(rank)
        elif is_its and act == "silent":
            peers.give_up_on(rank, 600.0)
        elif is_its and act == "spent":
            peers.retire(rank, "has spent its budget")
        assert 1 in peers.hosts(), "it had no part in it"
    honest = NAMED[0]
    for who, rank in ((honest, 3), (ALICE, 2)):
        assert is_in(comes(peers, who, rank)), (who, rank)
        assert peers.strikes.strikes_of(rank) == 0
        assert not peers.admission.standing.is_out(rank)


def owner_of(who: Who) -> str:
    return f"certificate {who.certificate}" if who.certificate else f"address {who.address}"


# As users see it.

TRAIN = [*MDGAN, "train", "--world-size", "3", "--iterations", "1000000", "--batch-size", "8"]
TRAIN += ["--threads", "1", "--sample-interval", "0", "--eval-interval", "0"]
TRAIN += ["--checkpoint-interval", "0"]


def test_a_run_with_a_stranger_that_claims_ranks(tmp_path: Path) -> None:
    """Its certificate names none. It says nonsense with each rank, then squats on one."""
    assert run_here("credentials", "init", "authority", cwd=tmp_path).status == 0
    issued = (["main", "--role", "server"], ["mallory"], ["eve"], ["bob", "--ranks", "4"])
    for more in issued:
        assert run_here("credentials", "issue", "authority", *more, cwd=tmp_path).status == 0
    main, mallory, eve, bob = (f"authority/{more[0]}.cred" for more in issued)
    listen = ["--listen", "127.0.0.1:0", "--credentials", main, "--out", "run"]
    server, run = start([*TRAIN, *listen], tmp_path), tmp_path / "run"
    wait_until(lambda: (run / "run.json").exists() and read_status(run)["state"] == "running", "")
    place = read_status(run)["listens"]
    refusals = [liar(tmp_path / mallory, place, rank) for rank in range(3, 9)]
    assert ["was shut out" in why for why in refusals] == [False] * LIMIT + [True] * 3
    squatter = link(tmp_path / eve, place, 4)
    join = ["join", "--master-port", place.rpartition(":")[2], "--threads", "1"]
    joins = start([*MDGAN, *join, "--credentials", bob], tmp_path)
    wait_until(lambda: [4] in [e["workers"] for e in read_events(run, "joined")], "bob has 4")
    wait_until(lambda: gone(squatter), "the squatter is gone")
    server.terminate()
    assert finish(server).status == 143
    assert "Traceback" not in finish(joins).errors
    assert {rank for e in read_events(run, "shut out") for rank in e["workers"]} <= {3, 4, 5}


def link(credentials: Path, place: str, rank: int) -> GrpcHostTransport:
    identity = read_credentials(credentials)
    settings = ask(place, identity, Timeouts(), Until(20.0))["identity"]
    own_hello = make_hello(rank, {rank: [8] * 10}, settings)
    access = Access(identity, Revocations(None, b""), 32, lambda _: 1 << 16)
    accepts = {str(kind): Most(1 << 26, 1 << 26) for kind in Kind}
    limits = replace(Timeouts(), farewell=0.5)
    return GrpcHostTransport(place, access, own_hello, accepts, {}, limits, None, Until(20.0))


def gone(host: GrpcHostTransport) -> bool:
    while (event := host.receive(0.1)) is not None:
        if isinstance(event, Lost):
            host.close()
            return True
    return False


def liar(credentials: Path, place: str, rank: int) -> str:
    """Says nonsense with a rank until its link ends; or why it was not let in."""
    try:
        host = link(credentials, place, rank)
    except grpc.RpcError as error:
        return str(error.details())
    host.send(Message(Kind.READY, 0, {"holds": [], "told": ["nothing"]}))
    wait_until(lambda: gone(host), "its link ends")
    return ""
