"""Feeds arbitrary bytes to the readers of checkpoints; what they accept must be whole."""

import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor

from mdgan.errors import BadInput
from mdgan.storage.checkpoints import Checkpoints
from mdgan.storage.manifest import Manifest
from mdgan.storage.state_file import Damaged, StoredFile, read_state, write_state
from tests.unit.storage.test_manifest import sealed


def check_line(text: str, part: str) -> None:
    """What people are told is one line, and has a certain part."""
    assert len(text.splitlines()) == 1
    assert part in text


def read_manifest(data: bytes) -> Manifest | None:
    """The manifest, which means the same when it is written again; None if it is damaged."""
    try:
        manifest = Manifest.from_bytes(data)
    except Damaged as error:
        check_line(str(error), "")
        return None
    assert Manifest.from_bytes(manifest.as_bytes()).as_bytes() == manifest.as_bytes()
    for stored in manifest.files.values():
        assert (Path("folder") / stored.name).parent == Path("folder")
    return manifest


def read_any_manifest(data: bytes) -> None:
    """Reads bytes as a manifest, as they are and with the checksum put right.

    So what is behind the checksum is reached, too.
    """
    read_manifest(data)
    try:
        record = json.loads(data)
        if isinstance(record, dict):
            data = sealed(record)
    except (ValueError, RecursionError):
        return
    read_manifest(data)


def read_any_state(data: bytes) -> dict[str, Tensor] | None:
    """Reads bytes as a state whose size and checksum are right; None if they are none."""
    stored = StoredFile("state", hashlib.sha256(data).hexdigest(), len(data))
    with TemporaryDirectory() as folder:
        (Path(folder) / "state").write_bytes(data)
        try:
            state = read_state(Path(folder), stored)
        except Damaged as error:
            check_line(str(error), "")
            return None
    assert all(tensor.numel() * tensor.element_size() <= len(data) for tensor in state.values())
    return state


def find_newest(data: bytes) -> None:
    """Looks for the newest checkpoint where the newest has these bytes as its manifest."""
    with TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder), keep=2)
        stored = write_state(checkpoints.folder_of(1), "server.safetensors", {})
        checkpoints.commit(first_manifest(stored))
        checkpoints.folder_of(2).mkdir()
        (checkpoints.folder_of(2) / "manifest.json").write_bytes(data)
        try:
            manifest, passed_over = checkpoints.newest()
        except BadInput as error:
            check_line(str(error), "update mdgan")
            return
    assert manifest is not None
    assert (manifest.iteration, len(passed_over)) in ((1, 1), (2, 0))


def first_manifest(stored: StoredFile) -> Manifest:
    """A manifest with everything in it."""
    return Manifest(
        iteration=1,
        generation=1,
        progress={"num_swaps": 2, "swap_every": 30},
        seconds=4.5,
        workers=(1, 3),
        files={"server": stored, "3": StoredFile("worker-0003.safetensors", "0" * 64, 7)},
        elsewhere=(3,),
        settings={"kappa": "auto", "batch_size": 10},
        version="0.3.0",
    )
