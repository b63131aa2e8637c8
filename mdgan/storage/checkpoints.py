"""The checkpoints of a run on one machine: committed, found again, and thrown away."""

import contextlib
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from torch import Tensor

from mdgan.errors import BadInput
from mdgan.storage.fence import Fenced
from mdgan.storage.manifest import Manifest, Newer
from mdgan.storage.state_file import Damaged, StoredFile, check_file, read_state
from mdgan.storage.whole_file import make_folder, write_whole

SERVER_FILE = "server.safetensors"

_MANIFEST_FILE = "manifest.json"
_MOST_MANIFEST_BYTES = 64 * 2**20


def worker_file(worker: int) -> str:
    """The name of a worker's file in the folder of a checkpoint."""
    return f"worker-{worker:04d}.safetensors"


class Checkpoints:
    """The checkpoints of one run, each a folder `<iteration>/` with states and a manifest.

    A checkpoint counts once its manifest is there, which is written last.

    Args:
        folder: `<run>/checkpoints`.
        keep: K, how many are kept; at least one.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder = folder
        self._keep = keep

    def folder_of(self, iteration: int) -> Path:
        """Where the files of the checkpoint after an iteration lie."""
        return self._folder / f"{iteration:07d}"

    def committed(self) -> list[int]:
        """The iterations whose manifest can be read, the newest last."""
        return sorted(manifest.iteration for manifest in self._manifests())

    def commit(self, manifest: Manifest) -> None:
        """Makes a checkpoint count, whose files are written, and removes what it replaces.

        That is all but the last K, what never counted, and what lies after it: a future that was
        given up when an earlier checkpoint was taken.

        Raises:
            Fenced: a server of a higher generation has committed already.
            OSError: the manifest cannot be written; the checkpoints before are as they were.
        """
        found = list(self._manifests())
        highest = max((other.generation for other in found), default=0)
        if highest > manifest.generation:
            raise Fenced(f"generation {highest} has taken over and has made a checkpoint")
        folder = self.folder_of(manifest.iteration)
        make_folder(folder)
        write_whole(folder / _MANIFEST_FILE, manifest.as_bytes())
        self._remove_all_but(manifest.iteration, [other.iteration for other in found])

    def discard(self, iteration: int) -> None:
        """Removes what there is of a checkpoint that could not be completed; a full disk needs it.

        One that counts stays. Never fails.
        """
        if not (self.folder_of(iteration) / _MANIFEST_FILE).exists():
            shutil.rmtree(self.folder_of(iteration), ignore_errors=True)

    def newest(self) -> tuple[Manifest | None, list[str]]:
        """The newest checkpoint that is whole here, and why newer ones were passed over.

        Returns:
            Its manifest, None if there is none; and a line for each that is damaged. Files that lie
            elsewhere are not looked at.

        Raises:
            BadInput: a newer mdgan has written the newest.
        """
        passed_over: list[str] = []
        for iteration, folder in sorted(self._folders(), reverse=True):
            try:
                manifest = _read_manifest(iteration, folder)
                for stored in manifest.here():
                    check_file(folder, stored)
                return manifest, passed_over
            except Newer as error:
                raise BadInput(f"{folder}: {error}; update mdgan") from error
            except Damaged as error:
                passed_over.append(f"checkpoint of iteration {iteration}: {error}")
        return None, passed_over

    def find(self, iteration: int, stored: StoredFile) -> dict[str, Tensor] | None:
        """A state that lies on this machine.

        Args:
            iteration: of the checkpoint that names it. One that was made while there was no worker
                names files of earlier ones, so the others are looked at, too.
            stored: what the state was when it was written.

        Returns:
            The state; None if it is not here, or damaged.
        """
        for folder in [self.folder_of(iteration), *(folder for _, folder in self._folders())]:
            with contextlib.suppress(Damaged, OSError):
                return read_state(folder, stored)
        return None

    def prune_worker(self, worker: int, kept: Sequence[int], current: int) -> None:
        """Removes a worker's files of checkpoints that are of no use, on its own machine.

        The files of the two checkpoints before stay as well: while one is ordered, one may wait to
        be committed and one may be on its way.

        Args:
            worker: whose files.
            kept: the iterations of committed checkpoints whose files stay.
            current: the iteration of the checkpoint that is being made, which stays too.
        """
        earlier = sorted(iteration for iteration, _ in self._folders() if iteration < current)
        staying = {*kept, current, *earlier[-2:]}
        for iteration, folder in self._folders():
            if iteration not in staying:
                name = worker_file(worker)
                _unlink([folder / name, *folder.glob(f".{name}.*.tmp")])
                _remove_if_empty(folder)

    def _folders(self) -> Iterator[tuple[int, Path]]:
        paths = list(self._folder.iterdir()) if self._folder.is_dir() else []
        for path in paths:
            if re.fullmatch(r"[0-9]{7,}", path.name) and path.is_dir():
                yield int(path.name), path

    def _manifests(self) -> Iterator[Manifest]:
        for iteration, folder in self._folders():
            try:
                yield _read_manifest(iteration, folder)
            except Damaged:
                continue

    def _remove_all_but(self, current: int, committed: list[int]) -> None:
        """Never fails: what cannot be removed now is removed after the next checkpoint."""
        earlier = sorted((other for other in committed if other < current), reverse=True)
        kept = {current, *earlier[: self._keep - 1]}
        for iteration, folder in self._folders():
            if iteration in kept:
                _unlink(folder.glob(".*.tmp"))
            # What lies ahead without a manifest may be what a newer server is writing just now.
            elif iteration < current or iteration in committed:
                # The manifest first: half a checkpoint must not count.
                _unlink([folder / _MANIFEST_FILE])
                shutil.rmtree(folder, ignore_errors=True)


def _read_manifest(iteration: int, folder: Path) -> Manifest:
    path = folder / _MANIFEST_FILE
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_MANIFEST_BYTES)
    except FileNotFoundError as error:
        raise Damaged("has no manifest; it was never completed") from error
    except OSError as error:
        raise Damaged(f"the manifest cannot be read ({error.strerror})") from error
    manifest = Manifest.from_bytes(data)
    if manifest.iteration != iteration:
        raise Damaged(f"the manifest is of iteration {manifest.iteration}")
    return manifest


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError:
            continue


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
