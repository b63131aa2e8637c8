"""What a host signs when it leaves a run."""

import msgspec
import pytest

from mdgan.credentials.identity import Identity
from mdgan.credentials.pem import now
from mdgan.privacy.attestation import Attestation, Statement, attest, rounded_up
from tests.claims.registry import claim
from tests.unit.credentials.test_signing import ANOTHER, AUTHORITY, issued

TERMS = {"algorithm": "mdgan", "batch_size": 10, "betas": (0.5, 0.9)}
KNOWN = Statement("r1", TERMS, 0)
ACCOUNT = {"epsilon": {"1": 2.5}, "replaced": {"1": 5.0}}


@pytest.fixture(name="own")
def an_identity() -> Identity:
    return issued(AUTHORITY, "worker", 1)


def signed(own: Identity, **changes: object) -> Attestation:
    text = Statement("r1", {**TERMS, **changes}, 7, "abc").text()
    return attest(own, text, KNOWN, [1], ACCOUNT)


def test_a_host_signs_what_it_knows_to_be_so(own: Identity) -> None:
    answer = signed(own)
    assert not answer.refusal
    assert answer.check(own.authorities, now()).name == "alice"
    assert (answer.epsilon, answer.said().generator) == ({1: 2.5}, "abc")


@claim("signs-what-it-knows", "A host that knows something else does not sign, and says why.")
def test_a_host_does_not_sign_other_terms(own: Identity) -> None:
    answer = signed(own, batch_size=1)
    assert not answer.signature
    assert answer.refusal == "the server says batch_size = 1, this host has 10"


@claim("signs-what-it-knows", "A host that knows something else does not sign, and says why.")
def test_a_host_does_not_sign_for_another_run_or_for_nonsense(own: Identity) -> None:
    other = attest(own, Statement("r2", TERMS, 7).text(), KNOWN, [1], ACCOUNT)
    assert "another run, r2" in other.refusal
    nested = KNOWN.text().replace('"iteration"', '"terms": {"x": ' + "[" * 30_000 + '"iteration"')
    for text in ("", "{", "[]", '{"run": 3}', '{"run": "r1", "terms": [], "iteration": 1}', nested):
        assert attest(own, text, KNOWN, [1], ACCOUNT).refusal.endswith("cannot be read")


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": {1: 1.0}},
        {"replaced": {}},
        {"epsilon": {1: 2.5 + 1e-9}},
        {"workers": [2]},
        {"statement": Statement("r1", TERMS, 8, "abc").text()},
        {"signature": "00"},
        {"chain": ""},
    ],
)
def test_nothing_can_be_changed_afterwards(own: Identity, change: dict[str, object]) -> None:
    answer = signed(own)
    with pytest.raises(ValueError, match=r"."):
        msgspec.structs.replace(answer, **change).check(own.authorities, now())


def test_a_signature_of_another_authority_does_not_count(own: Identity) -> None:
    with pytest.raises(ValueError, match="does not count"):
        signed(own).check(issued(ANOTHER).authorities, now())


@claim("signs-what-it-knows", "A host that knows something else does not sign, and says why.")
def test_a_host_that_was_there_until_the_end_signs_for_one_generator(own: Identity) -> None:
    blank = Statement("r1", TERMS, 7).text()
    answer = attest(own, blank, KNOWN, [1], ACCOUNT)
    assert answer.refusal.startswith("the server names no generator")
    assert not answer.signature
    assert attest(own, blank, KNOWN, [1], ACCOUNT, leaves_early=True).signature


@claim("signs-what-it-knows", "A host that knows something else does not sign, and says why.")
def test_a_host_signs_for_the_counts_that_it_has_learnt(own: Identity) -> None:
    said = Statement("r1", TERMS, 7, "abc", "def")
    assert "other counts" in attest(own, said.text(), KNOWN, [1], ACCOUNT).refusal
    known = Statement("r1", TERMS, 0, learnt="def")
    assert attest(own, said.text(), known, [1], ACCOUNT).signature


@pytest.mark.parametrize(
    ("epsilon", "told"), [(0.0, 0.0), (2.5, 2.5), (2.9981, 3.0), (3.0, 3.0), (0.012341, 0.0124)]
)
@claim("nothing-real", "With differential privacy the number of samples is not told")
def test_what_was_spent_is_told_in_three_digits_and_never_too_small(
    epsilon: float, told: float
) -> None:
    assert rounded_up(epsilon) == told
