"""Compares the samples of a resumed run with those that it began with, and with held-out ones.

A machine keeps a digest of each sample of its workers in the folder of the run. The digests are
keyed with a secret of the machine: without it the folder reveals nothing of the samples. No host
sends them.
"""

import logging
import secrets
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mdgan.data.digests import Digests, digests_of, num_common, shared_samples
from mdgan.data.find import shipped_folder
from mdgan.errors import BadInput, reason_of
from mdgan.metrics.chosen import open_held_out
from mdgan.privacy.planning import ledger_folder
from mdgan.spelling import flag
from mdgan.storage.foreign_file import read_whole
from mdgan.storage.whole_file import OWNER_ALONE, make_private_folder, write_whole

if TYPE_CHECKING:
    from mdgan.launch.checked import Checked

_log = logging.getLogger(__name__)

_FOLDER, _KEY_FILE, _KEY_BYTES = "known", "samples.key", 32
_MOST_BYTES = 1 << 34
_VERSION = b"2"  # of what is digested


def compare_samples(
    checked: "Checked", run: Path, workers: Iterable[int], *, goes_on: bool
) -> None:
    """Warns if samples of workers here have changed since the run began; stores new digests.

    Args:
        run: the folder of the run on this machine.
        goes_on: whether the run is resumed; otherwise digests in the folder are replaced.
    """
    before, now = dict[int, Digests](), dict[int, Digests]()
    try:
        key = _key_of_machine(ledger_folder(checked.settings.privacy))
        known_by = blake2b(digest_size=16, key=key, person=_VERSION).digest()  # marks our files
        make_private_folder(run / _FOLDER)
        for worker in workers:
            file = run / _FOLDER / f"{worker}.bin"
            digests = digests_of(*checked.holdings[worker], key)
            kept = read_whole(file, _MOST_BYTES) if goes_on and file.exists() else b""
            if kept.startswith(known_by) and len(kept) % digests.itemsize == 0:
                before[worker] = np.frombuffer(kept, np.uint64, offset=len(known_by))
                now[worker] = digests
            else:  # new, damaged, or written on another machine
                write_whole(file, known_by + digests.tobytes(), OWNER_ALONE)
    except Exception as error:  # a disk may be full, and a reader may raise anything
        _log.warning("warning: changed samples cannot be told: %s", reason_of(error))
    if before and (change := _change(before, now)):
        data = checked.settings.data
        folder = flag("data_dir", data.data_dir or data.data_folder(data.dataset, min(now)))
        what = "samples here have changed since the run began"
        _log.warning("warning: %s: %s: %s", folder, what, change)


def _change(before: dict[int, Digests], now: dict[int, Digests]) -> str:
    """Says how the samples have changed; empty if they have not."""
    all_before, all_now = (np.concatenate([*each.values()]) for each in (before, now))
    num_same = num_common(all_before, all_now)
    moved = num_same - sum(num_common(before[worker], now[worker]) for worker in now)
    new, lost = len(all_now) - num_same, len(all_before) - num_same
    changes = [f"{new:,} are new and {lost:,} of {len(all_before):,} gone"] * bool(new or lost)
    if moved:
        which = "others" if changes else "samples"
        changes.append(f"{moved:,} {which} have another worker, as the data are divided anew")
    return "; ".join(changes)


def overlap_warning(checked: "Checked") -> list[str]:
    """Warns, in at most one line, if workers here train on held-out samples."""
    settings, dataset = checked.settings, checked.dataset
    if settings.scores.held_out is None and dataset.path.parent == shipped_folder():
        return []
    folder = settings.data.data_folder(dataset.name, 1)
    try:
        held_out = open_held_out(settings, dataset, folder)
    except BadInput as error:  # if rank 0 runs elsewhere, it has the held-out samples
        return [f"held-out samples are not compared: {error.marked}"] * checked.ranks.serves
    if held_out is None:
        return []
    shared = shared_samples(checked.holdings.values(), held_out)
    if shared.is_chance:
        return []
    return [
        f"{flag('held_out', settings.scores.held_out or folder)}: {shared}, so scores that compare "
        "with them, and audits, tell nothing of new ones"
    ]


def _key_of_machine(folder: Path) -> bytes:
    """The secret of this user on this machine; the first call draws it."""
    file = folder / _KEY_FILE
    if not file.exists():
        make_private_folder(folder)
        write_whole(file, secrets.token_bytes(_KEY_BYTES), OWNER_ALONE)
    return read_whole(file)
