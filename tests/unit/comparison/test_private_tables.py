"""The judge of private tables: 1 for training rows, less for columns drawn independently."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.private_tables.judge import scores

NUM_ROWS = 400


@pytest.fixture
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    dose = rng.normal(size=NUM_ROWS)
    sick = np.where(dose + rng.normal(size=NUM_ROWS) > 0, "yes", "no")
    site = np.where(rng.random(NUM_ROWS) < 0.8, sick, "unknown")
    return pd.DataFrame({"dose": np.where(dose < -1, np.nan, dose), "site": site, "sick": sick})


def test_judges_training_rows_perfect_and_shuffled_columns_alike_one_by_one_alone(
    tmp_path: Path, rows: pd.DataFrame
) -> None:
    rng = np.random.default_rng(1)
    shuffled = rows.apply(lambda column: rng.permutation(column.to_numpy()))
    files = [tmp_path / f"{name}.csv" for name in ("train", "held-out", "shuffled")]
    for file, table in zip(files, (rows, rows[::2], shuffled), strict=True):
        table.to_csv(file, index=False)
    train, held_out, broken = files

    assert set(scores(train, held_out, train, "sick").values()) == {1.0}
    of_broken = scores(train, held_out, broken, "sick")
    assert of_broken.pop("shapes") == pytest.approx(1.0)
    assert all(value < 0.9 for value in of_broken.values()), of_broken
