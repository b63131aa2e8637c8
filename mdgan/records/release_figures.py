"""The figures of a run that a policy decides by, from its records and its audit.

Those that follow from training data are as coarse as what they measure is known.
"""

from collections.abc import Iterable, Sequence
from math import floor, log10
from typing import Any

import msgspec
from msgspec.structs import replace

from mdgan.credentials.permit import permit_of
from mdgan.privacy.attestation import Attestation
from mdgan.records.audit import Audit, Copying, Separation
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.release_policy import RuleVerdict, decide, default_text, rules_in
from mdgan.records.rows import ScoresRow, typed
from mdgan.records.score_names import SCORE_NAMES

_DIGITS = 2
NO_WORDS: dict[str, Any] = {
    **{"left_out": {}, "warnings": [], "class_histogram": [], "real_class_histogram": []},
    **{"seconds": None, "extractor": None, "by_class": None, "rare": []},
}
"""What scores lack that strangers may read."""
NO_ATTACKS: dict[str, Any] = {
    **{"discriminators": [], "inversions": [], "left_out": {}, "extractor": "", "epsilon": {}}
}
"""What an audit lacks that strangers may read."""

FLOOR = "floor"  # what real data get where generated samples get `fid`


def attestations(recorded: RecordedRun) -> list[Attestation]:
    """The last words of every host that said some, newest last; those without sense left out."""
    found: dict[tuple[int, ...], Attestation] = {}
    for row in recorded.named("attested"):
        try:
            answer = typed(row, Attestation)
            answer.said()
            if answer.signature:
                permit_of(answer.chain.encode())
        except ValueError:
            continue
        found.pop(tuple(answer.workers), None)
        found[tuple(answer.workers)] = answer
    return list(found.values())


def spent(recorded: RecordedRun, answers: Iterable[Attestation]) -> dict[int, float]:
    """Worker → ε: what its own machine has signed, else what it told; 0 is each client."""
    signed = {n: e for answer in answers if answer.signature for n, e in answer.epsilon.items()}
    return {**recorded.state.epsilon, **signed}


def last_scores(recorded: RecordedRun) -> ScoresRow | None:
    """The last that a generator of the run got."""
    return next((row for row in reversed(recorded.of(ScoresRow)) if row.scores), None)


def figures_of(recorded: RecordedRun, answers: Sequence[Attestation]) -> dict[str, float]:
    """All figures that are known, by name."""
    found = measured(recorded)
    if epsilon := spent(recorded, answers):
        found["epsilon"] = max(epsilon.values())
        found["delta"] = float(recorded.config.get("dp_delta") or 0.0)
    return {**found, **of_signatures(answers)}


def measured(recorded: RecordedRun) -> dict[str, float]:
    """Those that scores and audit have measured."""
    scores, audit = last_scores(recorded), recorded.audit
    return {
        **of_scores(scores and rounded_scores(scores)),
        **of_audit(audit and rounded_audit(audit)),
    }


def default_verdicts(recorded: RecordedRun) -> list[RuleVerdict]:
    """What the default policy says of a run, if enough is known; empty while it goes on."""
    figures = figures_of(recorded, attestations(recorded))
    if recorded.under_way or (recorded.audit is None and "epsilon" not in figures):
        return []
    rules = rules_in(default_text(), "", "", has_dp="epsilon" in figures)
    return decide(rules, figures)


def of_signatures(answers: Iterable[Attestation]) -> dict[str, float]:
    """How many certificates signed, the generator or terms alone; and hosts that did not.

    `silent` are ranks of which nothing was heard; not known where no host has signed.
    """
    names, blank, heard = set[str](), set[str](), set[int]()
    terms: dict[str, Any] = {}
    refused = 0
    for answer in answers:
        heard.update(answer.workers)
        refused += not answer.signature
        if answer.signature:
            said = answer.said()
            terms = said.terms
            whose = permit_of(answer.chain.encode()).fingerprint
            (names if said.generator else blank).add(whose)
    counts = {"signed_by": len(names), "signed_terms": len(blank), "refused_to_sign": refused}
    if terms:
        counts["silent"] = len(set(range(1, int(terms.get("world_size", 1)))) - heard)
    return {name: float(count) for name, count in counts.items()}


def of_scores(scores: ScoresRow | None) -> dict[str, float]:
    """The last scores, and what real samples get."""
    if scores is None:
        return {}
    found = {n: s for n, s in scores.scores.items() if s is not None and n in SCORE_NAMES}
    floor = scores.real.get("fid")
    return {**found, **({FLOOR: floor} if isinstance(floor, float) else {})}


def of_audit(audit: Audit | None) -> dict[str, float]:
    """What attacks on the generator found, each the worst of all spaces; others stay at home."""
    found: dict[str, float] = {}
    if audit is None:
        return found
    if audit.bound is not None:
        found["epsilon_lower_bound"] = audit.bound.at_least
    if not audit.generator:
        return found
    attacks = [copying.membership for copying in audit.generator]
    found["audit_auc"] = max(attack.auc for attack in attacks)
    if shares := [one.share for attack in attacks for one in attack.found if one.alarms == 0.01]:
        found["audit_tpr_at_1e-2"] = max(shares)
    found["closest_record_ratio"] = min(copying.ratio for copying in audit.generator)
    if copied := [each.copied for each in audit.generator if each.copied is not None]:
        found["copied_share"] = max(copied)
    return found


def rounded(value: Any) -> Any:
    """A number with two digits, or all numbers in JSON values."""
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, bool) or not isinstance(value, int | float) or not value:
        return value
    return round(value, _DIGITS - 1 - floor(log10(abs(value))))


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
