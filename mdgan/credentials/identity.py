"""Reads a process's certificate, key and trusted authorities; signs statements and checks them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    PolicyBuilder,
    Store,
    VerificationError,
)

from mdgan.credentials import pem
from mdgan.credentials.permit import Permit, is_host, permit_in
from mdgan.errors import BadInput, reason_of
from mdgan.spelling import key as setting

_file = partial(setting, value="FILE")
_MAKE_ONE = "`mdgan credentials new FILE` makes one for all machines of a run"
_PADDING = padding.PSS(padding.MGF1(SHA256()), padding.PSS.DIGEST_LENGTH)


@dataclass(frozen=True)
class Identity:
    """The certificate and key of a process, and the authorities that it trusts."""

    certificate: bytes  # PEM, this process's certificate, then those between it and the authority
    key: bytes = field(repr=False)
    authorities: bytes
    # Whether mdgan made the certificates, which then name `SERVER_NAME` and `HOST_NAME`. Otherwise
    # the user's own authority did, and TLS compares them with the addresses of peers.
    by_name: bool

    def __call__(self) -> "Identity":
        """Returns this identity: an `OwnIdentity` whose files are never read again."""
        return self


OwnIdentity = Callable[[], Identity]
"""Returns the identity that a process's files hold now, since files may be renewed during a run."""


def read_credentials(path: Path) -> Identity:
    """Reads a file that `mdgan credentials new` or `mdgan credentials issue` has written."""
    pem.check_is_private(path)
    data = pem.read_file(path, _MAKE_ONE)
    certificate, *others = pem.certificates_in(path, data)
    authorities = [other for other in others if other.subject == other.issuer]
    if not authorities or not is_host(certificate):
        raise BadInput(
            path,
            "was not made by `mdgan credentials`",
            f"give certificates of your own by {_file('ca')} {_file('certificate')} {_file('key')}",
        )
    between = [other for other in others if other not in authorities]
    key = pem.key_in(path, data)
    pem.check_belongs(key, path, certificate, path=path)
    _check_chain(path, [certificate, *between], authorities, whose=f"the authority in {path}")
    return Identity(
        pem.pem_of(certificate, *between), pem.key_pem(key), pem.pem_of(*authorities), by_name=True
    )


def read_own_pki(ca: Path, certificate: Path, key: Path) -> Identity:
    """Reads certificates that the user's own authority has signed.

    Args:
        ca: the authorities that this process trusts.
        certificate: this process's certificate first, then those between it and the authority.
    """
    pem.check_is_private(key)
    another = "name another file with"
    authorities = pem.certificates_in(ca, pem.read_file(ca, f"{another} {_file('ca')}"))
    way_out = f"{another} {_file('certificate')}"
    chain = pem.certificates_in(certificate, pem.read_file(certificate, way_out))
    private = pem.key_in(key, pem.read_file(key, f"{another} {_file('key')}"))
    pem.check_belongs(private, key, chain[0], path=certificate)
    _check_chain(certificate, chain, authorities, whose=f"an authority in {ca}")
    return Identity(
        pem.pem_of(*chain), pem.key_pem(private), pem.pem_of(*authorities), by_name=False
    )


def verify_chain(
    chain: list[x509.Certificate],
    authorities: list[x509.Certificate],
    clock: datetime | None = None,
) -> None:
    """Checks that a certificate is valid and leads to an authority.

    Args:
        chain: the certificate, then those between it and the authority.
        clock: the time at which all must be valid; None for now.

    Raises:
        VerificationError, or one of `UNREADABLE`: the check fails.
    """
    lenient = ExtensionPolicy.permit_all()
    signs = lenient.require_present(x509.BasicConstraints, Criticality.AGNOSTIC, None)
    policy = PolicyBuilder().store(Store(authorities)).time(clock or pem.now())
    policy = policy.extension_policies(ca_policy=signs, ee_policy=lenient)
    policy.build_client_verifier().verify(chain[0], chain[1:])


