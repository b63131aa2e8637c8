"""The figures that a policy gets of an audit that contradicts a run."""

from types import SimpleNamespace

import pytest

from mdgan.records.audit import Audit, Bound
from mdgan.records.release_figures import default_verdicts, spent
from mdgan.records.run_state import RunState
from tests.claims.registry import claim


def bound(**more: object) -> Bound:
    entries = {"kind": "gradients", "canaries": 400, "guesses": 100, "right": 70, "delta": 1e-5}
    return Bound(**entries, confidence=0.95, stated=3.0, **more)  # type: ignore[arg-type] # as given


@pytest.mark.parametrize(
    ("result", "is_met"),
    [
        (bound(epsilon=1.4), True),
        (bound(epsilon=3.4), False),
        (bound(epsilon=3.1, surely=2.7), True),  # by chance in one run of twenty
        (bound(epsilon=3.4, surely=3.1), False),
        (bound(epsilon=0.0, surely=0.0, flaws=["a sample adds 3 C"]), False),
    ],
)
@claim("default-dp", "canaries must not contradict them")
def test_a_run_that_its_audit_contradicts_meets_no_policy(result: Bound, is_met: bool) -> None:
    audit = Audit(iteration=9, seed=0, num_generated=10, extractor="", bound=result)
    recorded = SimpleNamespace(
        under_way=False,
        audit=audit,
        state=SimpleNamespace(epsilon={1: 3.0}, workers={}),
        config={"dp_delta": 1e-5},
        of=lambda _kind: [],
        named=lambda _name: [],
    )
    verdicts = default_verdicts(recorded)  # type: ignore[arg-type] # a stand-in
    (verdict,) = [each for each in verdicts if "epsilon_lower_bound" in each.why]
    assert verdict.met is is_met
    assert result.contradicts is not is_met


@pytest.mark.parametrize("event", ["lost", "shut out", "left"])
@pytest.mark.parametrize("budget", [8.0, None])
def test_who_did_not_end_in_order_may_have_spent_all_of_its_budget(
    event: str, budget: float | None
) -> None:
    """Its process was killed, and the server has an older report of what it spent."""
    state = RunState()
    state.take({"event": "holdings", "iteration": 0, "workers": {"1": {}, "2": {}}})
    state.take({"event": "epsilon", "iteration": 9, "epsilon": {"1": 2.5, "2": 2.5}})
    state.take({"event": event, "iteration": 9, "workers": [2], "reason": "killed"})
    recorded = SimpleNamespace(state=state, config={"dp_epsilon": budget})
    epsilon = spent(recorded, [])  # type: ignore[arg-type] # a stand-in
    most = {1: 2.5} if budget is None else {1: 2.5, 2: budget}
    assert epsilon == ({1: 2.5, 2: 2.5} if event == "left" else most)
