"""Callers that ask for ranks again and again, and do not join."""

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mdgan.credentials.identity import read_credentials
from mdgan.credentials.permit import permit_of
from mdgan.engine.server.peers import Peers
from mdgan.records.audit_log import AUDIT_LOG_FILE
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Later
from mdgan.transport.until import Until
from tests.claims.registry import claim
from tests.processes import MDGAN, finish, read_events, read_status, run_here, start, wait_until
from tests.unit.engine.alone import hello, join, make_peers, welcomed

RANKS = range(1, 30)


def run_of_two(most_ranks: int = max(RANKS)) -> Peers:
    peers = make_peers(2, most_ranks=most_ranks)
    join(peers, 1)
    join(peers, 2)
    peers.begin()
    return peers


def asks(peers: Peers, **identity: Any) -> Mapping[str, Any] | str:
    """A caller asks for a rank; the transport adds what is known of it."""
    return peers.admission.admit({"purpose": "ask", **identity})


def test_one_certificate_is_promised_one_rank_however_often_it_asks() -> None:
    peers = run_of_two()
    mallory = [welcomed(asks(peers, certificate="mallory's"))["rank"] for _ in RANKS]
    assert set(mallory) == {3}
    assert welcomed(asks(peers, certificate="bob's"))["rank"] == 4
    welcomed(peers.admission.admit({**hello(3), "certificate": "mallory's"}))
    assert welcomed(asks(peers, certificate="mallory's"))["rank"] == 5, "the other one has joined"


def test_one_address_is_promised_a_few() -> None:
    peers = run_of_two()
    result = [asks(peers, address="10.0.0.7") for _ in RANKS]
    promised = [answer["rank"] for answer in result if isinstance(answer, Mapping)]
    assert promised == list(range(3, 11))
    assert isinstance(result[-1], Later), "it may ask again once some have joined"
    assert result[-1] == "8 ranks are promised to 10.0.0.7; let them join first"
    assert welcomed(asks(peers, address="10.0.0.8"))["rank"] == 11


@pytest.mark.parametrize("fingerprints", [{}, {"certificate": "{}'s"}, {"address": "10.0.0.{}"}])
def test_whatever_others_were_promised_a_certificate_gets_the_rank_that_it_names(
    fingerprints: Mapping[str, str],
) -> None:
    peers = run_of_two()
    for n in RANKS:
        asks(peers, **{name: text.format(n) for name, text in fingerprints.items()})
    alice = {"certificate": "alice's", "ranks": [7]}
    for _ in range(2):  # again, if it could not join
        assert welcomed(asks(peers, **alice))["rank"] == 7
    welcomed(peers.admission.admit({**hello(7), **alice}))
    refusal = "every rank that its certificate names is taken; wait, or issue another"
    assert asks(peers, certificate="alice's again", ranks=[7]) == refusal


TRAIN = [*MDGAN, "train", "--world-size", "3", "--iterations", "1000000", "--batch-size", "8"]
TRAIN += ["--threads", "1", "--sample-interval", "0", "--eval-interval", "0"]
TRAIN += ["--checkpoint-interval", "0"]


@claim(
    "audit-log",
    "audit-log.jsonl holds who joined, left, was lost, shut out or refused: time, ranks, address, "
    "the certificate's fingerprint.",
)
def test_others_still_come_in(tmp_path: Path) -> None:
    """As users see it: one certificate asks 29 times, and another that names a rank joins."""
    from mdgan.transport.visit import ask

    assert run_here("credentials", "init", "authority", cwd=tmp_path).status == 0
    for more in (["main", "--role", "server"], ["mallory"], ["alice", "--ranks", "8"]):
        assert run_here("credentials", "issue", "authority", *more, cwd=tmp_path).status == 0
    main, mallory, alice = (f"authority/{name}.cred" for name in ("main", "mallory", "alice"))
    listen = ["--listen", "127.0.0.1:0", "--credentials", main, "--out", "run"]
    server = start([*TRAIN, *listen], tmp_path)
    run = tmp_path / "run"
    wait_until(lambda: (run / "run.json").exists() and read_status(run)["state"] == "running", "")
    place = read_status(run)["listens"]
    identity = read_credentials(tmp_path / mallory)
    ranks = {ask(place, identity, Timeouts(), Until(20.0))["rank"] for _ in RANKS}
    assert ranks == {3}
    port = place.rpartition(":")[2]
    join = ["join", "--master-port", port, "--credentials", alice, "--threads", "1"]
    joins = start([*MDGAN, *join], tmp_path)
    wait_until(lambda: bool(read_events(run, "joined")), "a newcomer takes part")
    assert read_events(run, "joined")[0]["workers"] == [8]
    server.send_signal(signal.SIGINT)
    ended = finish(server)
    assert ended.status == 130
    assert "answered" not in ended.output + ended.errors, "what goes well is for the audit log"
    assert "Traceback" not in finish(joins).errors
    check_audit_log(run, {name: name_of(tmp_path / f"authority/{name}.cred") for name in NAMES})


NAMES = ("mallory", "alice")


def name_of(credentials: Path) -> str:
    """The fingerprint of a file's certificate, as the log has it."""
    identity = read_credentials(credentials)
    return permit_of(identity.certificate).fingerprint


def check_audit_log(run: Path, fingerprints: Mapping[str, str]) -> None:
    """It says who asked and joined, what is repeated less and less often, and its chain holds."""
    log = [json.loads(line) for line in (run / AUDIT_LOG_FILE).read_text().splitlines()]
    arguments = [e["outcome"] for e in log if fingerprints["mallory"] == e["fingerprint"]]
    assert arguments == ["answered", *(f"answered ({n} times so far)" for n in (2, 4, 8, 16))]
    said = [(e["action"], e["ranks"]) for e in log if fingerprints["alice"] == e["fingerprint"]]
    assert said[:2] == [("ask", []), ("join", [8])]
    assert {e["address"] for e in log if e["fingerprint"]} == {"127.0.0.1"}
    assert sorted(e["ranks"] for e in log if e["action"] == "join") == [[1], [2], [8]]
    verified = run_here("log", "verify", str(run), cwd=run)
    assert verified.status == 0
    assert f"whole, {len(log)} entries" in verified.output
