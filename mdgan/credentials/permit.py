"""What a certificate permits: a role and ranks, which stand in it as names."""

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
"""The DNS name in those whose owner may be the server, now or later; workers ask for it."""

ROLES = ("worker", "server", "standby")
_MAY_BE = {"worker": {"worker"}, "server": {"server"}, "standby": {"standby", "server"}}
"""A standby becomes the server when that is gone."""

_MARK, _ROLE, _RANK = "mdgan:", "mdgan:role:", "mdgan:rank:"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_MOST_NAME = 64
_MOST_SHOWN = 12


@dataclass(frozen=True)
class Permit:
    """What the owner of a certificate may be."""

    name: str  # the common name, printable, for log lines
    # One of `ROLES`; None: any (a shared file, or an authority that knows no roles).
    role: str | None
    ranks: frozenset[int] | None
    serial: int  # the certificate's number, by which it is revoked
    # SHA-256 of the public key, by which owners are told apart. Of one certificate its owner can
    # make others that differ in the signature of the authority.
    fingerprint: str = field(default="", compare=False)
    # Until when it is valid.
    end: datetime = field(default=datetime.max.replace(tzinfo=UTC), compare=False)

    def refusal(self, role: str, ranks: Collection[int]) -> str | None:
        """Why the owner may not take a role with these ranks: one line, or None if it may."""
        if self.role is not None and role not in _MAY_BE[self.role]:
            return f"its certificate ({self.name}) is that of a {self.role}, not of a {role}"
        others = set(ranks) - self.ranks if self.ranks is not None else set()
        if others:
            theirs = f"rank{'s' if len(self.ranks or ()) > 1 else ''} {ranks_in_words(self.ranks)}"
            return f"its certificate ({self.name}) names {theirs}, not {ranks_in_words(others)}"
        return None


def permit_of(pem: bytes) -> Permit:
    """Reads what a certificate permits. Its signature is not checked here: TLS has done that.

    Args:
        pem: the certificate first; what follows is not read.

    Raises:
        ValueError: in one line: it cannot be read, or names what this version does not know.
    """
    try:
        return permit_in(x509.load_pem_x509_certificate(pem))
    except UNREADABLE as error:
        raise ValueError(f"its certificate cannot be read ({reason_of(error)})") from error


def permit_in(certificate: x509.Certificate) -> Permit:
    """What a certificate permits; raises one of `UNREADABLE` where a part cannot be read."""
    others = _names_in(certificate)
    roles, ranks = [], set()
    for uri in others.get_values_for_type(x509.UniformResourceIdentifier):
        if uri.startswith(_RANK) and _NUMBER.fullmatch(uri.removeprefix(_RANK)):
            ranks.add(int(uri.removeprefix(_RANK)))
        elif uri.startswith(_ROLE) and uri.removeprefix(_ROLE) in ROLES:
            roles.append(uri.removeprefix(_ROLE))
        elif uri.lower().startswith(_MARK):  # a limit that is not understood must not be dropped
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
    found = (extension.value for extension in certificate.extensions)
    names = (each for each in found if isinstance(each, x509.SubjectAlternativeName))
    return next(names, x509.SubjectAlternativeName([]))


def names_for(role: str | None, ranks: Iterable[int]) -> x509.SubjectAlternativeName:
    """The names that a certificate gets; `permit_in` reads them."""
    dns = [HOST_NAME] if role == "worker" else [HOST_NAME, SERVER_NAME]
    uris = [f"{_ROLE}{role}"] if role is not None else []
    uris += [f"{_RANK}{rank}" for rank in sorted(set(ranks))]
    return x509.SubjectAlternativeName(
        [*map(x509.DNSName, dns), *map(x509.UniformResourceIdentifier, uris)]
    )


def is_host(certificate: x509.Certificate) -> bool:
    """Whether a certificate has the name that all have that mdgan makes."""
    return HOST_NAME in _names_in(certificate).get_values_for_type(x509.DNSName)


def ranks_in_words(ranks: Collection[int] | None) -> str:
    """The ranks of a permit, such as `3,4`; `any` for None."""
    if ranks is None:
        return "any"
    shown = ",".join(map(str, sorted(ranks)[:_MOST_SHOWN]))
    return shown if len(ranks) <= _MOST_SHOWN else f"{shown},… ({len(ranks)} in all)"
