"""The names of scores: those in records, and those that people read."""

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
"""Name in records → name for people, in the order of display; scores of table rows come last.

Of table rows: AUC is the area under the ROC curve, on held-out real rows, of a logistic regression
(LR) or gradient boosting (GB) trained on synthetic rows. The closest record is the median distance
of synthetic rows to held-out ones. `kept_rules` is the share of rows that keep a rule, the least.
"""

BEST_IS_LEAST = ("fid", "kid", "class_kl", "intra_fid")
"""The scores of which lower is better. Of all others higher is better, up to the value of real
samples."""

OF_ROWS = ("column_shapes", "pair_trends", "tstr_lr", "tstr_gb")
"""The scores of table rows that short lines show."""


def main_score(scores: Mapping[str, object]) -> str:
    """The score that curves show: FID, or for table rows the first of `OF_ROWS` that exists."""
    return next((name for name in ("fid", *OF_ROWS) if name in scores), "fid")


def in_short(scores: Mapping[str, float | None]) -> str:
    """The scores for a progress line, as text; empty if there are none."""
    if (fid := scores.get("fid")) is not None:
        return f"FID {fid:.1f}"
    rows_scores = [(SCORE_NAMES[name], scores.get(name)) for name in OF_ROWS]
    return ", ".join(f"{name} {value:.3f}" for name, value in rows_scores if value is not None)
