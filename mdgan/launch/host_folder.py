"""Where a host keeps the states of its workers, on a machine that may have other runs.

The server names its run, and two servers may choose one name. So each run has a random id too, and
a host writes only to a folder that bears it, or to the one that its user has named.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from glob import escape
from hashlib import sha256
from pathlib import Path
from typing import Any

from mdgan.credentials.identity import Identity
from mdgan.errors import BadInput, printable
from mdgan.privacy.canaries import CANARIES
from mdgan.records.run_directory import RunDirectory, Status
from mdgan.storage.checkpoints import Checkpoints, worker_file
from mdgan.storage.state_file import Damaged, StoredFile, check_file
from mdgan.storage.whole_file import copy_private, make_private_folder

_DIGITS = 16


def run_key(run_id: str, identity: Identity | None) -> str:
    """The end of a run's folder's name on a host: another one for another authority's server."""
    authorities = b"" if identity is None else identity.authorities
    return sha256(json.dumps([run_id, authorities.hex()]).encode()).hexdigest()[:_DIGITS]


def host_folder(
    welcome: Mapping[str, Any], workers: Iterable[int], identity: Identity | None, out: str | None
) -> Path:
    """The folder of a run on the machine of a host that a server has let in.

    Args:
        out: the folder that the user has named.

    Raises:
        BadInput: the user has named the folder of another run, or the server no usable name.
    """
    run_id = str(welcome.get("run_id", ""))
    key = run_key(run_id, identity)
    if out is not None:
        if _status(Path(out)).get("run_id", run_id) != run_id:
            raise BadInput(f"--out {out}: has another run in it; name a new folder")
        return Path(out)
    name = str(welcome["run"])
    if name in ("", ".", "..") or "/" in name or not name.isprintable():
        shown = printable(name, 40)
        raise BadInput(f"the server calls its run {shown!r}, which names no folder; give --out DIR")
    servers = Path("runs") / name
    # On a disk that this machine shares with it, where both run as the same user.
    if _status(servers).get("run_key") == key and servers.stat().st_uid == os.geteuid():
        return servers
    own = Path("runs") / f"{name}-{key}"
    _copy_states(welcome.get("checkpoint"), workers, own, servers)
    return own


def _status(folder: Path) -> Status:
    """What `run.json` says in a folder; empty if it is no run's."""
    with suppress(BadInput, OSError):
        return RunDirectory.open(folder).read_status()
    return {}


def _copy_states(
    newest: Mapping[str, Any] | None, workers: Iterable[int], own: Path, servers: Path
) -> None:
    """Brings states of the run's newest checkpoint from where older versions have written them.

    They may also lie in the folder for other credentials. What they hold tells them from others;
    what was seen of canaries lies beside them.
    """
    if newest is None:
        return
    others = [servers, *own.parent.glob(f"{escape(servers.name)}-*")]
    for worker in workers:
        name = worker_file(worker)
        if any(own.glob(f"checkpoints/*/{name}")):
            continue
        with suppress(Damaged, OSError, StopIteration, LookupError, TypeError, ValueError):
            stored = StoredFile.from_record(newest["files"][str(worker)])
            found = next(_holding(stored, others))
            folder = Checkpoints(own / "checkpoints", keep=1).make_folder_of(int(found.name))
            copy_private(found / stored.name, folder / name)
            canaries = own / CANARIES / f"{worker}.json"
            make_private_folder(canaries.parent)
            copy_private(found.parent.parent / CANARIES / canaries.name, canaries)


def _holding(stored: StoredFile, runs: Iterable[Path]) -> Iterator[Path]:
    """The folders of checkpoints of some runs in which a file lies as it was written."""
    for run in runs:
        for folder in run.glob("checkpoints/*"):
            with suppress(Damaged):
                check_file(folder, stored)
                yield folder
