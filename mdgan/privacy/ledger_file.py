"""Creates and opens the SQLite file of a ledger; its errors become messages of one line."""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from mdgan.errors import BadInput, reason_of
from mdgan.privacy.random_stream import SECRET_BYTES
from mdgan.spelling import flag
from mdgan.storage.whole_file import OWNER_ALONE, make_private_folder, sync_folder

FILE = "samples.sqlite"
_VERSION = 3
_OLDEST = 2
"""Version 1 was a JSON file for each shard. Version 2 recognised rows of tables by their encoding
under a schema; a file that began as version 2 still recognises them by it, too."""
_PATIENCE_SECONDS = 120.0
"""How long a process waits for another one that writes; a million samples take seconds."""
_OF_A_SHARD = re.compile(r"[0-9a-f]{64}\.json")
_SINCE_3 = """
    CREATE TABLE IF NOT EXISTS releases (question BLOB PRIMARY KEY, answer BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS names (
        name BLOB NOT NULL, unit BLOB NOT NULL, PRIMARY KEY (name, unit)) WITHOUT ROWID;
"""
_FROM_2 = f"{_SINCE_3} CREATE TABLE IF NOT EXISTS of_version_2 (rows); PRAGMA user_version = 3;"
_TABLES = f"""
    PRAGMA user_version = {_VERSION};
    {_SINCE_3}
    CREATE TABLE meta (secret BLOB NOT NULL);
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY, plan TEXT NOT NULL, stream BLOB NOT NULL,
        first INTEGER NOT NULL, steps INTEGER NOT NULL, samples INTEGER NOT NULL);
    CREATE TABLE histories (
        number INTEGER PRIMARY KEY, parent INTEGER, run INTEGER NOT NULL);
    CREATE TABLE samples (key BLOB PRIMARY KEY, history INTEGER NOT NULL) WITHOUT ROWID;
"""


def begun(folder: Path, *, only_looks: bool = False) -> bool:
    """Creates a missing ledger, unless `only_looks`; returns whether there is a ledger now."""
    path = folder / FILE
    try:
        _refuse_old(folder)
        if path.exists() or only_looks:
            return path.exists()
        if not folder.is_dir():
            make_private_folder(folder)
        lock = os.open(folder / ".begin.lock", os.O_RDWR | os.O_CREAT, OWNER_ALONE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                _make(path)
        finally:
            os.close(lock)
    except OSError as error:
        raise unwritable(folder, error) from error
    return True


def unwritable(place: Path, error: OSError) -> BadInput:
    """The refusal of a ledger that cannot be written; it must not suggest another folder."""
    return BadInput(
        flag("dp_ledger", place),
        f"cannot write there ({error.strerror})",
        "make it writable, or free space, since another folder would not know what these samples "
        "have spent",
    )


def _make(path: Path) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ALONE))
    with _failing_in_one_line(path), contextlib.closing(sqlite3.connect(temporary)) as db:
        db.executescript(_TABLES)
        with db:
            db.execute("INSERT INTO meta VALUES (?)", (secrets.token_bytes(SECRET_BYTES),))
    temporary.replace(path)
    sync_folder(path.parent)


def _refuse_old(folder: Path) -> None:
    """Refuses a folder with accounts of version 1, which do not name the samples they charge."""
    files = folder.iterdir() if folder.is_dir() else ()
    if number := sum(_OF_A_SHARD.fullmatch(file.name) is not None for file in files):
        raise BadInput(
            flag("dp_ledger", folder),
            f"{number} file(s) .json there are accounts of an earlier version, by shards, which "
            "do not say what a sample has spent",
            "give another folder for samples that were in none of those runs; for others move the "
            f"files elsewhere, and give an {flag('dp_epsilon')} that is smaller by the epsilon of "
            "those runs",
        )


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[sqlite3.Connection]:
    """Connects to a ledger, for one thread, and upgrades a file of version 2."""
    path = folder / FILE
    with _failing_in_one_line(path):
        address = f"file:{quote(str(path.absolute()))}?mode=rw"
        db = sqlite3.connect(address, uri=True, timeout=_PATIENCE_SECONDS, isolation_level=None)
        with contextlib.closing(db):
            db.execute("PRAGMA temp_store = MEMORY")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version > _VERSION:
                why = f"of version {version}, and this mdgan knows {_VERSION}"
                way_out = "use the newest one that was used with it"
                raise BadInput(flag("dp_ledger", path), why, way_out)
            if version < _OLDEST:
                raise damaged(path, "it has no tables")
            if version == _OLDEST:
                db.executescript(_FROM_2)
            yield db


def knows_rows_as_before(db: sqlite3.Connection) -> bool:
    """Whether the file began as version 2, and may recognise rows by their encoding."""
    query = "SELECT 1 FROM sqlite_master WHERE name = 'of_version_2'"
    return db.execute(query).fetchone() is not None


@contextlib.contextmanager
def read_at_once(db: sqlite3.Connection) -> Iterator[None]:
    """All reads in the block see the file as it was at one moment."""
    if db.in_transaction:
        yield
        return
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("COMMIT")


@contextlib.contextmanager
def written(db: sqlite3.Connection) -> Iterator[None]:
    """All writes in the block become permanent together, or not at all."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back by itself
            db.execute("ROLLBACK")
        raise


def damaged(path: Path, why: object) -> BadInput:
    """The refusal of a ledger whose content is invalid."""
    reason = reason_of(why) if isinstance(why, BaseException) else why
    return BadInput(
        flag("dp_ledger", path),
        f"damaged ({reason})",
        "restore it from a copy, for without it what samples have spent is not known",
    )


@contextlib.contextmanager
def _failing_in_one_line(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text:
            why = f"another process has been writing there for {_PATIENCE_SECONDS:.0f} s"
            raise BadInput(flag("dp_ledger", path), why, "try again when it is done") from error
        if "no such" in text or "malformed" in text:
            raise damaged(path, error) from error
        number = errno.ENOSPC if "full" in text else errno.EIO
        raise unwritable(path, OSError(number, text)) from error
    except sqlite3.Error as error:
        raise damaged(path, error) from error
