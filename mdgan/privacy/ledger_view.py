"""Reads what a ledger knows of some samples: their runs and plans, under all their names."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from mdgan.privacy.accountant import PrivacyCharge, PrivacyHistory, joined
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger_file import damaged, knows_rows_as_before, read_at_once
from mdgan.privacy.random_stream import SECRET_BYTES, derived

SAMPLE, CLIENT = "sample", "client"
_KEY_BYTES = 16


class Plan(msgspec.Struct, frozen=True):
    """The noise and number of steps of a run, fixed before its first step."""

    asked: str  # the settings that determine the rest, as JSON
    unit: str  # what the noise hides: a `SAMPLE` or a `CLIENT`
    kind: str  # of accountant
    noise: float
    rate: float
    planned: int  # steps
    until: int  # the number of steps of the run at which the plan is used up
    # The Rényi order at which the planned steps cost least; samples without earlier plans keep it.
    order: float
    # Earlier histories of clients as their hosts reported them, if the server asked.
    disclosed: tuple[PrivacyHistory, ...] = msgspec.field(name="told", default=())


class LedgerRun(msgspec.Struct, frozen=True):
    """Steps that the same samples took by one plan."""

    number: int
    plan: Plan
    name: bytes  # random; another ledger may use the same number
    steps: int  # number of steps that were taken, or may have been
    samples: int  # number of units

    @property
    def charge(self) -> PrivacyCharge:
        """The steps that a later plan must add."""
        # PRV bounds only a whole plan, so a begun plan counts as a whole.
        whole = self.plan.planned if self.plan.kind == "prv" and self.steps else 0
        return PrivacyCharge(self.plan.noise, self.plan.rate, max(self.steps, whole))


class LedgerView(NamedTuple):
    """What a ledger knows of some samples."""

    # The last run of all these samples, if exactly these took part in it.
    last: LedgerRun | None = None
    before_last: tuple[PrivacyHistory, ...] = ()  # the samples' distinct histories without `last`
    histories: tuple[PrivacyHistory, ...] = ()  # the samples' distinct histories of all runs
    units: frozenset[str] = frozenset()  # what the noise of these runs hid
    # The numbers of the last runs of all samples, also under other names.
    runs: frozenset[int] = frozenset()
    rows: tuple[int | None, ...] = ()  # the distinct numbers of histories; None: of new samples
    # Numbers of runs of some samples under other names; all samples are charged for them.
    unclear: tuple[int, ...] = ()
    # Whether several samples that were charged separately before are now one unit.
    several: bool = False

    @property
    def taken(self) -> int:
        """The most steps that any of the samples took part in, or may have."""
        return most_steps(self.histories)

    def plan_going_on(self, asked: str, steps: int) -> Plan | None:
        """The last plan, if it was made for equal settings and this many steps remain; or None."""
        last = self.last
        if last is None or last.plan.asked != asked or last.steps + steps > last.plan.until:
            return None
        return last.plan


def most_steps(earlier: Iterable[PrivacyHistory]) -> int:
    """The number of steps of the longest history."""
    return max((sum(charge.steps for charge in each.charges) for each in earlier), default=0)


def secret_of(db: sqlite3.Connection) -> bytes:
    """The ledger's secret."""
    stored = db.execute("SELECT secret FROM meta").fetchall()
    secret = stored[0][0] if len(stored) == 1 else None
    if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
        raise sqlite3.DatabaseError("it has no secret")
    return secret


def take_in(db: sqlite3.Connection, contents: Contents) -> None:
    """Fills temporary tables with the samples' keys.

    `shard` gets the keys of units. `other` gets the keys of their other names, each with the key of
    the unit; names of old ledgers have none.
    """
    secret = secret_of(db)

    def key_of(digest: bytes) -> bytes:
        return derived(secret, digest)[:_KEY_BYTES]

    db.execute("CREATE TEMP TABLE shard (key BLOB PRIMARY KEY) WITHOUT ROWID")
    db.executemany(
        "INSERT INTO shard VALUES (?)", ((k,) for k in sorted(map(key_of, contents.digests)))
    )
    db.execute("CREATE TEMP TABLE other (name BLOB NOT NULL, key BLOB, what TEXT NOT NULL)")
    parts = {"row": contents.rows, "alias": contents.aliases, "source": contents.sources}
    for what, pairs in {**parts, "given": contents.given}.items():
        names = [(key_of(name), key_of(unit), what) for name, unit in pairs]
        db.executemany("INSERT INTO other VALUES (?, ?, ?)", names)
    if knows_rows_as_before(db):
        before = [(key_of(digest),) for digest in contents.before]
        db.executemany("INSERT INTO other VALUES (?, NULL, 'before')", before)