def check_dates(path: Path, what: str, certificate: x509.Certificate, clock: datetime) -> None:
    """Refuses a certificate that is not valid now; `what` names the certificate in the message."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    machine = f"this machine's clock says {pem.in_words(clock)}"
    if clock > end:
        raise BadInput(path, f"{what} expired at {pem.in_words(end)} ({machine})", "make a new one")
    if clock < begin:
        why = (
            f"{what} is valid from {pem.in_words(begin)} on, by the clock of the "
            f"machine that made it, and {machine}: the clocks differ"
        )
        raise BadInput(path, why, "set them, or wait")


def _check_chain(
    path: Path, chain: list[x509.Certificate], authorities: list[x509.Certificate], whose: str
) -> None:
    """Refuses a certificate that every peer would refuse: expired, unreadable, not signed."""
    certificate, *others = chain
    check_dates(path, "the certificate", certificate, clock=pem.now())
    try:
        permit_in(certificate)
    except pem.UNREADABLE as error:
        why = f"the certificate cannot be used ({reason_of(error)})"
        raise BadInput(path, why, "make a new one") from error
    for between in others:
        check_dates(path, "a certificate on the way to the authority", between, clock=pem.now())
    if len(authorities) == 1:
        check_dates(path, "the authority's certificate", authorities[0], clock=pem.now())
    try:
        verify_chain(chain, authorities)
    except (VerificationError, *pem.UNREADABLE) as error:
        why = f"the certificate is not signed by {whose} ({reason_of(error)})"
        raise BadInput(path, why, "name the files that belong together") from error


def _way_to_sign(key: object) -> tuple[Any, ...] | None:
    """Arguments to sign with a key by ECDSA with SHA-256, Ed25519 or RSA-PSS; None for others."""
    if isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey):
        return (ec.ECDSA(SHA256()),)
    if isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey):
        return _PADDING, SHA256()
    return () if isinstance(key, ed25519.Ed25519PrivateKey | ed25519.Ed25519PublicKey) else None


def sign(identity: Identity, statement: bytes) -> bytes:
    """Signs a statement with this process's key."""
    key: Any = load_pem_private_key(identity.key, None)
    way = _way_to_sign(key)
    if way is None:
        why = f"{type(key).__name__} cannot sign what hosts tell each other"
        raise BadInput(_file("key"), why, "give a certificate with a key for ECDSA, Ed25519 or RSA")
    return bytes(key.sign(statement, *way))


def check_signed(
    authorities: bytes,
    statement: bytes,
    chain: bytes,
    signature: bytes,
    clock: datetime | None = None,
) -> Permit:
    """Checks that the owner of a certificate has signed a statement.

    Args:
        authorities: PEM of the authorities; the chain must lead to one of them.
        chain: PEM, the signer's certificate first, then those between it and the authority.
        signature: as `sign` returns it.
        clock: the time at which the certificate must be valid; None for now.

    Raises:
        ValueError: with one line: the certificate does not count, or the signature is not its own.
    """
    try:
        own, *between = x509.load_pem_x509_certificates(chain)
        # No signature covers the number of unused bits before it, so that number must be 0.
        for certificate in (own, *between):
            if not certificate.public_bytes(Encoding.DER).endswith(b"\0" + certificate.signature):
                raise ValueError("its signature has unused bits")
        verify_chain([own, *between], x509.load_pem_x509_certificates(authorities), clock)
        key: Any = own.public_key()
        permit = permit_in(own)
        if (way := _way_to_sign(key)) is None:
            raise ValueError("its key is neither ECDSA nor Ed25519 nor RSA")
        key.verify(signature, statement, *way)
    except InvalidSignature as error:
        raise ValueError("the signature is not that of its certificate") from error
    except (VerificationError, *pem.UNREADABLE) as error:
        raise ValueError(f"its certificate does not count ({reason_of(error)})") from error
    return permit
