"""What was spent: by each sample, on the machine that holds it; see docs/privacy.md.

One SQLite file. It knows samples by salted hashes of what they hold, and of each the runs that it
took part in. A run's steps are reserved in blocks before they are taken: a process that is killed
leaves its block spent, and the next one goes on behind it; a process that ends in order leaves the
exact number.
"""

import contextlib
import fcntl
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from mdgan.errors import BadInput
from mdgan.privacy.accountant import PrivacyCharge, PrivacyHistory, joined
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger_file import (
    begun,
    damaged,
    knows_rows_as_before,
    opened,
    unwritable,
    written,
)
from mdgan.privacy.random_stream import SECRET_BYTES, derived, step_key
from mdgan.storage.whole_file import OWNER_ALONE

BLOCK = 64
"""Steps that are reserved at once."""
SAMPLE, CLIENT = "sample", "client"
IN_USE = (
    "another run, or another worker of this one, trains on some of these samples; wait for its "
    "end, or give each worker samples of its own"
)
_KEY_BYTES = 16


class Plan(msgspec.Struct, frozen=True):
    """What the steps of a run are taken for.

    Attributes:
        asked: all that decides the rest.
        unit: what the noise hides: a `SAMPLE` or a `CLIENT`.
        until: the number of steps of the run at which the plan is used up.
        order: of Rényi, at which the planned steps cost least; it stays with samples that have no
            earlier plan.
        disclosed: what hosts said of earlier runs of their clients, if they were asked.
    """

    asked: str
    unit: str
    kind: str
    noise: float
    rate: float
    planned: int
    until: int
    order: float
    disclosed: tuple[PrivacyHistory, ...] = msgspec.field(name="told", default=())


class LedgerRun(msgspec.Struct, frozen=True):
    """Steps that the same samples took by one plan.

    Attributes:
        stream: what random numbers come from, beside the ledger's secret.
        first: the number of its first step in that stream.
        steps: that were taken, or may have been.
    """

    number: int
    plan: Plan
    stream: bytes
    first: int
    steps: int
    samples: int

    @property
    def charge(self) -> PrivacyCharge:
        """What a later plan must count."""
        # PRV bounds a plan as a whole: what a part of it leaves for others, it does not say.
        whole = self.plan.planned if self.plan.kind == "prv" and self.steps else 0
        return PrivacyCharge(self.plan.noise, self.plan.rate, max(self.steps, whole))


class LedgerView(NamedTuple):
    """What a ledger knows of some samples.

    Attributes:
        last: the run in which exactly these samples took part last, if there is one.
        before_last: their distinct histories without that run.
        histories: what they have been through in all runs, each history once.
        runs: the numbers of the last ones of all samples.
        rows: of all samples, the number of their history; None for those that are new.
        unclear: numbers of runs that some samples took part in under other names; all samples
            count as having been in them.
    """

    last: LedgerRun | None = None
    before_last: tuple[PrivacyHistory, ...] = ()
    histories: tuple[PrivacyHistory, ...] = ()
    units: frozenset[str] = frozenset()
    runs: frozenset[int] = frozenset()
    rows: tuple[int | None, ...] = ()
    unclear: tuple[int, ...] = ()

    @property
    def taken(self) -> int:
        """The most steps that a sample took part in, or may have."""
        return most_steps(self.histories)

    def plan_going_on(self, asked: str, steps: int) -> Plan | None:
        """The last plan, if the same was asked for then and so many steps of it are left."""
        last = self.last
        if last is None or last.plan.asked != asked or last.steps + steps > last.plan.until:
            return None
        return last.plan


def most_steps(earlier: Iterable[PrivacyHistory]) -> int:
    """The most steps that any of some samples took part in."""
    return max((sum(charge.steps for charge in each.charges) for each in earlier), default=0)


