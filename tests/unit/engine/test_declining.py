"""Hosts that say why they cannot join, before the server begins training."""

from typing import Any

import pytest

from mdgan.engine.server.peers import Peers
from tests.unit.engine.alone import hello, join, make_peers, refused, welcomed

KNOWN: dict[str, Any] = {"certificate": "", "address": "", "serial": "", "ranks": []}


def declines(peers: Peers, *ranks: int, why: str = "no file", **identity: Any) -> Any:
    values = {"purpose": "decline", "workers": list(ranks), "why": why}
    return peers.admission.admit({**KNOWN, **values, **identity})


def test_a_rank_that_was_promised_is_given_back_with_the_reason() -> None:
    peers = make_peers(2)
    question = {"purpose": "ask", "address": "10.0.0.7"}
    rank = welcomed(peers.admission.admit(question))["rank"]
    said = welcomed(declines(peers, rank, address="10.0.0.7"))
    assert said["noted"] == peers.admission.cannot_join[rank] == f"rank {rank} cannot join: no file"
    again = welcomed(peers.admission.admit({**question, "address": "10.0.0.8"}))
    assert again["rank"] == rank, "the rank is free at once"
    assert rank not in peers.admission.cannot_join, "its new host is waited for"


def test_a_host_that_joins_after_all_is_not_left_out() -> None:
    peers = make_peers(2)
    declines(peers, 1)
    join(peers, 1)
    assert not peers.admission.cannot_join


def test_the_words_of_a_host_are_one_short_printable_line() -> None:
    peers = make_peers(2)
    said = welcomed(declines(peers, 1, why=f"\x1b[2J{'x' * 1000}\nsecond line"))["noted"]
    assert said.isprintable()
    assert len(said) < 600


@pytest.mark.parametrize(
    ("rank", "known"),
    [
        (1, {}),  # it has joined
        (9, {}),  # the run has no rank 9
        (2, {"address": "10.0.0.9"}),  # it comes from the server's own machine
    ],
)
def test_nobody_declines_for_a_host_that_is_there_or_comes(rank: int, known: Any) -> None:
    peers = make_peers(2, on_their_way={2})
    join(peers, 1)
    refused(declines(peers, rank, **known))
    assert not peers.admission.cannot_join


def test_what_one_certificate_was_promised_another_cannot_decline() -> None:
    peers = make_peers(2)
    alice = {"certificate": "alice's", "address": "10.0.0.7"}
    rank = welcomed(peers.admission.admit({"purpose": "ask", **alice}))["rank"]
    refused(declines(peers, rank, certificate="mallory's", address="10.0.0.8"))
    welcomed(declines(peers, rank, **alice))


def test_a_host_of_another_run_is_not_waited_for() -> None:
    peers = make_peers(2)
    message = refused(peers.admission.admit(hello(2, batch_size=9)))
    assert peers.admission.cannot_join == {2: message}


def test_once_training_has_begun_it_is_noted_alone() -> None:
    peers = make_peers(2)
    join(peers, 1)
    join(peers, 2)
    peers.begin()
    assert welcomed(declines(peers, 3))["noted"] == "rank 3 cannot join: no file"
    assert not peers.admission.cannot_join
