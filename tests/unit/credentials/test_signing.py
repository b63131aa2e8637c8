"""A process signs with the key of its certificate, and others can check the signature."""

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from mdgan.credentials.authority import Authority, make_authority
from mdgan.credentials.identity import Identity, check_signed, sign
from mdgan.credentials.pem import key_pem, now, pem_of

DAY = timedelta(days=1)
AUTHORITY, ANOTHER = make_authority(DAY, now()), make_authority(DAY, now())


def issued(authority: Authority = AUTHORITY, role: str | None = "worker", *ranks: int) -> Identity:
    certificate, key = authority.issue("alice", role, ranks, DAY, now())
    trusted = pem_of(authority.certificate)
    return Identity(pem_of(certificate), key_pem(key), trusted, by_name=True)


def test_others_learn_what_the_signer_may_be() -> None:
    alice, bob = issued(AUTHORITY, "worker", 3, 4), issued()
    permit = check_signed(bob.authorities, b"words", alice.certificate, sign(alice, b"words"))
    assert (permit.name, permit.role, sorted(permit.ranks or ())) == ("alice", "worker", [3, 4])


def test_what_is_not_signed_by_the_authority_does_not_count() -> None:
    alice, bob, eve = issued(), issued(), issued(ANOTHER)
    with pytest.raises(ValueError, match="its certificate does not count"):
        check_signed(bob.authorities, b"words", eve.certificate, sign(eve, b"words"))
    for statement, signer in ((b"other words", alice), (b"words", bob)):
        with pytest.raises(ValueError, match="the signature is not that of its certificate"):
            check_signed(bob.authorities, b"words", alice.certificate, sign(signer, statement))
    expired = AUTHORITY.issue("alice", "worker", (), DAY, now() - 2 * DAY)[0]
    for chain in (b"", b"no certificate", pem_of(expired)):
        with pytest.raises(ValueError, match="its certificate does not count"):
            check_signed(bob.authorities, b"words", chain, b"")


@pytest.mark.parametrize(
    "key",
    [
        rsa.generate_private_key(65537, 2048),
        ed25519.Ed25519PrivateKey.generate(),
        ec.generate_private_key(ec.SECP384R1()),
    ],
    ids=lambda key: type(key).__name__,
)
def test_keys_of_an_own_authority(
    key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey,
) -> None:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "own")])
    builder = x509.CertificateBuilder().subject_name(name).public_key(key.public_key())
    builder = builder.issuer_name(AUTHORITY.certificate.subject).serial_number(7)
    builder = builder.not_valid_before(now() - DAY).not_valid_after(now() + DAY / 2)
    certificate = builder.sign(AUTHORITY.key, hashes.SHA256())
    trusted = pem_of(AUTHORITY.certificate)
    own = Identity(pem_of(certificate), key_pem(key), trusted, by_name=False)
    assert (
        check_signed(issued().authorities, b"words", own.certificate, sign(own, b"words")).name
        == "own"
    )
    with pytest.raises(ValueError, match="the signature is not"):
        check_signed(issued().authorities, b"others", own.certificate, sign(own, b"words"))


def test_a_certificate_whose_signature_has_unused_bits_does_not_count() -> None:
    """The number of unused bits is not signed, so one certificate could be written in two ways."""
    for _ in range(64):
        identity = issued()
        der = bytearray(
            x509.load_pem_x509_certificate(identity.certificate).public_bytes(Encoding.DER)
        )
        at = len(der) - len(x509.load_der_x509_certificate(bytes(der)).signature) - 1
        assert der[at] == 0
        if der[-1] & 1 == 0:  # so that the parser lets one bit be unused
            break
    der[at] = 1
    other = x509.load_der_x509_certificate(bytes(der)).public_bytes(Encoding.PEM)
    given = sign(identity, b"a statement")
    assert check_signed(identity.authorities, b"a statement", identity.certificate, given)
    with pytest.raises(ValueError, match="unused bits"):
        check_signed(identity.authorities, b"a statement", other, given)
