"""The file of an NVFlare site: its own settings, and the studies that it has approved.

It is JSON: settings of this machine, by the names of the flags of `mdgan join`, and

approved   hashes of studies; without it the site takes part in any study
runs       the folder for runs; by default `mdgan-runs` beside the file

Paths in it are relative to its folder. The server of a job has such a file as well.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from mdgan.errors import BadInput
from mdgan.launch.given import known_settings
from mdgan.settings.declare import suggest
from mdgan.storage.whole_file import write_output

_OF_THE_RUN = (
    *("master_addr", "master_port", "listen", "out", "log_file"),
    *("transport", "workers_per_host", "insecure"),
)
"""Settings of a machine that a site cannot choose."""


def digest_of(identity: Mapping[str, Any]) -> str:
    """The hash of a study: of the run's identity (see `Checked`), without its samples."""
    study = {name: value for name, value in identity.items() if name != "data_sha256"}
    return sha256(json.dumps(study, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class SiteFile:
    """The contents of a site's file."""

    path: Path
    settings: dict[str, Any]
    approved: list[str] | None  # hashes of studies; None: the site approves of any study
    runs: Path

    @classmethod
    def read(cls, path: Path) -> "SiteFile":
        """Reads and checks the file; BadInput if it is missing or wrong."""
        try:
            values = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
            approved = msgspec.convert(values.pop("approved", None), list[str] | None)
            runs = msgspec.convert(values.pop("runs", "mdgan-runs"), str)
        except OSError as error:
            why = f"the file of this site cannot be read ({error.strerror})"
            raise BadInput(path, why, "write the settings of this machine into it") from error
        except (ValueError, RecursionError) as error:
            raise BadInput(path, f"is no file of a site ({error})") from error
        settings = {name: _read(path, name, value) for name, value in values.items()}
        return cls(path, settings, approved, path.resolve().parent / runs)

    def check_asked(self, identity: Mapping[str, Any]) -> None:
        """Refuses the identity of a run if the site has not approved its study."""
        digest = digest_of(identity)
        if self.approved is not None and digest not in self.approved:
            what = f"the study with hash {digest:.16}… is not among those that this site approved"
            way_out = f"let its owner run `mdgan approve STUDY.json --site {self.path.name}`"
            raise BadInput(what, way_out=way_out)

    def approve(self, digest: str) -> None:
        """Adds the hash of a study to the file."""
        values = json.loads(self.path.read_bytes())
        values["approved"] = list(dict.fromkeys([*(self.approved or ()), digest]))
        write_output(self.path, json.dumps(values, indent=2).encode() + b"\n")


def _read(path: Path, name: str, value: Any) -> Any:
    """Checks one setting; makes a path in it absolute."""
    known = known_settings()
    if name not in known:
        raise BadInput(path, f"unknown key {name!r}{suggest(name, known)}")
    if name == "ranks":
        way_out = "leave them out; a second worker is a site of its own"
        raise BadInput(path, "says ranks, and a site has one worker", way_out)
    if known[name].shared or name in _OF_THE_RUN:
        raise BadInput(path, f"says {name}, which is not the site's choice", "leave it out")
    known[name].read(value)
    if known[name].metavar in ("FILE", "DIR") and value is not None:
        return str(path.resolve().parent / Path(value).expanduser())
    return value
