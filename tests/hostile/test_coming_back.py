"""Which hosts may join a run in progress by `mdgan join`, and for which it does not wait."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mdgan.engine.hello import Owner
from mdgan.engine.server.peers import Peers
from tests.claims.registry import claim
from tests.processes import (
    MDGAN,
    check_refused,
    finish,
    read_events,
    read_status,
    run_here,
    start,
    training,
    wait_until,
)
from tests.unit.engine.alone import hello, make_peers, refused, welcomed
from tests.unit.engine.test_admission import CHECKPOINT

SHORT = ["train", "--batch-size", "8", "--threads", "1", "--sample-interval", "0"]
SHORT += ["--iterations", "1000000", "--checkpoint-interval", "0"]


def going_on(**owners: tuple[str, str]) -> Peers:
    """Peers of a run of three that goes on; by `rank1` …, a certificate and an address of before.

    Rank 3 is started beside the server.
    """
    peers = make_peers(3, checkpoint=CHECKPOINT)
    peers.admission.owners = {int(n.removeprefix("rank")): Owner("", *o) for n, o in owners.items()}
    peers.admission.on_their_way = (3,)
    return peers


def asks(peers: Peers, **identity: Any) -> Mapping[str, Any] | str:
    return peers.admission.admit({"purpose": "ask", **identity})


def gives_back(peers: Peers, rank: int, address: str) -> None:
    entries = {"certificate": "", "address": address, "serial": "", "ranks": []}
    values = {"purpose": "decline", "workers": [rank], "why": ""}
    peers.admission.admit({**values, **entries})


def test_each_certificate_gets_the_rank_back_that_it_had() -> None:
    peers = going_on(rank1=("alice's", "10.0.0.1"), rank2=("bob's", "10.0.0.2"))
    assert welcomed(asks(peers, certificate="bob's", address="10.0.0.9"))["rank"] == 2
    assert welcomed(asks(peers, certificate="eve's"))["rank"] == 4, "rank 1 is kept for alice"
    assert welcomed(asks(peers, certificate="alice's"))["rank"] == 1
    named = {"certificate": "new", "ranks": [2]}
    assert welcomed(asks(peers, **named))["rank"] == 2, "what a certificate names counts more"


def test_without_certificates_of_their_own_addresses_tell_them_apart() -> None:
    peers = going_on(rank1=("", "10.0.0.1"), rank2=("", "10.0.0.2"))
    assert welcomed(asks(peers, address="10.0.0.2"))["rank"] == 2
    assert welcomed(asks(peers, address="10.0.0.8"))["rank"] == 1, "nobody else claims it"
    assert welcomed(asks(peers, address="10.0.0.1"))["rank"] == 4, "that is no dead end"


def test_who_had_no_rank_gets_none_that_is_on_its_way() -> None:
    peers = going_on()
    assert [welcomed(asks(peers))["rank"] for _ in range(3)] == [1, 2, 4]
    for rank in (1, 2, 3):
        welcomed(peers.admission.admit(hello(rank)))


def test_a_failed_join_gives_its_rank_back() -> None:
    peers = going_on()
    assert welcomed(asks(peers, address="10.0.0.7"))["rank"] == 1
    gives_back(peers, 1, address="10.0.0.8")
    assert welcomed(asks(peers, address="10.0.0.8"))["rank"] == 2, "it was not that one's to give"
    gives_back(peers, 1, address="10.0.0.7")
    assert welcomed(asks(peers, address="10.0.0.7"))["rank"] == 1


def test_another_dataset_file_is_named() -> None:
    peers = make_peers()
    peers.admission.identity |= {"dataset": "shapes", "dataset_sha256": "0"}  # type: ignore[operator]  # a Mapping, here a dict
    message = refused(peers.admission.admit(hello(2, dataset="shapes", dataset_sha256="1")))
    assert message.startswith(
        "rank 2 has another shapes.py than rank 0; copy rank 0's shapes.py to"
    )


def test_a_join_that_fails_blocks_no_rank_and_a_newcomer_says_what_it_holds(tmp_path: Path) -> None:
    scored = ["--eval-interval", "20", "--set", "eval_samples=100"]
    running = training(tmp_path, *SHORT, "--world-size", "3", *scored)
    wait_until(lambda: bool(read_events(running.folder, "scores")), "the first scores")
    wrong = finish(start([*MDGAN, "join", "run", "--data-dir", "nowhere"], tmp_path))
    check_refused(wrong, "--data-dir nowhere")
    guest = start([*MDGAN, "join", "run"], tmp_path)
    wait_until(lambda: bool(read_events(running.folder, "joined")), "a join")
    assert read_events(running.folder, "joined")[0]["workers"] == [3]
    wait_until(lambda: bool(read_events(running.folder, "real")), "other real samples")
    running.process.terminate()
    output = finish(running.process).errors
    assert "from now on scores compare with 2,876 real samples" in output
    assert read_events(running.folder, "real")[0]["num_samples"] == 2876
    assert "rank 3 holds all 1,438 samples of digits: --partition iid" in finish(guest).errors


@claim("roles", "A worker's certificate cannot pass for the server's.")
def test_a_server_with_the_certificate_of_a_worker_is_refused(tmp_path: Path) -> None:
    assert run_here("credentials", "init", "authority", cwd=tmp_path).status == 0
    assert run_here("credentials", "issue", "authority", "alice", cwd=tmp_path).status == 0
    shown = ["--credentials", "authority/alice.cred", "--listen", "127.0.0.1:0"]
    refusal = run_here(*SHORT, "--ranks", "0", *shown, cwd=tmp_path)
    check_refused(refusal, "is that of a worker", "--role server")
    assert not (tmp_path / "runs").exists()


def test_a_checkpoint_notes_who_had_which_rank(tmp_path: Path) -> None:
    assert run_here("credentials", "new", "run.cred", cwd=tmp_path).status == 0
    flags = ["--ranks", "0", "--world-size", "2", "--listen", "127.0.0.1:0", "--out", "run"]
    run = tmp_path / "run"
    saves = ["--checkpoint-interval", "5", "--credentials", "run.cred", "--eval-interval", "0"]
    server = start([*MDGAN, *SHORT, *flags, *saves], tmp_path)
    wait_until(lambda: (run / "run.json").exists(), "a place")
    place = read_status(run)["listens"]
    shown = ["--master-port", place.rpartition(":")[2], "--credentials", "run.cred"]
    guest = start([*MDGAN, "join", *shown, "--threads", "1"], tmp_path)
    manifests = run / "checkpoints"
    wait_until(lambda: bool([*manifests.glob("*/manifest.json")]), "a checkpoint")
    server.terminate()
    finish(server)
    finish(guest)
    newest = max(manifests.glob("*/manifest.json"))
    (owner,) = json.loads(newest.read_text())["owners"].values()
    assert owner[:2] == ["", "127.0.0.1"]
    assert int(owner[2], 16) > 0
