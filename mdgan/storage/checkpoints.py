"""Commits, finds and removes the checkpoints of a run on one machine: a server's or a worker's."""

import contextlib
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from torch import Tensor

from mdgan.errors import BadInput
from mdgan.storage import whole_file
from mdgan.storage.fence import Fenced
from mdgan.storage.foreign_file import read_whole
from mdgan.storage.manifest import SERVER, Manifest, Newer
from mdgan.storage.state_file import Damaged, StoredFile, check_file, read_state

SERVER_FILE = "server.safetensors"

_MANIFEST_FILE = "manifest.json"


def worker_file(worker: int) -> str:
    """The name of a worker's file in the folder of a checkpoint."""
    return f"worker-{worker:04d}.safetensors"


class Checkpoints:
    """The checkpoints of one run, each a folder `<iteration>/` with states and a manifest.

    A checkpoint counts as soon as its manifest exists, which is written last.

    Args:
        keep: K, how many checkpoints to keep; at least one.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder = folder
        self._keep = keep
        self._is_made = False

    def folder_of(self, iteration: int) -> Path:
        """The folder of the checkpoint after an iteration."""
        return self._folder / f"{iteration:07d}"

    def make_folder_of(self, iteration: int) -> Path:
        """Makes the folder of a checkpoint; before the first one, also the folder above it.

        Other users cannot look into either folder. If a user moves the run's folder away or
        deletes it, this method does not make it again.
        """
        folder = self.folder_of(iteration)
        whole_file.make_private_folder(self._folder, parents=not self._is_made)
        whole_file.make_private_folder(folder, parents=False)
        self._is_made = True
        return folder

    def committed(self) -> list[int]:
        """The iterations of all checkpoints whose manifest can be read, the newest last."""
        return sorted(manifest.iteration for manifest in self._manifests())

    def commit(self, manifest: Manifest) -> None:
        """Completes a checkpoint whose other files are written, and removes outdated checkpoints.

        Outdated are all but the last K checkpoints, earlier ones that were never completed, and
        later ones, which exist if training was resumed from an earlier checkpoint.

        Raises:
            Fenced: a server of a higher generation has committed a checkpoint.
            OSError: the manifest cannot be written; all earlier checkpoints stay.
        """
        others = list(self._manifests())
        highest = max((other.generation for other in others), default=0)
        if highest > manifest.generation:
            raise Fenced(f"generation {highest} has taken over and has made a checkpoint")
        folder = self.make_folder_of(manifest.iteration)
        whole_file.write_whole(folder / _MANIFEST_FILE, manifest.as_bytes(), whole_file.OWNER_ALONE)
        # From here on nothing fails: the next `commit` tries again to remove what is left.
        current, committed = manifest.iteration, [other.iteration for other in others]
        earlier = sorted((other for other in committed if other < current), reverse=True)
        kept = {current, *earlier[: self._keep - 1]}
        for iteration, folder in self._folders():
            if iteration in kept:
                _unlink(folder.glob(".*.tmp"))
            # A newer server may be writing a later checkpoint that has no manifest yet.
            elif iteration < current or iteration in committed:
                # The manifest is removed first, so that half a checkpoint never counts.
                _unlink([folder / _MANIFEST_FILE])
                shutil.rmtree(folder, ignore_errors=True)

    def discard(self, iteration: int) -> None:
        """Removes a checkpoint, unless it is complete, to free a full disk; never fails."""
        with contextlib.suppress(OSError):
            if not (self.folder_of(iteration) / _MANIFEST_FILE).exists():
                shutil.rmtree(self.folder_of(iteration), ignore_errors=True)

    def newest(self) -> tuple[Manifest | None, list[str]]:
        """Finds the newest intact checkpoint; checks no files on other machines.

        Returns:
            Its manifest, or None if there is none; and a line for each newer, damaged checkpoint.

        Raises:
            BadInput: the newest checkpoint was written by a newer mdgan.
        """
        passed_over: list[str] = []
        for iteration, folder in sorted(self._folders(), reverse=True):
            try:
                manifest = _read_manifest(iteration, folder)
                for stored in manifest.here():
                    check_file(folder, stored)
                return manifest, passed_over
            except Newer as error:
                raise BadInput(folder, error, "update mdgan") from error
            except Damaged as error:
                passed_over.append(f"checkpoint of iteration {iteration}: {error}")
        return None, passed_over

    def exist(self) -> bool:
        """Whether any completed checkpoint exists, damaged or not."""
        return any((folder / _MANIFEST_FILE).exists() for _, folder in self._folders())

    def find(self, iteration: int, stored: StoredFile) -> dict[str, Tensor] | None:
        """Reads a state that is on this machine.

        Args:
            iteration: of the checkpoint whose manifest names the state. Other folders are tried,
                too: a checkpoint made without a live worker names that worker's earlier file.

        Returns:
            The state; None if it is not on this machine, damaged, or unreadable now.
        """
        with contextlib.suppress(OSError):
            for folder in [self.folder_of(iteration), *(folder for _, folder in self._folders())]:
                with contextlib.suppress(Damaged):
                    return read_state(folder, stored)
        return None

    def states_of(self, manifest: Manifest) -> Iterator[tuple[int, dict[str, Tensor]]]:
        """Yields ranks and states of a checkpoint on this machine; first the server's, as 0."""
        for owner in sorted(manifest.files, key=lambda name: (name != SERVER, len(name), name)):
            state = self.find(manifest.iteration, manifest.files[owner])
            if state is not None:
                yield 0 if owner == SERVER else int(owner), state

    def lend(self, before: int, iteration: int, files: Iterable[StoredFile]) -> None:
        """Links or copies files of an earlier checkpoint into the folder of a later one."""
        old, new = self.folder_of(before), self.folder_of(iteration)
        for stored in files:
            if old != new and (old / stored.name).exists():
                (new / stored.name).unlink(missing_ok=True)
                try:
                    (new / stored.name).hardlink_to(old / stored.name)
                except OSError:  # a file system without links
                    whole_file.copy_private(old / stored.name, new / stored.name)

    def prune_worker(self, worker: int, kept: Sequence[int], current: int) -> None:
        """Removes a worker's files of old checkpoints, on the worker's own machine.

        Files of the two checkpoints before `current` stay: the server may still have to commit
        them, or to receive them. So files of at most K + 3 checkpoints stay.

        Args:
            kept: the iterations of committed checkpoints; files of the last K of them stay.
            current: the iteration of the checkpoint that is being made; its file stays.
        """
        earlier = sorted(iteration for iteration, _ in self._folders() if iteration < current)
        last = [iteration for iteration in earlier if iteration in kept][-self._keep :]
        staying = {*last, current, *earlier[-2:]}
        for iteration, folder in self._folders():
            if iteration not in staying:
                name = worker_file(worker)
                _unlink([folder / name, *folder.glob(f".{name}.*.tmp")])
                with contextlib.suppress(OSError):  # the folder may hold files of other workers
                    folder.rmdir()

    def _folders(self) -> Iterator[tuple[int, Path]]:
        paths = list(self._folder.iterdir()) if self._folder.is_dir() else []
        for path in paths:
            if re.fullmatch(r"[0-9]{7,}", path.name) and path.is_dir():
                yield int(path.name), path

    def _manifests(self) -> Iterator[Manifest]:
        for iteration, folder in self._folders():
            with contextlib.suppress(Damaged):
                yield _read_manifest(iteration, folder)


def _read_manifest(iteration: int, folder: Path) -> Manifest:
    path = folder / _MANIFEST_FILE
    try:
        data = read_whole(path)
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
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
