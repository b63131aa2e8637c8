"""Writes the files of `mdgan credentials`: one for all machines, or the folder of an authority.

That folder holds `ca.pem`, `ca.key`, the signed list `revoked.pem`, a file `NAME.cred` for each
machine, and in `issued/` every certificate that the authority has signed, without its key.
"""

import fcntl
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from mdgan.credentials import pem
from mdgan.credentials.authority import Authority, make_authority
from mdgan.credentials.identity import check_dates
from mdgan.credentials.pem import now
from mdgan.credentials.permit import HOST_NAME, SERVER_NAME, permit_in, ranks_in_words
from mdgan.credentials.revocations import read_list
from mdgan.errors import BadInput, reason_of, writing
from mdgan.spelling import flag
from mdgan.storage.whole_file import OWNER_ALONE, write_whole

MOST_RANKS = 1000  # in one certificate: TLS libraries refuse certificates of more than 100 kB

_FOR_ALL = 0o666
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_CA, _CA_KEY, _REVOKED, _ISSUED = "ca.pem", "ca.key", "revoked.pem", "issued"


def write_shared(path: Path, valid_for: timedelta) -> datetime:
    """Writes one file that all machines of a run share.

    It does not keep the authority's key, so that no other certificate for this run can be made.

    Raises:
        BadInput: the file exists already or cannot be written; nothing is left behind.
    """
    if os.path.lexists(path):
        raise BadInput(path, "is there already", "remove it first, or give another name")
    clock = now()
    authority = make_authority(valid_for, clock)
    certificate, key = authority.issue("shared", None, (), valid_for=valid_for, clock=clock)
    _write(path, pem.key_pem(key) + pem.pem_of(certificate, authority.certificate), OWNER_ALONE)
    return certificate.not_valid_after_utc


