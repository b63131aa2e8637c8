"""Writes to a machine's audit log by which maps it reads its tables. The log stays there."""

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from mdgan.data.settings import DataSettings
from mdgan.records.audit_log import AuditLog
from mdgan.samples.table.site_map import read_map_file
from mdgan.storage.whole_file import make_private_folder


def log_maps(data: DataSettings, folder: Path, workers: Iterable[int], iteration: int = 0) -> None:
    """Adds the digests of the maps of some workers here to the audit log in a folder."""
    if data.schema is None or data.map is None:
        return
    ranks_of: dict[Path, list[int]] = {}
    for rank in workers:
        if (path := data.map_of(data.data_folder(data.dataset, rank))) is not None:
            ranks_of.setdefault(path, []).append(rank)
    for path, ranks in ranks_of.items():
        make_private_folder(folder)
        AuditLog(folder).add(
            "map", f"SHA-256 {sha256(read_map_file(path)).hexdigest()}", iteration, ranks
        )
