"""What a ledger says, for tests of whole runs."""

import sqlite3
from pathlib import Path

from mdgan.privacy.accountant import Charge, joined
from mdgan.privacy.ledger_file import FILE


def charges_in(ledger: Path) -> list[Charge]:
    """The charges of each run in a ledger, in order."""
    query = "SELECT plan ->> 'noise', plan ->> 'rate', steps FROM runs ORDER BY number"
    db = sqlite3.connect(ledger / FILE)
    try:
        return [Charge(*row) for row in db.execute(query)]
    finally:
        db.close()


def all_charges_in(ledger: Path) -> tuple[Charge, ...]:
    """The same, those that are alike added up."""
    return joined(charges_in(ledger))
