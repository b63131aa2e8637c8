"""From the stages of a few workers to the costs of many, against sums made by hand."""

import pytest

from mdgan.plan.phases import HostStages
from mdgan.plan.prediction import Costs
from mdgan.plan.stages import Stages

SERVER = {"send": 0.25, "wait": 0.25, "step": 2.0}
WORKER = HostStages({"receive": 0.5, "learn": 3.0, "send": 0.5}, {"learn": 2.0}, {})
OTHER = HostStages({"receive": 0.25, "judge": 1.0, "send": 0.25}, {}, {})


def test_a_host_has_a_message_for_all_its_workers() -> None:
    found = Stages(SERVER, {"send": 1.0, "step": 4.0}, [WORKER], 0.125, questions=2)
    costs = found.costs([(1,), (3,)])
    assert costs == Costs((3.0 + 2.0, 9.0 + 2.0), (2.0, 6.0), 0.125, 2 * 0.5 + 2.0, 2 * 1.0 + 4.0)


def test_by_arrival_every_worker_has_a_message_and_a_step_of_its_own() -> None:
    costs = Stages(SERVER, SERVER, [WORKER], 0.0, by_arrival=True).costs([(1,), (3,)])
    assert costs == Costs((4.0, 12.0), (2.0, 6.0), 0.0, 4 * 2.5, 4 * 2.5)


def test_workers_of_two_groups() -> None:
    """The third host carries one of the first and two of the second, with one message for all."""
    costs = Stages(SERVER, SERVER, [WORKER, OTHER], 0.0).costs([(2, 0), (0, 2), (1, 2)])
    assert costs.answers == pytest.approx((6.0 + 1.0, 2.0 + 0.5, 3.0 + 2.0 + 1.0))
    assert costs.ahead == pytest.approx((4.0, 0.0, 2.0))
