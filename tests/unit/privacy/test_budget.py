"""A ledger never reports too little spending of samples, and budgets stop in time."""

import os
import tempfile
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.privacy.accountant import PrivacyCharge, best_order
from mdgan.privacy.budget import Budget, open_budget
from mdgan.privacy.ledger_view import Plan
from mdgan.privacy.spending import Spending
from tests.claims.registry import claim
from tests.marks import examples
from tests.unit.privacy.test_ledger import of, spend

pytestmark = pytest.mark.filterwarnings("ignore")

DELTA, PLANNED = 1e-4, 20
PLANNED_ONCE = {"dp_epsilon": 4.0}
"""Of six samples: the noise that this takes is looked for once by all tests of a process."""


def opened(folder: Path, samples: Collection[int], **values: Any) -> Budget:
    pytest.importorskip("opacus", reason="pip install 'mdgan[privacy]'")
    usual = {"dp_delta": DELTA, "batch_size": 2, "iterations": PLANNED}
    budget = open_budget(
        3, len(samples), MDGANSettings(**{**usual, **values}), folder, lambda: of(samples)
    )
    assert budget is not None
    return budget


def take(budget: Budget, steps: int) -> None:
    for _ in range(steps):
        budget.key("noise")
        budget.advance()


def test_a_budget_that_is_spent_gives_no_noise_for_another_step(tmp_path: Path) -> None:
    budget = opened(tmp_path, range(6), **PLANNED_ONCE)
    take(budget, PLANNED)
    assert budget.over
    assert budget.iterations_left == 0
    with pytest.raises(RuntimeError, match="spent its budget"):
        budget.key("noise")
    budget.close()


@cache
def of_a_step(noise: float, rate: float, orders: tuple[float, ...]) -> Any:
    from opacus.accountants.analysis.rdp import compute_rdp

    return compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=list(orders))


def by_opacus(charges: Sequence[tuple[float, float, int]], order: float | None) -> float:
    """ε of a plain list of steps; at one order, or at that which is the best in hindsight."""
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis.gdp import eps_from_mu
    from opacus.accountants.analysis.rdp import get_privacy_spent

    if not charges:
        return 0.0
    orders = tuple(RDPAccountant.DEFAULT_ALPHAS) if order is None else (order,)
    total = sum(of_a_step(noise, rate, orders) * steps for noise, rate, steps in charges)
    least = max(0.0, float(get_privacy_spent(orders=orders, rdp=total, delta=DELTA)[0]))
    if order is None and {rate for _, rate, _ in charges} == {1.0}:  # then it is known exactly
        mean = sqrt(sum(steps / noise**2 for noise, _, steps in charges))
        least = min(least, float(eps_from_mu(mu=mean, delta=DELTA)))
    return least


RUNS = st.lists(
    st.tuples(
        st.sets(st.integers(0, 5), min_size=2),
        st.sampled_from((1.0, 2.5)),
        st.integers(0, PLANNED),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=examples(4), deadline=None)
@given(RUNS)
@claim("goes-on-counting", "A worker is charged by its unit that has spent the most.")
def test_a_shard_has_spent_at_least_what_each_of_its_samples_has(
    runs: list[tuple[set[int], float, int, bool]],
) -> None:
    """Each sample's steps are also kept in a plain list, and Opacus says what these cost."""
    lists: dict[int, list[tuple[float, float, int]]] = defaultdict(list)
    orders: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as name:
        for samples, noise, steps, in_order in runs:
            rate = min(1.0, 2 / len(samples))
            budget = opened(Path(name), samples, dp_noise=noise)
            take(budget, steps)
            told = budget.spent().epsilon
            for sample in samples:
                if steps and not lists[sample]:
                    orders[sample] = best_order(PrivacyCharge(noise, rate, PLANNED), DELTA)
                lists[sample] += [(noise, rate, steps)] * bool(steps)
                history = lists[sample]
                several = len({charge[:2] for charge in history}) > 1
                assert told >= by_opacus(history, None) * (1 - 1e-9)
                if several:  # plans that were made one after the other
                    assert told >= by_opacus(history, orders[sample]) * (1 - 1e-9)
            if in_order:
                budget.close()
            else:
                os.close(budget._ledger._lock)


def test_a_later_plan_keeps_to_the_bound_at_the_order_of_the_first(tmp_path: Path) -> None:
    first = opened(tmp_path, range(6), **PLANNED_ONCE)
    order = best_order(PrivacyCharge(first.noise, 1 / 3, PLANNED), DELTA)
    take(first, 5)
    first.close()
    second = opened(tmp_path, range(3, 9), dp_epsilon=4.0)
    assert second.noise > first.noise
    both = [(first.noise, 1 / 3, 5), (second.noise, 1 / 3, PLANNED)]
    assert second.limit == pytest.approx(by_opacus(both, order), rel=1e-9)
    assert 3.98 < second.limit <= 4.0
    assert by_opacus(both, None) <= second.limit
    second.close()


def test_prv_is_for_samples_without_a_past(tmp_path: Path) -> None:
    opened(tmp_path, range(6), dp_noise=2.0, dp_accountant="prv").close()
    budget = opened(tmp_path, range(7), dp_noise=3.0, dp_accountant="prv")
    take(budget, 1)
    budget.close()
    line = r"--set dp_accountant=prv: the samples of rank 3 took part in earlier runs .*give --set"
    with pytest.raises(BadInput, match=line) as refused:
        opened(tmp_path, range(6), dp_noise=2.0, dp_accountant="prv")
    assert str(refused.value).endswith("--set dp_accountant=rdp")
    opened(tmp_path, range(6), dp_noise=2.0).close()


@claim(
    "not-both", "Runs that hide samples and runs that hide clients on the same samples are refused"
)
def test_noise_for_clients_and_noise_for_samples_do_not_add_up(tmp_path: Path) -> None:
    plan = Plan("rounds", "client", "rdp", 1.5, 0.1, 100, 100, 4.0)
    spend(tmp_path, range(4), 1, plan)
    with pytest.raises(BadInput, match=r"rank 3 took part in runs with --dp-unit client .*give --"):
        opened(tmp_path, range(3, 9), dp_noise=2.0)
    opened(tmp_path, range(4, 9), dp_noise=2.0).close()


@pytest.mark.parametrize(
    ("values", "ends_early"), [(PLANNED_ONCE, False), ({"dp_noise": 1.0}, True)]
)
@claim("signs-what-it-knows", "A host that knows something else does not sign, and says why.")
def test_a_worker_knows_by_its_own_account_whether_it_leaves_before_the_end(
    tmp_path: Path, values: dict[str, float], ends_early: bool
) -> None:
    few = {"dp_epsilon": 20.0, "dp_noise": 1.0, "iterations": 100_000}
    budget = opened(tmp_path, range(6), **(few if ends_early else values))
    spending = Spending({3: budget})
    assert not spending.leaves_early([3])
    take(budget, budget.iterations_left)
    assert budget.over
    assert spending.leaves_early([3]) == ends_early
    assert not spending.leaves_early([3, 4])
    budget.close()
