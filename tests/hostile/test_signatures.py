"""A host that signs something else about the run than what the server has stated."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from mdgan import messages
from mdgan.credentials.identity import sign
from mdgan.engine.server.peers import Peers
from mdgan.privacy.attestation import Attestation, Statement, attest
from tests.claims.registry import claim
from tests.unit.credentials.test_signing import ANOTHER, AUTHORITY, issued
from tests.unit.engine.alone import Notes, join, make_peers

OWN = issued(AUTHORITY, "worker", 1)
SPENT = {"epsilon": {"1": 2.5}, "replaced": {"1": 5.0}}


@pytest.fixture(name="notes")
def the_notes() -> Notes:
    return Notes()


@pytest.fixture(name="peers")
def the_peers(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> Peers:
    peers = make_peers(2, notes=notes, trusts=issued(AUTHORITY, "server"))
    monkeypatch.setattr(peers.transport, "send", lambda *_: None)
    join(peers, 1)
    join(peers, 2)
    return peers


def asked(peers: Peers) -> str:
    """The server ends the run, and asks all hosts to sign this."""
    text = peers.statement(7)
    assert peers.dismiss_all(messages.stop(7, "", said=text)) == {1, 2}
    return text


def answer_to(text: str) -> Attestation:
    said = msgspec.json.decode(text, type=Statement)
    return attest(OWN, text, said, [1], SPENT, leaves_early=True)


def signed(answer: Attestation, **changes: Any) -> Attestation:
    """A host signs whatever it likes with its own key."""
    other = msgspec.structs.replace(answer, **changes)
    return msgspec.structs.replace(other, signature=sign(OWN, other.signed_bytes()).hex())


def hears(peers: Peers, answer: Attestation | Mapping[str, Any], host: int = 1) -> None:
    fields = msgspec.to_builtins(answer, str_keys=True)
    peers.attested(host, messages.attest(7, fields))


def test_what_an_honest_host_signs_is_kept_once(peers: Peers, notes: Notes) -> None:
    answer = answer_to(asked(peers))
    hears(peers, answer)
    with pytest.raises(ValueError, match="not about what the server has stated"):
        hears(peers, answer)
    assert len(notes.events("attested")) == 1


@claim("default-open", "Without an audit the run is not fit.")
@pytest.mark.parametrize("field", ["terms", "run", "generator", "learnt", "iteration"])
def test_no_host_says_by_which_terms_a_run_is_released(
    field: str, peers: Peers, notes: Notes
) -> None:
    text = asked(peers)
    said = msgspec.json.decode(text, type=Statement)
    lies = {
        "terms": {**said.terms, "dp_epsilon": 1.0, "world_size": 2},
        "run": "other",
        "generator": "ab",
        "learnt": "cd",
        "iteration": 8,
    }
    lie = msgspec.structs.replace(said, **{field: lies[field]}).text()
    with pytest.raises(ValueError, match="not about what the server has stated"):
        hears(peers, signed(answer_to(text), statement=lie))
    (kept,) = notes.events("attested")
    assert (kept["statement"], kept["signature"]) == (text, "")


def test_nobody_signs_before_the_server_asks(peers: Peers, notes: Notes) -> None:
    for text in ("", peers.statement(7)):
        with pytest.raises(ValueError, match="not about what the server has stated"):
            hears(peers, signed(answer_to(peers.statement(7)), statement=text))
    assert not notes.events("attested")


@pytest.mark.parametrize(
    "changes",
    [
        {"signature": "00"},
        {"signature": ""},
        {"chain": issued(ANOTHER, "worker", 1).certificate.decode()},
        {"chain": "# Approved\n" + OWN.certificate.decode()},
        {"chain": issued(AUTHORITY, "worker", 2).certificate.decode()},
        {"workers": [1, 2]},
        {"refusal": "both"},
        {"refusal": "two\n\n# lines", "signature": ""},
    ],
    ids=[
        *("wrong signature", "no signature", "another authority", "text before the chain"),
        *("another rank", "further ranks", "signed and refused", "refused in two lines"),
    ],
)
def test_what_no_reader_could_check_is_not_kept_and_is_told(
    changes: dict[str, Any], peers: Peers, notes: Notes
) -> None:
    answer = answer_to(asked(peers))
    lie = {**msgspec.to_builtins(answer, str_keys=True), **changes}
    if "signature" not in changes:
        lie = msgspec.to_builtins(signed(answer, **changes), str_keys=True)
    with pytest.raises(ValueError, match=r"sign|certificate|written|workers of others|refusal"):
        hears(peers, lie)
    (kept,) = notes.events("attested")
    assert (kept["workers"], kept["signature"], kept["chain"]) == ([1], "", "")
    assert kept["refusal"].startswith("the server rejects its signature: ")
    assert notes.lines[-1].startswith("rank(s) 1 have not signed what is said of the run: the s")


def test_a_refusal_is_one_line_whatever_the_server_has_stated() -> None:
    known = Statement("r1", {}, 0)
    answer = attest(OWN, Statement("x\n\n# y", {}, 0, "a").text(), known, [1], SPENT)
    assert answer.refusal.isprintable()
    assert msgspec.convert(msgspec.to_builtins(answer), Attestation).refusal == answer.refusal
