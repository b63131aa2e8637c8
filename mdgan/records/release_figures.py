"""Computes the figures by which a policy decides, from a run's records and its audit.

Figures that depend on training data are rounded: to two digits, or by the size of their error.
"""

from collections.abc import Iterable, Sequence
from math import floor, inf, log10
from typing import Any

import msgspec
from msgspec.structs import replace

from mdgan.credentials.permit import permit_of
from mdgan.privacy.attestation import Attestation
from mdgan.records.audit import Audit, Copying, Separation
from mdgan.records.happenings import LOST, SHUT_OUT
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.release_policy import RuleVerdict, decide, default_text, rules_in
from mdgan.records.rows import ScoresRow, typed
from mdgan.records.score_names import SCORE_NAMES
from mdgan.records.values import number_in

_DIGITS = 2
NO_WORDS: dict[str, Any] = {
    **{"left_out": {}, "warnings": [], "class_histogram": [], "real_class_histogram": []},
    **{"seconds": None, "extractor": None, "by_class": None, "rare": []},
}
"""The fields that are emptied in scores for strangers."""
NO_ATTACKS: dict[str, Any] = {
    **{"discriminators": [], "inversions": [], "left_out": {}, "extractor": "", "epsilon": {}}
}
"""The fields that are emptied in an audit for strangers."""

FLOOR = "floor"  # the FID of real data


def attestations(recorded: RecordedRun) -> list[Attestation]:
    """The last valid attestation of every host that has given one, the newest last."""
    last: dict[tuple[int, ...], Attestation] = {}
    for row in recorded.named("attested"):
        try:
            answer = typed(row, Attestation)
            answer.said()
            if answer.signature:
                permit_of(answer.chain.encode())
        except ValueError:
            continue
        last.pop(tuple(answer.workers), None)
        last[tuple(answer.workers)] = answer
    return list(last.values())


def spent(recorded: RecordedRun, answers: Iterable[Attestation]) -> dict[int, float]:
    """Worker → ε that its machine has signed, or else reported; worker 0 is each client.

    A worker that did not end in order may have spent all of its budget since its last report.
    """
    budget = number_in(recorded.config, "dp_epsilon") or inf
    gone = {n for n, one in recorded.state.workers.items() if one.gone in (LOST, SHUT_OUT)}
    told = {n: budget if n in gone else e for n, e in recorded.state.epsilon.items()}
    signed = {n: e for answer in answers if answer.signature for n, e in answer.epsilon.items()}
    return {**{n: e for n, e in told.items() if e < inf}, **signed}


def last_scores(recorded: RecordedRun) -> ScoresRow | None:
    """The last scores of a generator of the run."""
    return next((row for row in reversed(recorded.of(ScoresRow)) if row.scores), None)


def figures_of(recorded: RecordedRun, answers: Sequence[Attestation]) -> dict[str, float]:
    """All figures that are known, by name."""
    figures = measured(recorded)
    if epsilon := spent(recorded, answers):
        figures["epsilon"] = max(epsilon.values())
        figures["delta"] = float(recorded.config.get("dp_delta") or 0.0)
    return {**figures, **of_signatures(answers)}


def measured(recorded: RecordedRun) -> dict[str, float]:
    """The figures that scores and audit have measured, by name."""
    scores, audit = last_scores(recorded), recorded.audit
    return {
        **of_scores(scores and rounded_scores(scores)),
        **of_audit(audit and rounded_audit(audit)),
    }


def default_verdicts(recorded: RecordedRun) -> list[RuleVerdict]:
    """Applies the default policy to a run; empty while it trains, or if too little is known."""
    figures = figures_of(recorded, attestations(recorded))
    if recorded.under_way or (recorded.audit is None and "epsilon" not in figures):
        return []
    rules = rules_in(default_text(), "", "", has_dp="epsilon" in figures)
    return decide(rules, figures)


