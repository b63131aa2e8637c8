"""What certificates permit, also those of strangers."""

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from mdgan.credentials.authority import make_authority
from mdgan.credentials.pem import now, pem_of
from mdgan.credentials.permit import ROLES, Permit, permit_of

DAY = timedelta(days=1)
AUTHORITY = make_authority(DAY, now())
KEY = ec.generate_private_key(ec.SECP256R1())
ALICE = AUTHORITY.issue("alice", "worker", [3, 4], DAY, now())[0]


def foreign(name: str | None, *names: x509.GeneralName) -> bytes:
    """A certificate as another authority might make it."""
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)] if name is not None else []
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(x509.Name(subject))
        .public_key(KEY.public_key())
        .serial_number(7)
        .not_valid_before(now())
        .not_valid_after(now() + DAY)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM)


def uri(text: str) -> x509.GeneralName:
    return x509.UniformResourceIdentifier(text)


@given(
    role=st.sampled_from([None, *ROLES]),
    ranks=st.frozensets(st.integers(1, 10**6), max_size=20),
    asked=st.lists(st.integers(0, 10**6), max_size=5),
)
def test_what_was_issued_is_read_again(
    role: str | None, ranks: frozenset[int], asked: list[int]
) -> None:
    made = AUTHORITY.issue("alice", role, ranks, DAY, now())[0]
    permit = permit_of(pem_of(made, AUTHORITY.certificate))
    assert permit == Permit("alice", role, ranks or None, made.serial_number)
    for wanted in ROLES:
        may = role in (None, wanted) or (role, wanted) == ("standby", "server")
        may = may and (not ranks or ranks.issuperset(asked))
        told = permit.refusal(wanted, asked)
        assert (told is None) == may
        assert told is None or ("alice" in told and "\n" not in told)


def test_an_authority_that_knows_no_names_of_ours_permits_all() -> None:
    permit = permit_of(foreign("node 7", x509.DNSName("node7.example.org"), uri("spiffe://a/b")))
    assert permit == Permit("node 7", None, None, 7)
    assert permit_of(foreign(None, x509.DNSName("node7"))).name == "node7"
    assert permit_of(foreign(None)).name == "no name"


def test_refusals_name_what_is_allowed_and_two_roles_are_none() -> None:
    permit = permit_of(pem_of(ALICE))
    assert permit.refusal("worker", [5]) == "its certificate (alice) names ranks 3,4, not 5"
    message = "its certificate (alice) is that of a worker, not of a server"
    assert permit.refusal("server", [0]) == message
    with pytest.raises(ValueError, match="2 roles"):
        permit_of(foreign("eve", uri("mdgan:role:worker"), uri("mdgan:role:server")))


def test_names_cannot_move_a_terminal() -> None:
    name = permit_of(foreign("\x1b[2J\nall is well\u202e")).name
    assert name == "?[2J?all is well?"


@pytest.mark.parametrize(
    "text",
    [
        *("mdgan:role:king", "mdgan:rank:-1", "mdgan:rank:", "mdgan:rank:03", "MDGAN:rank:3"),
        *("mdgan:rank:1e3", "mdgan:until:noon", "mdgan:rank:9999999999", "mdgan:role:Worker"),
    ],
)
def test_a_limit_that_is_not_understood_is_not_dropped(text: str) -> None:
    with pytest.raises(ValueError, match="does not know") as refused:
        permit_of(foreign("eve", uri(text)))
    assert "\n" not in str(refused.value)
