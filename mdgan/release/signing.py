"""Which files a bundle has, and who signed them: `manifest.json` and `signature.json`."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from mdgan.credentials.identity import Identity, sign
from mdgan.storage.foreign_file import open_regular, read_whole

MANIFEST_FILE, SIGNATURE_FILE = "manifest.json", "signature.json"
REVOKED_FILE = "revoked.pem"
_Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")]
_MOST_FILE_BYTES = 1 << 36

Document = TypeVar("Document", bound=Struct)


class BundleManifest(Struct, frozen=True):
    """SHA-256 of each file but these two."""

    files: dict[_Name, _Digest]


class Signature(Struct, frozen=True):
    """The server's signature over the manifest; both empty where a run had no certificates."""

    chain: Annotated[str, Meta(max_length=1 << 16)] = ""
    signature: Annotated[str, Meta(max_length=1 << 12, pattern=r"\A([0-9a-f]{2})*\Z")] = ""


def document(content: Struct) -> bytes:
    """A JSON file; the same content always gives the same bytes."""
    text = json.dumps(msgspec.to_builtins(content, str_keys=True), indent=1, sort_keys=True)
    return text.encode() + b"\n"


def read_document(path: Path, kind: type[Document]) -> Document:
    """Reads what `document` wrote; raises ValueError or OSError if it is anything else."""
    data = read_whole(path)
    try:
        content = msgspec.json.decode(data, type=kind)
        if document(content) != data:
            raise ValueError("it is not written as mdgan writes it")
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return content


def signed_bytes(manifest: bytes) -> bytes:
    """What the signature is over."""
    return b"mdgan: a bundle: " + hashlib.sha256(manifest).hexdigest().encode()


def seal(files: Mapping[str, bytes], own: Identity | None) -> dict[str, bytes]:
    """The manifest of some files, and the signature over it."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    manifest = document(BundleManifest(digests))
    signature = Signature()
    if own is not None:
        given = sign(own, signed_bytes(manifest)).hex()
        signature = Signature(own.certificate.decode(), given)
    return {MANIFEST_FILE: manifest, SIGNATURE_FILE: document(signature)}


def digest_of_file(path: Path) -> str:
    """SHA-256 of a regular file; raises OSError."""
    with open_regular(path, _MOST_FILE_BYTES) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
