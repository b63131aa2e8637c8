"""Remedies for a bottleneck, and the workers that are asked."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mdgan.engine.settings import RunSettings
from mdgan.families.contract import Planning
from mdgan.plan.advice import Question, best_remedy
from mdgan.plan.layout import Link
from mdgan.plan.prediction import Traffic
from tests.unit.plan.small import Each, layout

AHEAD: dict[str, object] = {"stale": 1}
SMALL: dict[str, object] = {"wire": "int8"}
REMEDIES = {"link": [SMALL, AHEAD], "server": [AHEAD]}


def question(megabits: float, *, cores: int = 2, shared: bool = False) -> Question:
    where = layout(4, cores=cores, shared=shared)
    what = Each(ahead=0.01, answer=0.02, server=0.03, busy=0.03).on(where)
    planning = Planning(RunSettings(), remedies=REMEDIES)
    traffic = Traffic((8000.0,) * 4, (4000.0,) * 4)
    return Question(where, Link(1e6 * megabits), what, traffic, planning)


def with_settings(asked: Question, changes: Mapping[str, Any]) -> Question:
    if changes == AHEAD:
        return replace(asked, planning=replace(asked.planning, overlaps=True))
    return replace(asked, traffic=Traffic((2000.0,) * 4, (1000.0,) * 4))


def test_advice_for_a_slow_link_is_fewer_bytes() -> None:
    asked = question(1)
    forecast = asked.answer()
    assert forecast.bottleneck == "link"
    remedy = best_remedy(asked, forecast, lambda changes: with_settings(asked, changes))
    assert remedy is not None
    assert remedy[0] == "--wire int8"
    assert remedy[1].step < 0.5 * forecast.step


def test_advice_for_a_slow_server_is_not_to_wait_for_it() -> None:
    asked = question(1000)
    forecast = asked.answer()
    assert forecast.bottleneck == "server"
    remedy = best_remedy(asked, forecast, lambda changes: with_settings(asked, changes))
    assert remedy is not None
    assert remedy[0] == "--stale 1"


def test_no_advice_where_nothing_helps() -> None:
    asked = question(1000)
    assert best_remedy(asked, asked.answer(), lambda _: asked) is None


def test_advice_for_few_cores_is_more_of_them() -> None:
    asked = question(1000, shared=True)
    forecast = asked.answer()
    assert forecast.bottleneck == "cores"
    remedy = best_remedy(asked, forecast, lambda _: asked)
    assert remedy is not None
    assert remedy[0] == "twice the cores"


def test_workers_that_are_asked_are_spread_over_the_hosts() -> None:
    where = layout(12, carried=4)
    assert where.asked(1.0) == where
    assert where.asked(0.5).sizes == [2, 2, 2]
    assert where.asked(1 / 12).sizes == [1]
    assert layout(40).asked(0.1).sizes == [1] * 4
