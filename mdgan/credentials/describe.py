"""What a file of certificates says, for its owner to read."""

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from mdgan.credentials.files import read_certificate
from mdgan.credentials.pem import UNREADABLE, in_words, now
from mdgan.credentials.permit import permit_in, ranks_in_words
from mdgan.errors import BadInput, reason_of


def describe(path: Path) -> str:
    """Lines with the name, role, ranks, dates and fingerprint of a file's first certificate."""
    certificate = read_certificate(path)
    try:
        permit = permit_in(certificate)
        fingerprint = certificate.fingerprint(hashes.SHA256()).hex(":")
    except UNREADABLE as error:
        raise BadInput(f"{path}: cannot be shown ({reason_of(error)}); make a new one") from error
    is_over = " (expired)" if now() > certificate.not_valid_after_utc else ""
    rows = {
        "name": permit.name,
        "role": "authority" if _is_authority(certificate) else permit.role or "any",
        "ranks": ranks_in_words(permit.ranks),
        "valid until": in_words(certificate.not_valid_after_utc) + is_over,
        "fingerprint": f"SHA-256 {fingerprint}",
    }
    width = max(map(len, rows))
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows.items())


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return found.value.ca