def of_signatures(answers: Iterable[Attestation]) -> dict[str, float]:
    """Counts certificates that signed the generator, or terms alone, and hosts that refused.

    `silent` counts ranks without an attestation; it is missing if no host has signed.
    """
    names, blank, heard = set[str](), set[str](), set[int]()
    terms: dict[str, Any] = {}
    refused = 0
    for answer in answers:
        heard.update(answer.workers)
        refused += not answer.signature
        if answer.signature:
            statement = answer.said()
            terms = statement.terms
            signer = permit_of(answer.chain.encode()).fingerprint
            (names if statement.generator else blank).add(signer)
    counts = {"signed_by": len(names), "signed_terms": len(blank), "refused_to_sign": refused}
    if terms:
        counts["silent"] = len(set(range(1, int(terms.get("world_size", 1)))) - heard)
    return {name: float(count) for name, count in counts.items()}


def of_scores(scores: ScoresRow | None) -> dict[str, float]:
    """The figures from scores: each score, and the FID of real samples."""
    if scores is None:
        return {}
    figures = {n: s for n, s in scores.scores.items() if s is not None and n in SCORE_NAMES}
    floor = scores.real.get("fid")
    return {**figures, **({FLOOR: floor} if isinstance(floor, float) else {})}


def of_audit(audit: Audit | None) -> dict[str, float]:
    """The figures from canaries, and from attacks on the generator: the worst of all spaces."""
    figures: dict[str, float] = {}
    if audit is None:
        return figures
    if audit.bound is not None:
        figures["epsilon_lower_bound"] = audit.bound.at_least
    if not audit.generator:
        return figures
    attacks = [copying.membership for copying in audit.generator]
    figures["audit_auc"] = max(attack.auc for attack in attacks)
    if shares := [one.share for attack in attacks for one in attack.found if one.alarms == 0.01]:
        figures["audit_tpr_at_1e-2"] = max(shares)
    figures["closest_record_ratio"] = min(copying.ratio for copying in audit.generator)
    if copied := [attack.copied for attack in audit.generator if attack.copied is not None]:
        figures["copied_share"] = max(copied)
    return figures


def rounded(value: Any) -> Any:
    """Rounds a number to two digits, or all numbers in JSON values."""
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, bool) or not isinstance(value, int | float) or not value:
        return value
    return round(value, _DIGITS - 1 - floor(log10(abs(value))))


def rounded_scores(scores: ScoresRow) -> ScoresRow:
    """Rounded scores, without texts, which may name files, and other fields for the server."""
    kept = {"iteration": scores.iteration, "n": scores.n, "n_held_out": scores.n_held_out}
    plain = msgspec.to_builtins(replace(scores, **NO_WORDS), str_keys=True)
    return msgspec.convert({**rounded(plain), **kept}, ScoresRow, str_keys=True)


def rounded_audit(audit: Audit, *, has_dp: bool = False) -> Audit:
    """Rounded results of attacks on the generator; drops those of other attacks.

    With `has_dp` only the results of canaries stay, which depend on coins and noise alone. No noise
    covers the rest, such as the length of a sample's gradient.
    """
    attacks = [] if has_dp else [_rounded_attack(attack) for attack in audit.generator]
    bound = audit.bound
    if has_dp and bound is not None:
        flaws = ["it does not do as it states; see the audit"] if bound.flaws else []
        bound = replace(bound, longest=None, flaws=flaws)
    return replace(audit, generator=attacks, bound=bound, **NO_ATTACKS)


def _rounded_attack(attack: Copying) -> Copying:
    exact = attack.membership
    plain = msgspec.to_builtins(replace(attack, membership=replace(exact, curve=[])))
    coarse = msgspec.convert(rounded(plain), Copying)
    places = max(1, -floor(log10(exact.error))) if exact.error else _DIGITS
    chance = None if exact.chance is None else round(exact.chance, places)
    by_error: Separation = replace(
        coarse.membership, auc=round(exact.auc, places), chance=chance, error=rounded(exact.error)
    )
    return replace(coarse, membership=by_error)
