"""The ledger: what each sample on this machine has spent, in all runs; see docs/privacy.md.

It is one SQLite file with salted hashes of the samples' contents, and the runs that each sample
took part in. A process reserves a run's steps in blocks before it takes them. If it is killed, the
whole block counts as spent, and the next process goes on behind it. If it ends in order, it writes
the exact number.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from mdgan.errors import BadInput
from mdgan.privacy import ledger_view
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger_file import begun, opened, unwritable, written
from mdgan.privacy.random_stream import SECRET_BYTES, derived, step_key
from mdgan.spelling import flag
from mdgan.storage.whole_file import OWNER_ALONE

BLOCK = 64  # steps that a process reserves at a time
IN_USE = (
    "another run, or another worker of this one, trains on some of these samples; wait for its "
    "end, or give each worker samples of its own"
)
_MOST_TRIES = 5  # to enter a run, if other processes enter samples at the same time


class Ledger:
    """The account of some samples, which one process at a time may open.

    Attributes:
        folder: where the file lies.
        run: the samples' run as it was when this process began.
        earlier: the samples' histories before this run.
        taken: how many steps of the run were taken, or may have been.

    Raises:
        BadInput: another process has opened the account of some of these samples, the file cannot
            be read or written, or `make_plan` refuses.
    """

    def __init__(
        self,
        folder: Path,
        contents: Contents,
        make_plan: Callable[[ledger_view.LedgerView], ledger_view.Plan],
        block: int = BLOCK,
        in_use: str = IN_USE,
    ) -> None:
        self.folder, self._block = folder, block
        self._in_use = BadInput(flag("dp_ledger", folder), in_use)
        begun(folder)
        self._lock = -1
        # New in each process: with a secret of the file, its copies would repeat the same noise.
        self._secret = secrets.token_bytes(SECRET_BYTES)
        try:
            with opened(folder) as db:
                known, self.run = self._begin(db, contents, make_plan)
        except BaseException:
            if self._lock >= 0:
                os.close(self._lock)
            raise
        self.taken = self._reserved = self.run.steps
        goes_on = known.last is not None and known.last.number == self.run.number
        self.earlier = known.before_last if goes_on else known.histories

    def _begin(
        self,
        db: sqlite3.Connection,
        contents: Contents,
        make_plan: Callable[[ledger_view.LedgerView], ledger_view.Plan],
    ) -> tuple[ledger_view.LedgerView, ledger_view.LedgerRun]:
        """Goes on with the last run of these samples if the plan is the same; else enters one."""
        ledger_view.take_in(db, contents)
        for _ in range(_MOST_TRIES):
            known = ledger_view.known_of(db)
            plan = make_plan(known)  # may take seconds: others may write meanwhile
            with written(db):
                if ledger_view.known_of(db) != known:
                    continue
                last = known.last if known.last is not None and known.last.plan == plan else None
                (highest,) = db.execute("SELECT max(number) FROM runs").fetchone()
                number = (highest or 0) + 1 if last is None else last.number
                self._lock = _locked(self.folder, known.runs, number, in_use=self._in_use)
                run = last or _enter(db, known, plan, number, len(contents.digests))
                db.execute(
                    "INSERT OR IGNORE INTO names SELECT name, key FROM other WHERE key NOTNULL"
                )
                return known, run
        raise self._in_use

    def key(self, use: str) -> bytes:
        """Reserves the next step on disk; returns the key of one use of random numbers in it."""
        if self.taken >= self._reserved:
            steps = max(self.taken + 1, min(self.taken + self._block, self.run.plan.until))
            with opened(self.folder) as db, written(db):
                self._reserve(db, steps)
            self._reserved = steps
        return step_key(self._secret, self.taken, use)

    def close(self) -> None:
        """Writes the exact number of steps, as the process ends in order."""
        if self._lock < 0:
            return
        # If the file cannot be written, the whole block counts as spent.
        with contextlib.suppress(BadInput), opened(self.folder) as db, written(db):
            self._reserve(db, self.taken)
            _lock_file(self.folder, self.run.number).unlink(missing_ok=True)
        os.close(self._lock)
        self._lock = -1

    def _reserve(self, db: sqlite3.Connection, steps: int) -> None:
        db.execute("UPDATE runs SET steps = ? WHERE number = ?", (steps, self.run.number))


def look_up(folder: Path, contents: Contents) -> ledger_view.LedgerView:
    """Reads what a ledger knows of some samples, without writing."""
    if not begun(folder, only_looks=True):
        return ledger_view.LedgerView()
    with opened(folder) as db:
        ledger_view.take_in(db, contents)
        return ledger_view.known_of(db)


def remembered(folder: Path, question: bytes) -> bytes | None:
    """The stored answer to a question; None if it was never asked."""
    if not begun(folder, only_looks=True):
        return None
    with opened(folder) as db:
        query = "SELECT answer FROM releases WHERE question = ?"
        row = db.execute(query, (derived(ledger_view.secret_of(db), question),)).fetchone()
    return None if row is None else bytes(row[0])


def _enter(
    db: sqlite3.Connection,
    known: ledger_view.LedgerView,
    plan: ledger_view.Plan,
    number: int,
    samples: int,
) -> ledger_view.LedgerRun:
    """Enters a new run of the samples in the table `shard` and appends it to their histories."""
    run = ledger_view.LedgerRun(number, plan, secrets.token_bytes(SECRET_BYTES), 0, samples)
    row = (number, msgspec.json.encode(plan).decode(), run.name, 0, 0, samples)
    db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)", row)
    db.execute("CREATE TEMP TABLE next (before INTEGER PRIMARY KEY, after INTEGER)")
    for history in known.rows:
        after = history
        for run_number in (*known.unclear, number):  # a run twice in a history counts once
            link = (after, run_number)
            after = db.execute("INSERT INTO histories (parent, run) VALUES (?, ?)", link).lastrowid
        db.execute("INSERT INTO next VALUES (?, ?)", (history or 0, after))
    db.execute(
        "INSERT OR REPLACE INTO samples SELECT key, after FROM shard LEFT JOIN samples USING (key) "
        "JOIN next ON before = coalesce(history, 0) ORDER BY key"
    )
    return run


def _lock_file(folder: Path, number: int) -> Path:
    return folder / f".run-{number}.lock"


def _locked(folder: Path, others: Iterable[int], number: int, *, in_use: BadInput) -> int:
    """Locks this process's run; refuses if another process holds its lock, or one of `others`."""
    try:
        for other in {*others} - {number}:
            if _lock_file(folder, other).exists():  # its process was killed, or still trains
                free = _lock(folder, other)
                _lock_file(folder, other).unlink()
                os.close(free)
        return _lock(folder, number)
    except BlockingIOError as error:
        raise in_use from error
    except OSError as error:
        raise unwritable(folder, error) from error


