"""Numbers that follow from training data, as coarse as what they measure is known."""

from math import floor, log10
from typing import Any

import msgspec
from msgspec.structs import replace

from mdgan.records.audit import Audit, Copying, Separation
from mdgan.records.rows import ScoresRow

_DIGITS = 2
NO_WORDS: dict[str, Any] = {
    **{"left_out": {}, "warnings": [], "class_histogram": [], "real_class_histogram": []},
    **{"seconds": None, "extractor": None, "by_class": None},
}
"""What scores lack that strangers may read."""
NO_ATTACKS: dict[str, Any] = {
    **{"discriminators": [], "inversions": [], "left_out": {}, "extractor": "", "epsilon": {}}
}
"""What an audit lacks that strangers may read."""


def rounded(value: Any) -> Any:
    """A number with two digits, or all numbers in JSON values."""
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, bool) or not isinstance(value, int | float) or not value:
        return value
    places = _DIGITS - 1 - floor(log10(abs(value)))
    return round(value, places)


def rounded_scores(scores: ScoresRow) -> ScoresRow:
    """Scores without words, which may name files, and without what else only the server needs."""
    kept = {"iteration": scores.iteration, "n": scores.n, "n_held_out": scores.n_held_out}
    plain = msgspec.to_builtins(replace(scores, **NO_WORDS), str_keys=True)
    return msgspec.convert({**rounded(plain), **kept}, ScoresRow, str_keys=True)


def rounded_audit(audit: Audit, *, has_dp: bool = False) -> Audit:
    """What attacks on the generator found; what others found stays at home.

    With `has_dp` only what canaries say is left: coins and noise decide that, and no noise covers
    the rest, such as how long a sample's gradient is, and what was found of that.
    """
    attacks = [] if has_dp else [_rounded_attack(each) for each in audit.generator]
    bound = audit.bound
    if has_dp and bound is not None:
        flaws = ["it does not do as it states; see the audit"] if bound.flaws else []
        bound = replace(bound, longest=None, flaws=flaws)
    return replace(audit, generator=attacks, bound=bound, **NO_ATTACKS)


def _rounded_attack(attack: Copying) -> Copying:
    found = attack.membership
    plain = msgspec.to_builtins(replace(attack, membership=replace(found, curve=[])))
    coarse = msgspec.convert(rounded(plain), Copying)
    places = max(1, -floor(log10(found.error))) if found.error else _DIGITS
    chance = None if found.chance is None else round(found.chance, places)
    by_error: Separation = replace(
        coarse.membership, auc=round(found.auc, places), chance=chance, error=rounded(found.error)
    )
    return replace(coarse, membership=by_error)
