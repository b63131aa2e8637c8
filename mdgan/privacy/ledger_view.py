"""What a ledger knows of some samples: their runs and plans, by all names that they have had."""

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
    """What the steps of a run are taken for."""

    asked: str  # all that decides the rest
    unit: str  # what the noise hides: a `SAMPLE` or a `CLIENT`
    kind: str
    noise: float
    rate: float
    planned: int
    until: int  # the number of steps of the run at which the plan is used up
    # Of Rényi, at which the planned steps cost least; it stays with samples that have no earlier
    # plan.
    order: float
    # What hosts said of earlier runs of their clients, if they were asked.
    disclosed: tuple[PrivacyHistory, ...] = msgspec.field(name="told", default=())


class LedgerRun(msgspec.Struct, frozen=True):
    """Steps that the same samples took by one plan."""

    number: int
    plan: Plan
    stream: bytes  # what random numbers come from, beside the ledger's secret
    first: int  # the number of its first step in that stream
    steps: int  # that were taken, or may have been
    samples: int

    @property
    def charge(self) -> PrivacyCharge:
        """What a later plan must count."""
        # PRV bounds a plan as a whole: what a part of it leaves for others, it does not say.
        whole = self.plan.planned if self.plan.kind == "prv" and self.steps else 0
        return PrivacyCharge(self.plan.noise, self.plan.rate, max(self.steps, whole))


class LedgerView(NamedTuple):
    """What a ledger knows of some samples."""

    # The run in which exactly these samples took part last, if there is one.
    last: LedgerRun | None = None
    before_last: tuple[PrivacyHistory, ...] = ()  # their distinct histories without that run
    # What they have been through in all runs, each history once.
    histories: tuple[PrivacyHistory, ...] = ()
    units: frozenset[str] = frozenset()
    # The numbers of the last ones of all samples, under other names, too.
    runs: frozenset[int] = frozenset()
    # Of all samples, the number of their history; None for those that are new.
    rows: tuple[int | None, ...] = ()
    # Numbers of runs that some samples took part in under other names; all samples count as having
    # been in them.
    unclear: tuple[int, ...] = ()
    # Whether several samples that spent by themselves before are now one unit.
    several: bool = False

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


def secret_of(db: sqlite3.Connection) -> bytes:
    """The ledger's secret."""
    found = db.execute("SELECT secret FROM meta").fetchall()
    secret = found[0][0] if len(found) == 1 else None
    if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
        raise sqlite3.DatabaseError("it has no secret")
    return secret


def take_in(db: sqlite3.Connection, contents: Contents) -> bytes:
    """Fills temporary tables with the samples' keys; returns the ledger's secret.

    `shard` has those of units, `other` other names of them, with the unit's unless only old ledgers
    know them.
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
        before = [(key_of(each),) for each in contents.before]
        db.executemany("INSERT INTO other VALUES (?, NULL, 'before')", before)
    return secret


def known_of(db: sqlite3.Connection) -> LedgerView:
    """What is known of the samples in the table `shard`."""
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
    whole = [[own[number] for number in sorted(own, reverse=True)] for own in each_once]
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
