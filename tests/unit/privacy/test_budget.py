"""A worker's budget ends before its last step, whoever asks for another."""

import pytest

from mdgan.privacy.budget import Budget
from mdgan.privacy.ledger import Plan
from mdgan.privacy.real_half import SeededSteps
from mdgan.privacy.settings import PrivacySettings


def test_a_budget_that_is_spent_gives_no_noise_for_another_step() -> None:
    plan = Plan("as asked", "sample", "rdp", 1.0, 0.1, 2, 2, 4.0)
    given = PrivacySettings(dp_noise=1.0, dp_delta=1e-4)
    budget = Budget(SeededSteps(b"seed"), given, plan)
    for _ in range(2):
        assert budget.key("noise")
        budget.advance()
    assert budget.over
    with pytest.raises(RuntimeError, match="spent its budget"):
        budget.key("noise")