class Ledger:
    """Some samples' account, held by one process at a time.

    Attributes:
        folder: where the file lies.
        run: as it was when this process began.
        earlier: what the samples have been through before it.
        taken: how many steps of the run were taken, or may have been.

    Raises:
        BadInput: another process holds some of them, the ledger cannot be read or written, or
            `make_plan` refuses.
    """

    def __init__(
        self,
        folder: Path,
        contents: Contents,
        make_plan: Callable[[LedgerView], Plan],
        block: int = BLOCK,
        in_use: str = IN_USE,
    ) -> None:
        self.folder, self._block = folder, block
        in_use = f"--dp-ledger {folder}: {in_use}"
        begun(folder)
        self._lock = -1
        try:
            with opened(folder) as db:
                known, self.run = self._begin(db, contents, make_plan, in_use)
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
        make_plan: Callable[[LedgerView], Plan],
        in_use: str,
    ) -> tuple[LedgerView, LedgerRun]:
        """Goes on with the last run of these samples if the plan is the same; else enters one."""
        self._secret = _take_in(db, contents)
        known = _known(db)
        plan = make_plan(known)  # may take seconds: others may write meanwhile
        with written(db):
            if _known(db) != known:
                raise BadInput(in_use)
            last = known.last if known.last is not None and known.last.plan == plan else None
            (highest,) = db.execute("SELECT max(number) FROM runs").fetchone()
            number = (highest or 0) + 1 if last is None else last.number
            self._lock = _locked(self.folder, known.runs, number, in_use)
            return known, last or _enter(db, known, plan, number, len(contents.digests))

    def key(self, use: str) -> bytes:
        """The key of one use of random numbers in the next step; reserved on the disk before."""
        if self.taken >= self._reserved:
            steps = max(self.taken + 1, min(self.taken + self._block, self.run.plan.until))
            with opened(self.folder) as db, written(db):
                self._reserve(db, steps)
            self._reserved = steps
        secret = derived(self._secret, self.run.stream)
        return step_key(secret, self.run.first + self.taken, use)

    def remember(self, question: bytes, answer: bytes) -> None:
        """Keeps what was told, so that the same question is answered by the same."""
        with opened(self.folder) as db, written(db):
            row = derived(self._secret, question), answer
            db.execute("INSERT OR REPLACE INTO releases VALUES (?, ?)", row)

    def close(self) -> None:
        """The process ends in order: the number of steps is exact."""
        if self._lock < 0:
            return
        # If that cannot be written, the whole block counts as spent.
        with contextlib.suppress(BadInput), opened(self.folder) as db, written(db):
            self._reserve(db, self.taken)
            _lock_file(self.folder, self.run.number).unlink(missing_ok=True)
        os.close(self._lock)
        self._lock = -1

    def _reserve(self, db: sqlite3.Connection, steps: int) -> None:
        db.execute("UPDATE runs SET steps = ? WHERE number = ?", (steps, self.run.number))


def look_up(folder: Path, contents: Contents) -> LedgerView:
    """What a ledger knows of some samples; nothing is written."""
    if not begun(folder, only_looks=True):
        return LedgerView()
    with opened(folder) as db:
        _take_in(db, contents)
        return _known(db)


def remembered(folder: Path, question: bytes) -> bytes | None:
    """What was told when the same question was asked before; None if it was not."""
    if not begun(folder, only_looks=True):
        return None
    with opened(folder) as db:
        query = "SELECT answer FROM releases WHERE question = ?"
        row = db.execute(query, (derived(_secret(db), question),)).fetchone()
    return None if row is None else bytes(row[0])


def _secret(db: sqlite3.Connection) -> bytes:
    found = db.execute("SELECT secret FROM meta").fetchall()
    secret = found[0][0] if len(found) == 1 else None
    if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
        raise sqlite3.DatabaseError("it has no secret")
    return secret


def _take_in(db: sqlite3.Connection, contents: Contents) -> bytes:
    """Fills temporary tables with the samples' keys; returns the ledger's secret.

    `shard` has those of units, `other` other names of them, with the unit's unless only old ledgers
    know them.
    """
    secret = _secret(db)

    def key_of(digest: bytes) -> bytes:
        return derived(secret, digest)[:_KEY_BYTES]

    db.execute("CREATE TEMP TABLE shard (key BLOB PRIMARY KEY) WITHOUT ROWID")
    db.executemany(
        "INSERT INTO shard VALUES (?)", ((k,) for k in sorted(map(key_of, contents.digests)))
    )
    names = [(key_of(name), key_of(unit)) for name, unit in (*contents.aliases, *contents.sources)]
    before = contents.before if knows_rows_as_before(db) else ()
    db.execute("CREATE TEMP TABLE other (name BLOB NOT NULL, key BLOB)")
    db.executemany("INSERT INTO other VALUES (?, ?)", names)
    db.executemany("INSERT INTO other VALUES (?, NULL)", ((key_of(each),) for each in before))
    return secret


def _known(db: sqlite3.Connection) -> LedgerView:
    """What is known of the samples in the table `shard`."""
    try:
        return _read_known(db)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(Path(db.execute("PRAGMA database_list").fetchone()[2]), error) from error


