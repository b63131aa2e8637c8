"""Reads what a ledger says, for tests of whole runs."""

import sqlite3
from pathlib import Path

from mdgan.privacy.accountant import PrivacyCharge, joined
from mdgan.privacy.budget import Budget
from mdgan.privacy.ledger_file import FILE


def charges_in(ledger: Path) -> list[PrivacyCharge]:
    """The charges of each run in a ledger, in order."""
    query = "SELECT plan ->> 'noise', plan ->> 'rate', steps FROM runs ORDER BY number"
    db = sqlite3.connect(ledger / FILE)
    try:
        return [PrivacyCharge(*row) for row in db.execute(query)]
    finally:
        db.close()


def all_charges_in(ledger: Path) -> tuple[PrivacyCharge, ...]:
    """The same, those that are alike added up."""
    return joined(charges_in(ledger))


def spend_all(budget: Budget) -> float:
    """Takes all steps of training; what they spend, with all before it, as ε."""
    while not budget.over:
        budget.key("noise")
        budget.advance()
    spent = budget.spent().epsilon
    budget.close()
    return spent