def make_folder_of_authority(folder: Path, valid_for: timedelta) -> datetime:
    """Makes an authority in a folder that is new or empty."""
    with writing(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        if any(folder.iterdir()):
            raise BadInput(folder, "is not empty", "name a new folder")
        folder.chmod(0o700)
        (folder / _ISSUED).mkdir()
    clock = now()
    authority = make_authority(valid_for, clock)
    revoked = authority.revoke([], clock).public_bytes(Encoding.PEM)
    contents = [
        (_CA_KEY, pem.key_pem(authority.key), OWNER_ALONE),
        (_REVOKED, revoked, _FOR_ALL),
        (_CA, pem.pem_of(authority.certificate), _FOR_ALL),
    ]
    try:
        for name, content, mode in contents:
            _write(folder / name, content, mode)
    except BadInput:
        for name, *_ in contents:
            (folder / name).unlink(missing_ok=True)
        (folder / _ISSUED).rmdir()
        raise
    return authority.certificate.not_valid_after_utc


def issue(
    folder: Path, name: str, role: str, ranks: Collection[int], valid_for: timedelta
) -> tuple[Path, datetime]:
    """Writes the file of one machine, `NAME.cred`.

    Args:
        ranks: the ranks that a worker may have; if empty, it may have any.
        valid_for: counted from now; cut to the end of the authority's own certificate.

    Returns:
        The file, and the time when its certificate expires.
    """
    _check_name(name)
    if ranks and role != "worker":
        shown = ",".join(map(str, sorted(ranks)[:3]))
        why = "ranks are for workers"
        raise BadInput(flag("ranks", shown), why, f"leave them out for a {role}")
    if 0 in ranks:
        why = "rank 0 is the server"
        raise BadInput(flag("ranks", 0), why, "give it --role server and no ranks")
    if len(ranks) > MOST_RANKS:
        way_out = f"leave {flag('ranks')} out to allow any rank"
        raise BadInput(flag("ranks"), f"{len(ranks)} are too many for one certificate", way_out)
    clock = now()
    path, record = folder / f"{name}.cred", folder / _ISSUED / f"{name}.pem"
    with _locked(folder):
        authority = _read_authority(folder)
        check_dates(folder / _CA, "the authority's certificate", authority.certificate, clock=clock)
        if os.path.lexists(path) or os.path.lexists(record):
            raise BadInput(name, f"{folder} has issued this name already", "take another name")
        certificate, key = authority.issue(name, role, ranks, valid_for=valid_for, clock=clock)
        # The record is written first, so that every issued certificate can be revoked.
        _write(record, pem.pem_of(certificate), _FOR_ALL)
        try:
            _write(
                path, pem.key_pem(key) + pem.pem_of(certificate, authority.certificate), OWNER_ALONE
            )
        except BadInput:
            record.unlink(missing_ok=True)
            raise
    return path, certificate.not_valid_after_utc


def revoke(folder: Path, name: str) -> Path:
    """Adds the certificate of a name to the authority's signed list.

    Returns:
        The file of the list, which servers take by `--revoked`.

    Raises:
        BadInput: the name was never issued or is revoked already, or a file cannot be read or
            written. The list is then unchanged.
    """
    _check_name(name)
    record, path = folder / _ISSUED / f"{name}.pem", folder / _REVOKED
    with _locked(folder):
        authority = _read_authority(folder)
        if not record.exists():
            names = sorted(other.stem for other in (folder / _ISSUED).glob("*.pem"))
            issued = f"it has issued {', '.join(names[:20])}" if names else "it has issued none yet"
            raise BadInput(name, f"{folder} has not issued this name", issued)
        serial = pem.certificates_in(record, pem.read_file(record, ""))[0].serial_number
        entries = read_list(path, [authority.certificate])
        if any(entry.serial_number == serial for entry in entries):
            raise BadInput(name, "is revoked already", f"servers read the list {path}")
        revoked = authority.revoke(entries, now(), serial)
        _write(path, revoked.public_bytes(Encoding.PEM), _FOR_ALL)
    return path


def describe(path: Path) -> str:
    """Describes a file's first certificate in lines: name, role, ranks, end, fingerprint."""
    certificate = pem.certificates_in(path, pem.read_file(path, "name another file"))[0]
    try:
        permit = permit_in(certificate)
        fingerprint = certificate.fingerprint(hashes.SHA256()).hex(":")
    except pem.UNREADABLE as error:
        raise BadInput(path, f"cannot be shown ({reason_of(error)})", "make a new one") from error
    constraints = (extension.value for extension in certificate.extensions)
    is_authority = any(isinstance(c, x509.BasicConstraints) and c.ca for c in constraints)
    is_over = " (expired)" if now() > certificate.not_valid_after_utc else ""
    rows = {
        "name": permit.name,
        "role": "authority" if is_authority else permit.role or "any",
        "ranks": ranks_in_words(permit.ranks),
        "valid until": pem.in_words(certificate.not_valid_after_utc) + is_over,
        "fingerprint": f"SHA-256 {fingerprint}",
    }
    width = max(map(len, rows))
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows.items())


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name in (HOST_NAME, SERVER_NAME):
        way_out = "use up to 63 letters, digits, dots, hyphens and underscores"
        raise BadInput(f"{name[:70]!r}", "cannot be the name of a certificate", way_out)


def _read_authority(folder: Path) -> Authority:
    path, key_path = folder / _CA, folder / _CA_KEY
    way_out = f"`mdgan credentials init {folder}` makes an authority in a new folder"
    pem.check_is_private(key_path)
    certificate = pem.certificates_in(path, pem.read_file(path, way_out))[0]
    key = pem.key_in(key_path, pem.read_file(key_path, way_out))
    pem.check_belongs(key, key_path, certificate, path=path)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadInput(key_path, "is not the key of an authority of mdgan's", way_out)
    return Authority(certificate, key)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lets one command at a time write into the folder, so that none undoes another's work."""
    path = folder / _CA_KEY
    try:
        file = path.open("r+b")
    except OSError as error:
        why = f"is not the folder of an authority ({path.name}: {error.strerror})"
        way_out = f"`mdgan credentials init {folder}` makes one in a new folder"
        raise BadInput(folder, why, way_out) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write(path: Path, content: bytes, mode: int) -> None:
    with writing(path):
        write_whole(path, content, mode)
