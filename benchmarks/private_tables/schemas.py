"""Writes the schema of each table: the draft of `mdgan schema draft`, with answered questions."""

import json
import subprocess
import sys
from pathlib import Path

WORDS: dict[str, object] = {"kind": "category", "categories": [*"123456"]}
COLUMNS: dict[str, dict[str, object]] = {
    **dict.fromkeys(("occupation", "occupation_husb"), WORDS),
    **{"month": {"low": 1, "high": 12}, "hour": {"low": 0, "high": 23}},
    **{name: {"high": 10} for name in ("num_collections_last_12m", "public_record_bankrupt")},
    **{name: {"high": 60} for name in ("num_historical_failed_to_pay", "tax_liens")},
    **{"total_collection_amount_ever": {"high": 300_000}, "total_debit_limit": {"high": 500_000}},
}
"""Columns whose numbers stand for words, and known bounds where the draft asks for them."""
BY_CHANCE = (
    *("air_time <= distance", "tenure <= total_charges", "disbursement_method"),
    *("debt_to_income <= annual_income", "current_installment_accounts"),
    *("num_active_debit_accounts <= total_", "num_cc_carrying_balance <= total_credit_utilized"),
)
"""Beginnings of proposed rules that the rows obey by chance; or the columns that these decide."""


def write(folder: Path) -> None:
    """Writes `schema.json` for `all.csv` in a table's folder."""
    path = folder / "schema.json"
    draft = [sys.executable, "-m", "mdgan", "schema", "draft", str(folder / "all.csv")]
    subprocess.run([*draft, "-o", str(path)], check=True, capture_output=True)
    schema = json.loads(path.read_text())
    for column in schema["columns"]:
        column |= COLUMNS.get(column["name"], {})
        for name in ("common", "spacing", "low", "high") if "categories" in column else ():
            column.pop(name, None)
    schema["rules"] = [
        rule
        for rule in schema.get("rules", [])
        if not (rule["column"] if isinstance(rule, dict) else rule).startswith(BY_CHANCE)
    ]
    schema["rows_are_independent"] = True
    path.write_text(json.dumps(schema, indent=1) + "\n")
