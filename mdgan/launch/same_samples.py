"""Whether the samples of a run that goes on are those that it began with.

A machine keeps a digest of each sample of its workers beside their states. The digests are under a
secret of the machine, without which the folder of a run tells nothing of its samples. No host
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
    """Warns if samples of workers here have changed since their run began; else remembers them.

    Args:
        run: the folder of the run on this machine.
        goes_on: whether the run had begun before; if not, what the folder says is of no use.
    """
    before, now = dict[int, Digests](), dict[int, Digests]()
    try:
        key = _key_of_machine(ledger_folder(checked.settings.privacy))
        known_by = blake2b(digest_size=16, key=key, person=_VERSION).digest()  # tells others apart
        make_private_folder(run / _FOLDER)
        for worker in workers:
            file = run / _FOLDER / f"{worker}.bin"
            digests = digests_of(*checked.holdings[worker], key)
            kept = read_whole(file, _MOST_BYTES) if goes_on and file.exists() else b""
            if kept.startswith(known_by) and len(kept) % digests.itemsize == 0:
                before[worker] = np.frombuffer(kept, np.uint64, offset=len(known_by))
                now[worker] = digests
            else:  # of another machine, or damaged
                write_whole(file, known_by + digests.tobytes(), OWNER_ALONE)
    except Exception as error:  # a disk may be full, and a reader may raise anything
        _log.warning("warning: changed samples cannot be told: %s", reason_of(error))
    if before and (change := _change(before, now)):
        own = checked.settings.data
        data = flag("data_dir", own.data_dir or own.data_folder(own.dataset, min(now)))
        _log.warning("warning: %s: samples here have changed since the run began: %s", data, change)


def _change(before: dict[int, Digests], now: dict[int, Digests]) -> str:
    """What has changed, in words; empty for nothing."""
    all_before, all_now = (np.concatenate([*each.values()]) for each in (before, now))
    num_same = num_common(all_before, all_now)
    moved = num_same - sum(num_common(before[worker], now[worker]) for worker in now)
    new, gone = len(all_now) - num_same, len(all_before) - num_same
    said = [f"{new:,} are new and {gone:,} of {len(all_before):,} gone"] * bool(new or gone)
    if moved:
        which = "others" if said else "samples"
        said.append(f"{moved:,} {which} have another worker, as the data are divided anew")
    return "; ".join(said)


def overlap_warning(checked: "Checked") -> list[str]:
    """Warns of held-out samples that workers here train on; in one line."""
    settings, dataset = checked.settings, checked.dataset
    if settings.scores.held_out is None and dataset.path.parent == shipped_folder():
        return []
    folder = settings.data.data_folder(dataset.name, 1)
    try:
        held_out = open_held_out(settings, dataset, folder)
    except BadInput as error:  # else the server has them
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
    """The secret of this user on this machine, drawn when it is first asked for."""
    file = folder / _KEY_FILE
    if not file.exists():
        make_private_folder(folder)
        write_whole(file, secrets.token_bytes(_KEY_BYTES), OWNER_ALONE)
    return read_whole(file)
