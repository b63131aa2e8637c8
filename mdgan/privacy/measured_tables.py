"""How good private synthetic tables are, as `python -m benchmarks.private_tables` has measured."""

from math import hypot, log

MEASURED: dict[tuple[int, int], dict[float, tuple[float, float, float]]] = {
    (16_152, 10): {0.5: (1.00, 0.94, 0.97), 1.0: (1.00, 0.94, 0.97), 3.0: (1.00, 0.94, 0.97)},
    (16_000, 9): {0.5: (0.94, 0.94, 0.89), 1.0: (0.95, 0.96, 0.91), 3.0: (0.96, 0.97, 0.92)},
    (5_092, 9): {0.5: (1.00, 0.97, 0.91), 1.0: (0.99, 0.98, 0.95), 3.0: (0.99, 1.00, 0.96)},
    (5_634, 20): {0.5: (0.98, 0.98, 0.94), 1.0: (0.99, 0.99, 0.96)},
    (16_000, 17): {0.5: (1.00, 0.99, 0.95), 1.0: (0.99, 0.99, 0.97)},
    (8_000, 42): {0.5: (0.95, 0.91, 0.87), 1.0: (0.96, 0.94, 0.90)},
}
"""By (rows of all workers, columns) and by ε: the AUC of a logistic regression (LR) and of gradient
boosting (GB) that learnt from rows of `--algorithm moments`, as parts of the AUC of real rows, and
how near pairs of columns are. Measured at four sites with secure sums."""
MEANING = "AUC of classifiers that learnt from rows (LR, GB), and pairs of columns; real rows: 1"


def nearest(rows: float, columns: int) -> tuple[str, dict[float, str]]:
    """The measured table nearest in size, in words, and its figures in words by ε."""
    size = min(MEASURED, key=lambda other: hypot(log(other[0] / rows), log(other[1] / columns)))
    line = "LR {:.2f}, GB {:.2f}, pairs {:.2f}"
    by_epsilon = {epsilon: line.format(*three) for epsilon, three in sorted(MEASURED[size].items())}
    return f"{size[0]:,} rows × {size[1]} columns at four sites with secure sums", by_epsilon
