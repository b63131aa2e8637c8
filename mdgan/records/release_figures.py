"""The figures of a run that a policy decides by, from its records and its audit."""

from collections.abc import Iterable, Sequence

from mdgan.credentials.permit import permit_of
from mdgan.privacy.attestation import Attestation
from mdgan.records.audit import Audit, Separation
from mdgan.records.recorded_run import RecordedRun
from mdgan.records.release_policy import RuleVerdict, decide, default_text, rules_in
from mdgan.records.rows import ScoresRow, typed

FLOOR = "floor"
"""What real data get where generated samples get `fid`."""


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


def figures_of(recorded: RecordedRun, answers: Sequence[Attestation]) -> dict[str, float]:
    """All figures that are known, by name."""
    found: dict[str, float] = {}
    scored = [row for row in recorded.of(ScoresRow) if row.scores]
    if scored:
        last = scored[-1]
        found |= {name: score for name, score in last.scores.items() if score is not None}
        if isinstance(floor := last.real.get("fid"), float):
            found[FLOOR] = floor
    if epsilon := spent(recorded, answers):
        found["epsilon"] = max(epsilon.values())
        found["delta"] = float(recorded.config.get("dp_delta") or 0.0)
    if recorded.audit is not None:
        found |= _of_audit(recorded.audit)
    signed = {permit_of(each.chain.encode()).fingerprint for each in answers if each.signature}
    found["signed_by"] = float(len(signed))
    found["refused_to_sign"] = float(sum(1 for answer in answers if answer.refusal))
    return found


def default_verdicts(recorded: RecordedRun) -> list[RuleVerdict]:
    """What the default policy says of a run, if enough is known; empty while it goes on."""
    figures = figures_of(recorded, attestations(recorded))
    if recorded.under_way or (recorded.audit is None and "epsilon" not in figures):
        return []
    rules = rules_in(default_text(), "", "", has_dp="epsilon" in figures)
    return decide(rules, figures)


def _of_audit(audit: Audit) -> dict[str, float]:
    """What attacks on the generator found, each the worst of all spaces; others stay at home."""
    found: dict[str, float] = {}
    if audit.bound is not None:
        found["epsilon_lower_bound"] = audit.bound.at_least
    if not audit.generator:
        return found
    attacks = [copying.membership for copying in audit.generator]
    found["audit_auc"] = max(attack.auc for attack in attacks)
    shares = [share for attack in attacks if (share := _found_at(attack, 0.01)) is not None]
    if shares:
        found["audit_tpr_at_1e-2"] = max(shares)
    found["closest_record_ratio"] = min(copying.ratio for copying in audit.generator)
    copied = [copying.copied for copying in audit.generator if copying.copied is not None]
    if copied:
        found["copied_share"] = max(copied)
    return found


def _found_at(attack: Separation, alarms: float) -> float | None:
    return next((each.share for each in attack.found if each.alarms == alarms), None)
