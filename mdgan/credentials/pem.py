"""Reads certificates and keys from PEM files, and refuses bad ones with a line for the user."""

import re
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from mdgan.errors import BadInput, reason_of
from mdgan.storage.foreign_file import read_given

UNREADABLE = (
    *(ValueError, TypeError, UnsupportedAlgorithm),
    *(x509.DuplicateExtension, x509.InvalidVersion, x509.UnsupportedGeneralNameType),
)
"""The exceptions that the library raises for bytes that it cannot read."""

_MOST_BYTES = 2**20
_KEY = re.compile(
    rb"-----BEGIN ((?:[A-Z]+ )?PRIVATE KEY)-----\s.*?-----END \1-----[ \t]*\r?\n?", re.DOTALL
)


def read_file(path: Path, way_out: str) -> bytes:
    """Reads a file of certificates or keys; BadInput, with the way out, if it cannot be read."""
    try:
        return read_given(path, _MOST_BYTES)
    except FileNotFoundError as error:
        raise BadInput(path, "does not exist", way_out) from error
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or reason_of(error)
        raise BadInput(path, f"cannot be read ({reason})", way_out) from error


def certificates_in(path: Path, data: bytes) -> list[x509.Certificate]:
    """All certificates of a file, in the file's order; at least one."""
    try:
        certificates = x509.load_pem_x509_certificates(data)
        for certificate in certificates:  # the library parses some parts only at their first use
            _ = certificate.subject, certificate.issuer, certificate.extensions
            certificate.public_key()
    except UNREADABLE as error:
        why = "holds no certificate that can be read"
        way_out = "name a file in PEM format, such as `mdgan credentials` writes"
        raise BadInput(path, why, way_out) from error
    return certificates


def check_is_private(path: Path) -> None:
    """Refuses a file with a key that other users of this machine can read or write."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # `read_file` will say what is wrong
    if mode & 0o077:
        raise BadInput(path, "other users can read this key", f"run `chmod 600 {path}`")


def key_in(path: Path, data: bytes) -> PrivateKeyTypes:
    """The private key of a file, which must hold exactly one, without a password."""
    keys = [match[0] for match in _KEY.finditer(data)]
    if len(keys) != 1:
        how_many = "no private key" if not keys else f"{len(keys)} private keys"
        raise BadInput(path, f"holds {how_many}", "name a file in PEM format that holds one")
    try:
        return load_pem_private_key(keys[0], None)
    except UNREADABLE as error:
        if b"ENCRYPTED" in keys[0]:
            way_out = f"write it without one: `openssl pkey -in {path} -out NEW.key`"
            raise BadInput(path, "the key needs a password", way_out) from error
        why = f"the key cannot be read ({reason_of(error)})"
        raise BadInput(path, why, "name another file") from error


def check_belongs(key: PrivateKeyTypes, key_path: Path, own: x509.Certificate, path: Path) -> None:
    """Refuses a key that does not belong to a certificate, the one in the file `path`."""
    try:
        form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        is_its_key = key.public_key().public_bytes(*form) == own.public_key().public_bytes(*form)
    except UNREADABLE:
        is_its_key = False
    if not is_its_key:
        whose = "the certificate beside it" if path == key_path else f"the certificate {path}"
        raise BadInput(key_path, f"the key does not belong to {whose}", "name the pair")


def key_pem(key: PrivateKeyTypes) -> bytes:
    """A private key as PEM, without a password."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def pem_of(*certificates: x509.Certificate) -> bytes:
    """Certificates as PEM, one after the other."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def now() -> datetime:
    """This machine's clock in UTC, without fractions of a second, as certificates give times."""
    return datetime.now(UTC).replace(microsecond=0)


def in_words(time: datetime) -> str:
    """A time in UTC, as messages show it."""
    return f"{time:%Y-%m-%d %H:%M} UTC"
