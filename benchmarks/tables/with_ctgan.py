"""Trains CTGAN (Xu et al. 2019) with all rows in one place, for about SECONDS.

python -m benchmarks.tables.with_ctgan TRAIN.csv MADE.csv SECONDS SEED
"""

import sys
import time
import warnings
from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd
import torch
from ctgan import CTGAN
from ctgan.synthesizers import ctgan as synthesizer


def main() -> None:
    """Trains with CTGAN's defaults for as many epochs as fit into the time; writes a sample."""
    warnings.simplefilter("ignore")
    source, target, seconds, seed = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    torch.manual_seed(seed)
    np.random.seed(seed)
    rows = pd.read_csv(source)
    names, missing = list(rows), [name for name in rows if rows[name].isna().any()]
    for name in missing:  # CTGAN cannot read missing values
        rows[f"no {name}"] = np.where(rows[name].isna(), "yes", "no")
        rows[name] = rows[name].fillna(rows[name].median())
    discrete = [name for name in rows if not pd.api.types.is_numeric_dtype(rows[name])]
    begin = time.monotonic()

    def until_time_is_up(epochs: Iterable[int], **_: object) -> Iterator[int]:
        for epoch in epochs:
            yield epoch
            if time.monotonic() - begin > seconds:
                print(f"{epoch + 1} epochs in {time.monotonic() - begin:.0f} s", file=sys.stderr)
                return

    synthesizer.tqdm = until_time_is_up
    model = CTGAN(epochs=100_000, verbose=False)
    model.fit(rows, discrete)
    made = model.sample(len(rows))
    for name in missing:
        made.loc[made[f"no {name}"] == "yes", name] = np.nan
    made[names].to_csv(target, index=False)


if __name__ == "__main__":
    main()