def _lock(folder: Path, number: int) -> int:
    lock = os.open(_lock_file(folder, number), os.O_RDWR | os.O_CREAT, OWNER_ALONE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(lock)
        raise
    return lock


_ANSWER = "answer"


class Releases:
    """Answers about held samples that a worker gives once, stored in the ledger by question.

    A question is everything that determines an answer except the noise: what is counted or added
    up, within which bounds, over which samples. Only an identical question is free, and gets the
    stored answer. Any other question draws new noise and is charged: answers that share noise, or
    an uncharged one, would tell more than the account says.
    """

    def __init__(self, folder: Path, held: Contents) -> None:
        self._folder = folder
        samples = [*held.digests, *(row for row, _ in held.rows)]
        self._samples = hashlib.sha256(b"".join(samples)).hexdigest()

    def question(self, what: str, **about: object) -> bytes:
        """The digest of a question.

        Args:
            what: kind of answer.
            about: everything else that determines the answer, as JSON values.
        """
        text = json.dumps([what, self._samples, about], sort_keys=True)
        return hashlib.sha256(text.encode()).digest()

    def told(self, question: bytes) -> Tensor | None:
        """The stored answer to a question; None if there is none."""
        kept = remembered(self._folder, question)
        try:
            return None if kept is None else load(kept)[_ANSWER]
        except (KeyError, SafetensorError):
            return None

    def has_told(self, asked: str) -> bool:
        """Whether the plan with this `asked` has stored an answer, which may be repeated."""
        return self.told(self._by_plan(asked)) is not None

    def keep(self, ledger: Ledger, question: bytes, answer: Tensor) -> None:
        """Stores an answer, before it leaves the worker."""
        self.remember({question: answer, self._by_plan(ledger.run.plan.asked): torch.empty(0)})

    def remember(self, answers: Mapping[bytes, Tensor]) -> None:
        """Stores answers by question, so that an equal question gets an equal answer."""
        saved = {question: save({_ANSWER: a.contiguous()}) for question, a in answers.items()}
        with opened(self._folder) as db, written(db):
            secret = ledger_view.secret_of(db)
            rows = [(derived(secret, question), answer) for question, answer in saved.items()]
            db.executemany("INSERT OR REPLACE INTO releases VALUES (?, ?)", rows)

    def _by_plan(self, asked: str) -> bytes:
        return self.question("once", asked=asked)
