"""What a privacy account knows, in words: what samples have spent, in which runs, and what is left.

An account knows samples by salted hashes, and runs by numbers in their order.
"""

from pathlib import Path

from mdgan.errors import BadInput
from mdgan.observe.text_table import text_table
from mdgan.privacy.contents import Contents
from mdgan.privacy.ledger_file import begun, opened
from mdgan.privacy.ledger_view import known_of, take_in
from mdgan.privacy.planning import spent_before
from mdgan.records.values import said
from mdgan.spelling import count, flag

_CHAIN = """
    WITH RECURSIVE chain (history) AS (SELECT ? UNION ALL
        SELECT parent FROM histories JOIN chain ON number = history WHERE parent NOTNULL)
    SELECT runs.number, steps, plan ->> 'noise', json(plan ->> 'asked') ->> 0,
        json(plan ->> 'asked') ->> 1 FROM chain JOIN histories ON histories.number = history
        JOIN runs ON runs.number = run ORDER BY runs.number DESC
"""


def account_in_words(folder: Path) -> str:
    """A table of samples by the runs that they took part in."""
    if not begun(folder, only_looks=True):
        why = "no run with differential privacy has spent here yet"
        raise BadInput(folder, why, f"another folder is named by {flag('dp_ledger', 'DIR')}")
    rows = []
    with opened(folder) as db:
        take_in(db, Contents(()))
        groups = db.execute("SELECT count(*), history FROM samples GROUP BY history").fetchall()
        for number, history in groups:
            db.execute("DELETE FROM shard")
            db.execute("INSERT INTO shard SELECT key FROM samples WHERE history = ?", (history,))
            chain = db.execute(_CHAIN, (history,)).fetchall()
            # A host's account of whole clients has no bound, since the server plans their rounds.
            epsilon, delta = next((run[3:] for run in chain if run[4] is not None), (None, 1e-5))
            spent = spent_before(delta, known_of(db))
            left = None if epsilon is None else max(0.0, epsilon - spent)
            runs = [f"{run} ({count(n, 'step')}, σ {said(noise)})" for run, n, noise, *_ in chain]
            figures = said(spent), said(epsilon), said(left), f"{delta:g}"
            rows.append((f"{number:,}", *figures, ", ".join(reversed(runs))))
    headings = ("samples or persons", "ε spent", "of", "left", "δ", "in runs")
    return f"{folder}\n\n{text_table(rows, headings, right=range(5))}"
