"""Writes into a certificate, as names, the role and ranks that its owner may have; reads them."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from mdgan.credentials.pem import UNREADABLE
from mdgan.errors import printable, reason_of

HOST_NAME = "mdgan-host"  # the DNS name in every certificate that mdgan makes
SERVER_NAME = "mdgan-server"
"""The DNS name in certificates of servers and standbys; workers expect it of the server."""

ROLES = ("worker", "server", "standby")
_MAY_BE = {"worker": {"worker"}, "server": {"server"}, "standby": {"standby", "server"}}
"""By the role in a certificate, the roles that its owner may take: a standby may become server."""

_MARK, _ROLE, _RANK = "mdgan:", "mdgan:role:", "mdgan:rank:"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_MOST_NAME = 64
_MOST_SHOWN = 12


@dataclass(frozen=True)
class Permit:
    """The role and ranks that the owner of a certificate may have, and who the owner is."""

    name: str  # the common name, printable, for log lines
    # One of `ROLES`; None: any (a shared file, or an authority that knows no roles).
    role: str | None
    ranks: frozenset[int] | None  # None: any
    serial: int  # the certificate's number, by which it is revoked
    # SHA-256 of the public key, which identifies the owner. The certificate's own hash would not:
    # its owner can change the bytes of the authority's signature.
    fingerprint: str = field(default="", compare=False)
    # When the certificate expires.
    end: datetime = field(default=datetime.max.replace(tzinfo=UTC), compare=False)

    def refusal(self, role: str, ranks: Collection[int]) -> str | None:
        """Why the owner may not take a role with these ranks: one line, or None if it may."""
        if self.role is not None and role not in _MAY_BE[self.role]:
            return f"its certificate ({self.name}) is that of a {self.role}, not of a {role}"
        excess = set(ranks) - self.ranks if self.ranks is not None else set()
        if excess:
            named = f"rank{'s' if len(self.ranks or ()) > 1 else ''} {ranks_in_words(self.ranks)}"
            return f"its certificate ({self.name}) names {named}, not {ranks_in_words(excess)}"
        return None


def permit_of(pem: bytes) -> Permit:
    """Reads what a certificate permits. It checks no signature: TLS has done that.

    Args:
        pem: the certificate, perhaps followed by others, which are not read.

    Raises:
        ValueError: with one line: the certificate cannot be read, or has an unknown limit.
    """
    try:
        return permit_in(x509.load_pem_x509_certificate(pem))
    except UNREADABLE as error:
        raise ValueError(f"its certificate cannot be read ({reason_of(error)})") from error


def permit_in(certificate: x509.Certificate) -> Permit:
    """Reads what a certificate permits; raises one of `UNREADABLE` if a part cannot be read."""
    others = _names_in(certificate)
    roles, ranks = [], set()
    for uri in others.get_values_for_type(x509.UniformResourceIdentifier):
        if uri.startswith(_RANK) and _NUMBER.fullmatch(uri.removeprefix(_RANK)):
            ranks.add(int(uri.removeprefix(_RANK)))
        elif uri.startswith(_ROLE) and uri.removeprefix(_ROLE) in ROLES:
            roles.append(uri.removeprefix(_ROLE))
        elif uri.lower().startswith(_MARK):  # an unknown limit must not be ignored
            named = printable(uri, _MOST_NAME)
            raise ValueError(f"it names {named!r}, which this mdgan does not know")
    if len(roles) > 1:
        raise ValueError(f"it names {len(roles)} roles")
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    name = str(names[0].value) if names else "".join(others.get_values_for_type(x509.DNSName)[:1])
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Permit(
        name=printable(name, _MOST_NAME) or "no name",
        role=roles[0] if roles else None,
        ranks=frozenset(ranks) or None,
        serial=certificate.serial_number,
        fingerprint=sha256(key).hexdigest(),
        end=certificate.not_valid_after_utc,
    )


def _names_in(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    values = (extension.value for extension in certificate.extensions)
    names = (value for value in values if isinstance(value, x509.SubjectAlternativeName))
    return next(names, x509.SubjectAlternativeName([]))


def names_for(role: str | None, ranks: Iterable[int]) -> x509.SubjectAlternativeName:
    """The alternative names for a certificate with a role and ranks, which `permit_in` reads."""
    dns = [HOST_NAME] if role == "worker" else [HOST_NAME, SERVER_NAME]
    uris = [f"{_ROLE}{role}"] if role is not None else []
    uris += [f"{_RANK}{rank}" for rank in sorted(set(ranks))]
    return x509.SubjectAlternativeName(
        [*map(x509.DNSName, dns), *map(x509.UniformResourceIdentifier, uris)]
    )


def is_host(certificate: x509.Certificate) -> bool:
    """Whether a certificate has `HOST_NAME`, as every certificate that mdgan makes has."""
    return HOST_NAME in _names_in(certificate).get_values_for_type(x509.DNSName)


def ranks_in_words(ranks: Collection[int] | None) -> str:
    """The ranks of a permit, such as `3,4`; `any` for None."""
    if ranks is None:
        return "any"
    shown = ",".join(map(str, sorted(ranks)[:_MOST_SHOWN]))
    return shown if len(ranks) <= _MOST_SHOWN else f"{shown},… ({len(ranks)} in all)"
