"""Reads the authority's signed list of revoked certificates, whose owners no process admits."""

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from mdgan.credentials.pem import UNREADABLE, certificates_in, read_file
from mdgan.credentials.reread import Reread
from mdgan.errors import BadInput, reason_of


class Revocations:
    """The serial numbers of revoked certificates; reads the list again when its file changes.

    Args:
        path: the value of `--revoked`; None: nothing is revoked.
        authorities: PEM of the trusted authorities; one of them must have signed the list.
    """

    def __init__(self, path: Path | None, authorities: bytes) -> None:
        self._serials: Reread[frozenset[int]] | None = None
        if path is not None:
            trusted = certificates_in(path, authorities)

            def read() -> frozenset[int]:
                return frozenset(entry.serial_number for entry in read_list(path, trusted))

            self._serials = Reread(
                [path], read, lambda serials: f"{path}: {len(serials)} certificates are revoked"
            )

    def __contains__(self, serial: object) -> bool:
        return self._serials is not None and serial in self._serials.now()


def read_list(path: Path, authorities: list[x509.Certificate]) -> list[x509.RevokedCertificate]:
    """Reads a list of revoked certificates (an X.509 CRL in PEM or DER); checks who signed it."""
    data = read_file(path, "name the `revoked.pem` of your authority")
    try:
        load = x509.load_pem_x509_crl if b"-----BEGIN" in data else x509.load_der_x509_crl
        crl = load(data)
        revoked = list(crl)
        is_signed = any(_has_signed(authority, crl) for authority in authorities)
    except UNREADABLE as error:
        why = f"is no list of revoked certificates that can be read ({reason_of(error)})"
        raise BadInput(path, why, "copy the `revoked.pem` of your authority there") from error
    if not is_signed:
        why = "is not signed by the authority of the run's certificates"
        raise BadInput(path, why, "copy the `revoked.pem` of that authority there")
    return revoked


def is_plain(data: bytes) -> bool:
    """Whether a file holds a list in PEM and nothing else."""
    return x509.load_pem_x509_crl(data).public_bytes(Encoding.PEM) == data


def _has_signed(authority: x509.Certificate, crl: x509.CertificateRevocationList) -> bool:
    if authority.subject != crl.issuer:
        return False
    key = authority.public_key()
    try:
        return crl.is_signature_valid(key)  # type: ignore[arg-type]  # others are a TypeError
    except UNREADABLE:
        return False