def known_of(db: sqlite3.Connection) -> LedgerView:
    """Reads what the ledger knows of the samples in the table `shard`."""
    try:
        with read_at_once(db):
            return _read_known(db)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(Path(db.execute("PRAGMA database_list").fetchone()[2]), error) from error


def _read_known(db: sqlite3.Connection) -> LedgerView:
    query = "SELECT history, count(*) FROM shard LEFT JOIN samples USING (key) GROUP BY history"
    counts: dict[int | None, int] = dict(db.execute(query).fetchall())
    parents = {h: (p, r) for h, p, r in db.execute("SELECT number, parent, run FROM histories")}
    runs: dict[int, LedgerRun] = {}

    def chain_of(history: int | None) -> list[LedgerRun]:
        """The runs of a history, the newest first."""
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
    # Histories of samples under these samples' other names, or with other names equal to these.
    query = (
        "SELECT history FROM samples WHERE key IN (SELECT name FROM other) UNION "
        "SELECT history FROM samples WHERE key IN (SELECT unit FROM names WHERE name IN "
        "(SELECT key FROM shard UNION SELECT name FROM other WHERE what IN ('row', 'given'))) "
        "AND key NOT IN (SELECT key FROM shard)"
    )
    elsewhere = [chain_of(history) for (history,) in db.execute(query)]
    others = {run.number: run for chain in elsewhere for run in chain if run.steps}
    query = (
        "SELECT 1 FROM other JOIN samples ON name = samples.key WHERE other.key NOTNULL "
        "AND what != 'given' GROUP BY other.key, what HAVING count(*) > 1 LIMIT 1"
    )
    several = db.execute(query).fetchone() is not None
    lasts = {chain[0].number for chain in chains if chain}
    last = runs[min(lasts)] if len(lasts) == 1 and None not in counts else None
    if last is not None and (
        last.samples != sum(counts.values()) or max(others, default=0) > last.number
    ):
        last = None
    each_once = [{run.number: run for run in (*chain, *others.values())} for chain in chains]
    whole = [[chain[number] for number in sorted(chain, reverse=True)] for chain in each_once]
    return LedgerView(
        last,
        () if last is None else _histories([r for r in chain if r != last] for chain in whole),
        _histories(whole),
        units=frozenset(run.plan.unit for run in runs.values() if run.steps),
        runs=frozenset(lasts | {chain[0].number for chain in elsewhere}),
        rows=tuple(counts),
        unclear=tuple(sorted(others)),
        several=several,
    )


def _histories(chains: Iterable[list[LedgerRun]]) -> tuple[PrivacyHistory, ...]:
    """The distinct histories of chains of runs; runs without a step do not count."""
    histories = set()
    for chain in chains:
        if taken := [run for run in chain if run.steps]:
            histories.add(PrivacyHistory(taken[-1].plan.order, joined(run.charge for run in taken)))
    return tuple(sorted(histories))


def _read_run(db: sqlite3.Connection, number: int) -> LedgerRun:
    query = "SELECT number, plan, stream, steps, samples FROM runs WHERE number = ?"
    row = db.execute(query, (number,)).fetchone()
    number, text, name, *counts = msgspec.convert(row, tuple[int, str, bytes, int, int])
    plan = msgspec.json.decode(text, type=Plan)
    run = LedgerRun(number, plan, name, *counts)
    if not (plan.noise > 0 and 0 < plan.rate <= 1 and plan.order > 1 and run.steps >= 0):
        raise ValueError("steps that cannot be")
    return run
