"""The manifest of a checkpoint: lists its files, and says how far training was."""

import hashlib
import json
from collections.abc import Mapping
from sys import float_info
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert, to_builtins

from mdgan.storage.state_file import Damaged, StoredFile

FORMAT = 2  # this mdgan cannot read format 1, of mdgan up to 0.5

SERVER = "server"

_Count = Annotated[int, Meta(ge=0)]
_Workers = tuple[Annotated[int, Meta(gt=0)], ...]


class Newer(Damaged):
    """The manifest is intact, but a newer mdgan has written it."""


class Manifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files of one checkpoint, and the server's knowledge that no file holds.

    Attributes:
        strikes, named: the server's record of hosts; see `Standing`.
    """

    iteration: _Count
    generation: _Count  # of the server that wrote it; see `Fence`
    progress: dict[str, _Count]  # the algorithm's own counters, by names that it chooses
    seconds: Annotated[float, Meta(ge=0, le=float_info.max)]
    workers: _Workers
    files: Mapping[str, StoredFile]  # the state of `server`, and those of workers by number
    elsewhere: _Workers  # the workers whose files lie on the workers' machines
    settings: Mapping[str, Any]
    version: str
    shut_out: _Workers = ()  # the workers that its server has shut out, in increasing order
    # By worker, the certificate and the address of its host, and the certificate's number; each
    # empty if there is none.
    owners: Mapping[str, tuple[str, str, str]] = {}
    strikes: Mapping[str, Mapping[int, _Count]] = {}
    named: Mapping[int, tuple[str, ...]] = {}

    def here(self) -> list[StoredFile]:
        """The files that must lie beside the manifest."""
        elsewhere = set(map(str, self.elsewhere))
        return [stored for owner, stored in self.files.items() if owner not in elsewhere]

    def whereabouts(self) -> dict[str, Any]:
        """The record by which hosts find their files of the checkpoint, as JSON values."""
        files = {name: stored.as_record() for name, stored in self.files.items()}
        return {"iteration": self.iteration, "files": files}

    def as_bytes(self) -> bytes:
        """The manifest's file: one JSON object, which includes its checksum.

        Raises:
            ValueError: a field has an impossible value.
        """
        record = {**to_builtins(self, str_keys=True), "format": FORMAT}
        record["sha256"] = _checksum(record)
        data = (json.dumps(record, indent=2) + "\n").encode()
        try:
            self.from_bytes(data)
        except Damaged as error:
            raise ValueError(f"no manifest could say this: {error}") from error
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> "Manifest":
        """Reads what `as_bytes` returned, and checks all of it.

        Raises:
            Damaged: the data is not what `as_bytes` returned.
            Newer: a newer mdgan has written the manifest.
        """
        try:
            record = _checked(json.loads(data))
            manifest = convert(record, cls, str_keys=True)
        except ValidationError as error:
            raise Damaged(f"the manifest makes no sense: {error!s:.99}") from error
        except ValueError as error:
            raise Damaged("the manifest is not JSON") from error
        except RecursionError as error:
            raise Damaged("the manifest is nested too deeply") from error
        all_workers, elsewhere, files = manifest.workers, manifest.elsewhere, manifest.files
        for name, workers in (("workers", all_workers), ("elsewhere", elsewhere)):
            if len(set(workers)) < len(workers):
                raise Damaged(f"the manifest's {name} name a worker twice: {workers!s:.99}")
        if SERVER not in files or not files.keys() <= {SERVER, *map(str, all_workers)}:
            raise Damaged(f"the manifest's files belong to {sorted(files)!s:.99}")
        if not set(map(str, elsewhere)) <= files.keys():
            raise Damaged("the manifest's elsewhere names workers without files")
        if len({stored.name for stored in files.values()}) < len(files):
            raise Damaged("the manifest names one file twice")
        return manifest


def _checked(record: Any) -> dict[str, Any]:
    """Checks a manifest's checksum and format; returns its other fields."""
    if not isinstance(record, dict):
        raise Damaged("the manifest is not a JSON object")
    if record.pop("sha256", None) != _checksum(record):
        raise Damaged("the manifest's checksum is wrong")
    file_format = record.pop("format", None)
    if type(file_format) is not int or file_format < FORMAT:
        raise Damaged("the manifest has no format that this mdgan reads")
    if file_format > FORMAT:
        version = f"{record.get('version')!s:.30}"
        raise Newer(f"written in format {file_format} by mdgan {version}; this mdgan is older")
    return record


def _checksum(record: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON; later formats must keep this rule."""
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
