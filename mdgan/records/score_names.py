"""The names of scores, as records, messages and pages have them."""

from collections.abc import Mapping

SCORE_NAMES = {
    "fid": "FID",
    "kid": "KID",
    "inception_score": "inception score",
    "precision": "precision",
    "recall": "recall",
    "density": "density",
    "coverage": "coverage",
    "classes_covered": "classes covered",
    "class_kl": "class KL",
    "label_accuracy": "right class",
    "intra_fid": "intra FID",
    "column_shapes": "column shapes",
    "pair_trends": "pair trends",
    "tstr_lr": "AUC of LR",
    "tstr_gb": "AUC of GB",
    "closest_record": "closest record",
    "valid_rows": "valid rows",
    "kept_rules": "rules kept",
}
"""By its name in records, in the order in which they are shown; those of rows stand last.

Of rows: AUC is the area under the ROC curve on held-out real rows of a logistic regression (LR) and
of gradient boosting (GB) that were trained on synthetic rows; the closest record is the median
distance of synthetic rows to held-out ones. Of the rule that the fewest rows keep, their share.
"""

BEST_IS_LEAST = ("fid", "kid", "class_kl", "intra_fid")
"""The scores that are better the less they are; of all others more is better, up to what real
samples get."""

OF_ROWS = ("column_shapes", "pair_trends", "tstr_lr", "tstr_gb")
"""The scores of rows that are told first."""


def main_score(scores: Mapping[str, object]) -> str:
    """The score that stands for all: FID, or for rows of tables the first that there is."""
    return next((name for name in ("fid", *OF_ROWS) if name in scores), "fid")


def in_short(scores: Mapping[str, float | None]) -> str:
    """The scores that a line of progress has room for; empty if there are none."""
    if (fid := scores.get("fid")) is not None:
        return f"FID {fid:.1f}"
    found = [(SCORE_NAMES[name], scores.get(name)) for name in OF_ROWS]
    return ", ".join(f"{name} {value:.3f}" for name, value in found if value is not None)
