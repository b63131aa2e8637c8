"""CTGAN (Xu et al. 2019) with all rows in one place, for about so many seconds.

python -m benchmarks.tables.with_ctgan TRAIN.csv MADE.csv SECONDS SEED
"""

import sys
import time
import warnings

import numpy as np
import pandas as pd
import torch
from ctgan import CTGAN


def main() -> None:
    """Trains with CTGAN's defaults, for as many epochs as there is time."""
    warnings.simplefilter("ignore")
    source, target, seconds, seed = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    torch.manual_seed(seed)
    np.random.seed(seed)
    rows = pd.read_csv(source)
    discrete = [name for name in rows if not pd.api.types.is_numeric_dtype(rows[name])]
    tried = []
    for epochs in (1, 4):  # what it does once at the start shall not count
        model = CTGAN(epochs=epochs, verbose=False)
        start = time.monotonic()
        model.fit(rows, discrete)
        tried.append(time.monotonic() - start)
    an_epoch = max((tried[1] - tried[0]) / 3, 1e-3)
    once = max(tried[0] - an_epoch, 0.0)
    epochs = max(1, int((seconds - once) / an_epoch))
    start = time.monotonic()
    model = CTGAN(epochs=epochs, verbose=False)
    model.fit(rows, discrete)
    print(f"{epochs} epochs in {time.monotonic() - start:.0f} s", file=sys.stderr)
    model.sample(len(rows)).to_csv(target, index=False)


if __name__ == "__main__":
    main()
