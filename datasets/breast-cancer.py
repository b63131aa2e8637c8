"""569 rows of a clinical table, 31 columns; they come with scikit-learn.

Wolberg, Street and Mangasarian's breast cancer data (Wisconsin, 1995): 30 measurements of the
nuclei of cells in a fine needle aspirate, and the diagnosis. Workers train on 456 rows. The other
113, a fifth of each diagnosis, are held out for scores; which ones, was drawn at random once and
for all.
"""

from pathlib import Path
from random import Random

import numpy as np

from mdgan.data.dataset_file import PreparedData
from mdgan.data.settings import DataSettings
from mdgan.data.table_source import TablePartitioner, table_data
from mdgan.samples.table.kind import TableKind
from mdgan.samples.table.rows import Rows
from mdgan.samples.table.schema import CategoryColumn, NumberColumn, Schema

DEFAULTS = {"architecture": "table"}
_HELD_OUT_EVERY = 5
_DECIMALS = 6
_TARGET = "diagnosis"
_HIGHEST = {  # upper bounds of the mean, the error and the worst value of each measurement
    "radius": (30, 3, 40),
    "texture": (40, 5, 50),
    "perimeter": (200, 25, 260),
    "area": (2600, 600, 4500),
    "smoothness": (0.2, 0.04, 0.25),
    "compactness": (0.4, 0.15, 1.1),
    "concavity": (0.45, 0.4, 1.3),
    "concave points": (0.25, 0.06, 0.3),
    "symmetry": (0.35, 0.08, 0.7),
    "fractal dimension": (0.1, 0.03, 0.22),
}


def _schema() -> Schema:
    names = [
        (pattern.format(name), high[place])
        for place, pattern in enumerate(("mean {}", "{} error", "worst {}"))
        for name, high in _HIGHEST.items()
    ]
    columns = [NumberColumn(name=n, low=0, high=h, decimals=_DECIMALS) for n, h in names]
    diagnosis = CategoryColumn(name=_TARGET, categories=("malignant", "benign"))
    return Schema(columns=(*columns, diagnosis), about=__doc__.partition("\n")[0])


def prepare(_settings: DataSettings) -> PreparedData:
    """Prepares the rows, with the diagnosis as target; no file is read."""
    kind = TableKind(_schema(), _TARGET)

    def rows(_data_dir: Path) -> TablePartitioner:
        return _rows(kind, held_out=False)

    def held_out(_data_dir: Path) -> TablePartitioner:
        return _rows(kind, held_out=True)

    return table_data(kind, rows, held_out, reads_files=False)


def _rows(kind: TableKind, *, held_out: bool) -> TablePartitioner:
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    labels = data.target
    # Python promises these numbers for all of its versions.
    random = Random(0)
    order = sorted(range(len(labels)), key=lambda place: (int(labels[place]), random.random()))
    is_held_out = np.zeros(len(labels), dtype=bool)
    is_held_out[order[_HELD_OUT_EVERY - 1 :: _HELD_OUT_EVERY]] = True
    chosen = is_held_out if held_out else ~is_held_out
    values = np.column_stack([np.round(data.data, _DECIMALS), labels])
    return TablePartitioner(kind, Rows(kind.schema, values[chosen]))
