"""The manifest: what belongs to one checkpoint, and where training was."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

from mdgan.storage.state_file import Damaged, StoredFile

FORMAT = 1
SERVER = "server"


class Newer(Damaged):
    """It is whole, but a newer mdgan has written it."""


@dataclass(frozen=True)
class Manifest:
    """What belongs to one checkpoint.

    Attributes:
        iteration: the last one that is done.
        generation: of the server that wrote it; a higher one has taken over from a lower one.
        progress: what the algorithm counts, by its own names.
        seconds: trained so far.
        workers: the live workers, in increasing order.
        files: the states: `server`, and the numbers of workers.
        elsewhere: the workers whose files lie on their own machines.
        settings: of the run, as `config.json` has them.
        version: of the mdgan that wrote it.
    """

    iteration: int
    generation: int
    progress: Mapping[str, int]
    seconds: float
    workers: tuple[int, ...]
    files: Mapping[str, StoredFile]
    elsewhere: tuple[int, ...]
    settings: Mapping[str, Any]
    version: str

    def here(self) -> list[StoredFile]:
        """The files that must lie beside the manifest."""
        elsewhere = {str(worker) for worker in self.elsewhere}
        return [stored for owner, stored in self.files.items() if owner not in elsewhere]

    def as_bytes(self) -> bytes:
        """The manifest's file: one JSON object with a checksum of its own.

        Raises:
            ValueError: it says something impossible.
        """
        record = {field.name: getattr(self, field.name) for field in fields(self)}
        record["files"] = {owner: stored.as_record() for owner, stored in self.files.items()}
        record["format"] = FORMAT
        record["sha256"] = _checksum(record)
        data = (json.dumps(record, indent=2) + "\n").encode()
        try:
            self.from_bytes(data)
        except Damaged as error:
            raise ValueError(f"no manifest could say this: {error}") from error
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> "Manifest":
        """The opposite of `as_bytes`, trusting nothing.

        Raises:
            Damaged: it is not what was written.
            Newer: it is, by a newer mdgan.
        """
        try:
            return cls._from_json(json.loads(data))
        except ValueError as error:
            raise Damaged("the manifest is not JSON") from error
        except RecursionError as error:
            raise Damaged("the manifest is nested too deeply") from error

    @classmethod
    def _from_json(cls, record: Any) -> "Manifest":
        if not isinstance(record, dict):
            raise Damaged("the manifest is not a JSON object")
        if record.pop("sha256", None) != _checksum(record):
            raise Damaged("the manifest's checksum is wrong")
        file_format = record.pop("format", None)
        if type(file_format) is not int or file_format < 1:
            raise Damaged("the manifest has no format")
        if file_format > FORMAT:
            version = f"{record.get('version')!s:.30}"
            raise Newer(f"written in format {file_format} by mdgan {version}; this mdgan is older")
        if {"num_swaps", "swap_every"} <= record.keys():  # as 0.5.0 and earlier wrote it
            record["progress"] = {n: record.pop(n) for n in ("num_swaps", "swap_every")}
        _check(record)
        files = {name: StoredFile.from_record(entry) for name, entry in record["files"].items()}
        _check_owners(record["workers"], record["elsewhere"], files)
        numbers = {name: tuple(record[name]) for name in ("workers", "elsewhere")}
        return cls(**{**record, "files": files, **numbers})


def _checksum(record: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON; the same in every format to come."""
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_seconds(value: object) -> bool:
    return _is_count(value) or (isinstance(value, float) and isfinite(value) and value >= 0)


def _are_workers(value: object) -> bool:
    if not isinstance(value, list) or not all(_is_count(worker) for worker in value):
        return False
    return len(set(value)) == len(value) and 0 not in value


_RULES: dict[str, Callable[[object], bool]] = {
    "iteration": _is_count,
    "generation": _is_count,
    "progress": lambda value: isinstance(value, dict) and all(map(_is_count, value.values())),
    "seconds": _is_seconds,
    "workers": _are_workers,
    "files": lambda value: isinstance(value, dict),
    "elsewhere": _are_workers,
    "settings": lambda value: isinstance(value, dict),
    "version": lambda value: isinstance(value, str),
}


def _check(record: Mapping[str, Any]) -> None:
    if record.keys() != _RULES.keys():
        names = sorted(record.keys() ^ _RULES.keys())
        raise Damaged(f"the manifest lacks or exceeds {names!s:.99}")
    for name, fits in _RULES.items():
        if not fits(record[name]):
            raise Damaged(f"the manifest's {name} cannot be {record[name]!r:.99}")


def _check_owners(
    workers: list[int], elsewhere: list[int], files: Mapping[str, StoredFile]
) -> None:
    owners = files.keys()
    if SERVER not in owners or not owners <= {SERVER, *map(str, workers)}:
        raise Damaged(f"the manifest's files belong to {sorted(owners)!s:.99}")
    if not {str(worker) for worker in elsewhere} <= owners:
        raise Damaged("the manifest's elsewhere names workers without files")
    if len({stored.name for stored in files.values()}) < len(files):
        raise Damaged("the manifest names one file twice")
