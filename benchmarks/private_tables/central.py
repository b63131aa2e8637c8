"""Runs MST or AIM of SmartNoise on a table of codes, in its own virtual environment."""

import json
import resource
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from mbi import Dataset, Domain
from snsynth.aim.aim import AIMSynthesizer
from snsynth.mst.mst import MSTSynthesizer
from snsynth.utils import cdp_rho


def main(codes: str, sizes: str, made: str, settings: str) -> None:
    """Fits all rows within some seconds of one processor, and writes as many synthetic rows."""
    way, epsilon, delta, seed, seconds = settings.split()
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    np.random.seed(int(seed))  # both draw from it
    table, size = pd.read_csv(codes), json.loads(Path(sizes).read_text())
    domain = Domain(list(table), [size[name] for name in table])
    rows = Dataset({name: table[name].to_numpy() for name in table}, domain)
    spent = float(epsilon), float(delta)
    # `fit` would assume that no other codes may occur than those that do. The default method of
    # samples rounds in the order of rows, which makes independent columns depend on each other.
    if way == "mst":
        mst = MSTSynthesizer(*spent)
        mst.MST(rows, *spent)
        synthetic = mst.undo_compress_fn(
            mst.synthesizer.synthetic_data(len(table), method="sample")
        )
    else:
        aim = AIMSynthesizer(*spent)
        aim.rho = cdp_rho(*spent)
        aim.AIM(rows, aim.get_workload(rows, aim.degree, aim.max_cells))
        synthetic = aim.synthesizer.synthetic_data(len(table), method="sample")
    synthetic.df[list(table)].to_csv(made, index=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
