"""The signed list of certificates that are no longer accepted."""

import logging
import threading
from pathlib import Path

from cryptography import x509

from mdgan.credentials.pem import UNREADABLE, certificates_in, read_file
from mdgan.errors import BadInput, reason_of

_log = logging.getLogger(__name__)


class Revocations:
    """The serial numbers that an authority has revoked; the file is read again when it changes.

    A list that is damaged or signed by another authority is an error at the start. Later the last
    good list is kept, and the log says so once. Safe for use from several threads.

    Args:
        path: `--revoked`; None: nothing is revoked.
        authorities: PEM of the authorities that are trusted; one of them has signed the list.
    """

    def __init__(self, path: Path | None, authorities: bytes) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._trouble = ""
        self._serials: frozenset[int] = frozenset()
        if path is not None:
            self._authorities = certificates_in(path, authorities)
            self._seen = _version_of(path)
            self._serials = self._read(path)

    def __contains__(self, serial: object) -> bool:
        """Whether a certificate with this number is revoked."""
        with self._lock:
            if self._path is not None:
                self._read_again(self._path)
            return serial in self._serials

    def _read_again(self, path: Path) -> None:
        seen = _version_of(path)
        if seen == self._seen:
            return
        try:
            self._serials = self._read(path)
        except BadInput as error:
            if str(error) != self._trouble:
                _log.warning("%s; until then the last good list holds", error)
            self._trouble = str(error)
        else:
            self._trouble = ""
            _log.info("%s: %d certificates are revoked", path, len(self._serials))
        self._seen = seen

    def _read(self, path: Path) -> frozenset[int]:
        return frozenset(entry.serial_number for entry in read_list(path, self._authorities))


def read_list(path: Path, authorities: list[x509.Certificate]) -> list[x509.RevokedCertificate]:
    """Reads a list of revoked certificates, an X.509 CRL in PEM or DER."""
    data = read_file(path, "name the `revoked.pem` of your authority")
    try:
        load = x509.load_pem_x509_crl if b"-----BEGIN" in data else x509.load_der_x509_crl
        found = load(data)
        revoked = list(found)
        is_signed = any(_has_signed(authority, found) for authority in authorities)
    except UNREADABLE as error:
        raise BadInput(
            f"{path}: is no list of revoked certificates that can be read ({reason_of(error)}); "
            "copy the `revoked.pem` of your authority there"
        ) from error
    if not is_signed:
        raise BadInput(
            f"{path}: is not signed by the authority of the run's certificates; "
            "copy the `revoked.pem` of that authority there"
        )
    return revoked


def _has_signed(authority: x509.Certificate, found: x509.CertificateRevocationList) -> bool:
    if authority.subject != found.issuer:
        return False
    key = authority.public_key()
    try:
        return found.is_signature_valid(key)  # type: ignore[arg-type]  # others are a TypeError
    except UNREADABLE:
        return False


def _version_of(path: Path) -> tuple[int, ...] | None:
    """Differs after each change of the file; None if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
