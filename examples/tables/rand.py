"""Writes the RAND health insurance experiment as the tables of several sites.

    python examples/tables/rand.py FOLDER [--sites 4] [--by-outcome]

The 20,190 rows come with statsmodels, in the public domain: years of persons in an experiment on
health insurance of 1974 to 1982. The column `many_visits` says whether a person saw a doctor more
than twice in a year. A fifth of the rows, drawn once and for all, is `held-out.csv`, which no site
has; the others are divided at random, or so that each site has one outcome alone.
"""

import argparse
from pathlib import Path

import numpy as np

OUTCOME = "many_visits"
_SEED, _HELD_OUT = 0, 5


def main() -> None:
    """Reads the arguments, and writes the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--by-outcome", action="store_true")
    given = parser.parse_args()
    write_sites(given.folder, given.sites, by_outcome=given.by_outcome)


def write_sites(folder: Path, num_sites: int, *, by_outcome: bool) -> None:
    """Writes `site-1.csv` and so on, and `held-out.csv`.

    Args:
        num_sites: at least 1; with `by_outcome` an even number.
        by_outcome: whether the first half of the sites has the rows with many visits, and the
            second half the others.
    """
    from statsmodels.datasets import randhie

    table = randhie.load_pandas().data
    table[OUTCOME] = np.where(table.pop("mdvis") > 2, "yes", "no")
    for name in ("idp", "hlthg", "hlthf", "hlthp"):
        table[name] = np.where(table[name] == 1, "yes", "no")
    order = np.random.default_rng(_SEED).permutation(len(table))
    table = table.iloc[order].reset_index(drop=True)
    folder.mkdir(parents=True, exist_ok=True)
    table[::_HELD_OUT].to_csv(folder / "held-out.csv", index=False)
    rest = table[np.arange(len(table)) % _HELD_OUT != 0]
    if by_outcome:
        rest = rest.sort_values(OUTCOME, ascending=False, kind="stable")
    for site, places in enumerate(np.array_split(np.arange(len(rest)), num_sites), 1):
        rest.iloc[places].to_csv(folder / f"site-{site}.csv", index=False)


if __name__ == "__main__":
    main()