def _read_known(db: sqlite3.Connection) -> LedgerView:
    query = "SELECT history, count(*) FROM shard LEFT JOIN samples USING (key) GROUP BY history"
    counts: dict[int | None, int] = dict(db.execute(query).fetchall())
    parents = {h: (p, r) for h, p, r in db.execute("SELECT number, parent, run FROM histories")}
    runs: dict[int, LedgerRun] = {}

    def chain_of(history: int | None) -> list[LedgerRun]:
        """Its runs, the newest one first."""
        chain: list[LedgerRun] = []
        while history is not None:
            parent, number = parents[history]
            if parent is not None and not parent < history:
                raise ValueError("a history that has no beginning")
            if number not in runs:
                runs[number] = _read_run(db, number)
            chain.append(runs[number])
            history = parent
        return chain

    chains = [*map(chain_of, counts)]
    # Of what these samples are called elsewhere, and of what elsewhere is called as they are.
    elsewhere = db.execute(
        "SELECT history FROM samples WHERE key IN (SELECT name FROM other) UNION "
        "SELECT history FROM samples WHERE key IN "
        "(SELECT unit FROM names WHERE name IN (SELECT key FROM shard))"
    )
    others = {run.number: run for (history,) in elsewhere for run in chain_of(history) if run.steps}
    lasts = {chain[0].number for chain in chains if chain}
    last = runs[min(lasts)] if len(lasts) == 1 and None not in counts else None
    if last is not None and (
        last.samples != sum(counts.values()) or max(others, default=0) > last.number
    ):
        last = None
    whole = [_newest_first([*chain, *others.values()]) for chain in chains]
    return LedgerView(
        last,
        () if last is None else _histories([r for r in chain if r != last] for chain in whole),
        _histories(whole),
        frozenset(run.plan.unit for run in runs.values() if run.steps),
        frozenset(lasts),
        tuple(counts),
        tuple(sorted(others)),
    )


def _newest_first(chain: Iterable[LedgerRun]) -> list[LedgerRun]:
    """Each run once."""
    by_number = {run.number: run for run in chain}
    return [by_number[number] for number in sorted(by_number, reverse=True)]


def _histories(chains: Iterable[list[LedgerRun]]) -> tuple[PrivacyHistory, ...]:
    """What samples have been through: each order and sum of steps once; none without a step."""
    found = set()
    for chain in chains:
        if taken := [run for run in chain if run.steps]:  # of a plan without one nothing is known
            found.add(PrivacyHistory(taken[-1].plan.order, joined(run.charge for run in taken)))
    return tuple(sorted(found))


def _read_run(db: sqlite3.Connection, number: int) -> LedgerRun:
    query = "SELECT number, plan, stream, first, steps, samples FROM runs WHERE number = ?"
    row = db.execute(query, (number,)).fetchone()
    number, text, stream, *counts = msgspec.convert(row, tuple[int, str, bytes, int, int, int])
    plan = msgspec.json.decode(text, type=Plan)
    run = LedgerRun(number, plan, stream, *counts)
    if not (plan.noise > 0 and 0 < plan.rate <= 1 and plan.order > 1 and run.steps >= 0):
        raise ValueError("steps that cannot be")
    return run


def _enter(
    db: sqlite3.Connection, known: LedgerView, plan: Plan, number: int, samples: int
) -> LedgerRun:
    """A new run of the samples in the table `shard`; each history of theirs goes on with it."""
    last, stream, first = known.last, secrets.token_bytes(SECRET_BYTES), 0
    if last is not None:  # a run that goes on elsewhere has the bits of one that never stopped
        stream, first = last.stream, last.first + last.steps
    run = LedgerRun(number, plan, stream, first, 0, samples)
    row = (number, msgspec.json.encode(plan).decode(), stream, first, 0, samples)
    db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)", row)
    db.execute("CREATE TEMP TABLE next (before INTEGER PRIMARY KEY, after INTEGER)")
    for history in known.rows:
        after = history
        for each in (*known.unclear, number):  # a run twice in a history counts once
            new = db.execute("INSERT INTO histories (parent, run) VALUES (?, ?)", (after, each))
            after = new.lastrowid
        db.execute("INSERT INTO next VALUES (?, ?)", (history or 0, after))
    db.execute(
        "INSERT OR REPLACE INTO samples SELECT key, after FROM shard LEFT JOIN samples USING (key) "
        "JOIN next ON before = coalesce(history, 0) ORDER BY key"
    )
    db.execute("INSERT OR IGNORE INTO names SELECT name, key FROM other WHERE key IS NOT NULL")
    return run


def _lock_file(folder: Path, number: int) -> Path:
    return folder / f".run-{number}.lock"


def _locked(folder: Path, others: Iterable[int], number: int, in_use: str) -> int:
    """Locks a run of this process; refuses if another process holds one of some others."""
    try:
        for other in {*others} - {number}:
            if _lock_file(folder, other).exists():  # of a process that was killed, or trains
                free = _lock(folder, other)
                _lock_file(folder, other).unlink()
                os.close(free)
        return _lock(folder, number)
    except BlockingIOError as error:
        raise BadInput(in_use) from error
    except OSError as error:
        raise BadInput(unwritable(folder, error)) from error


def _lock(folder: Path, number: int) -> int:
    lock = os.open(_lock_file(folder, number), os.O_RDWR | os.O_CREAT, OWNER_ALONE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(lock)
        raise
    return lock
