"""The formulas, against cases worked out by hand."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mdgan.plan.layout import Link
from mdgan.plan.prediction import Costs, Traffic, friction, predict
from tests.unit.plan.small import Each, foretold, layout

seconds = st.floats(1e-4, 10.0)


def test_all_processes_on_two_cores_takes_all_work_over_two() -> None:
    what = Each(ahead=1.0, answer=3.0, server=2.0, busy=4.0)
    forecast = foretold(layout(4), what)
    assert forecast.step == pytest.approx((4 * 4 + 4) / 2)
    assert forecast.bottleneck == "cores"


def test_server_that_cannot_use_all_cores_leaves_some_idle() -> None:
    """Nothing is left to be done beside it: 4 workers take 2 rounds of 1 s, then the server 3 s."""
    forecast = foretold(layout(4), Each(answer=1.0, server=3.0, busy=3.0))
    assert forecast.step == pytest.approx(2.0 + 3.0)


def test_one_worker_of_many_cores_waits_for_the_server() -> None:
    what = Each(ahead=0.5, answer=1.0, server=2.0, busy=2.0)
    forecast = foretold(layout(1, cores=8, shared=False), what)
    assert forecast.step == pytest.approx(3.0)
    assert forecast.bottleneck == "server"


def test_work_ahead_that_outlasts_the_server_counts() -> None:
    what = Each(ahead=5.0, answer=1.0, server=2.0)
    forecast = foretold(layout(3, shared=False), what)
    assert forecast.step == pytest.approx(6.0)
    assert forecast.bottleneck == "workers"


def test_workers_of_a_host_take_turns() -> None:
    what = Each(ahead=0.1, answer=1.5, server=2.0)
    assert foretold(layout(6, carried=3, shared=False), what).step == pytest.approx(6.5)


def test_questions_leave_one_after_the_other() -> None:
    """Three hosts get a megabit each by 1, 2 and 3 s; the last computes 1 s and sends 0.5 s."""
    what = Each(answer=1.0, server=0.25)
    forecast = foretold(
        layout(3, shared=False), what, out=125_000, back=62_500, megabits=1, latency=0.1
    )
    assert forecast.step == pytest.approx(0.25 + 3.0 + 1.0 + 0.5 + 0.2)
    assert (forecast.out, forecast.back) == pytest.approx((3.0, 1.5))
    assert forecast.latency == pytest.approx(0.2)
    assert forecast.bottleneck == "link"


def test_answers_wait_for_each_other_on_the_link() -> None:
    what = Each(answer=1.0, server=0.25)
    forecast = foretold(layout(3, shared=False), what, back=125_000, megabits=1)
    assert forecast.step == pytest.approx(0.25 + 1.0 + 3.0)


def test_every_further_question_waits_for_the_link_once_more() -> None:
    what = Each(answer=0.01, server=0.01)
    once = foretold(layout(2, shared=False), what, latency=0.1)
    thrice = foretold(layout(2, shared=False), what, latency=0.1, questions=3)
    assert thrice.step == pytest.approx(once.step + 4 * 0.1)
    assert thrice.latency == pytest.approx(3 * once.latency)


def test_latency_alone() -> None:
    forecast = foretold(layout(2, shared=False), Each(answer=0.01, server=0.01), latency=1.0)
    assert forecast.step == pytest.approx(2.02)
    assert forecast.bottleneck == "latency"


def test_steps_overlap() -> None:
    what = Each(answer=2.0, server=2.0)
    plain, ahead = (
        foretold(layout(2, shared=False), what, overlaps=overlaps) for overlaps in (False, True)
    )
    assert plain.step == pytest.approx(4.0)
    assert ahead.step == pytest.approx(2.0)


def test_by_arrival_a_worker_waits_for_its_own_answer_alone() -> None:
    """The server takes 0.2 s for each of two answers, less than work ahead, or more."""
    where = layout(2, shared=False)
    for ahead, step in ((0.25, 1.25), (0.125, 1.2)):
        what = Each(answer=1.0, ahead=ahead, server=0.4)
        assert foretold(where, what, by_arrival=True).step == pytest.approx(step)


def test_by_arrival_a_host_with_fewer_workers_answers_more_often() -> None:
    """Both hosts give an answer a second, so four take 2 s; the barrier waits 3 s for the first."""
    where, what = layout(4, carried=3, shared=False), Each(answer=1.0)
    assert foretold(where, what).step == pytest.approx(3.0)
    assert foretold(where, what, by_arrival=True).step == pytest.approx(2.0)


def test_by_arrival_the_server_answers_one_after_the_other() -> None:
    forecast = foretold(
        layout(3, shared=False), Each(answer=0.1, server=3.0), latency=0.5, by_arrival=True
    )
    assert forecast.step == pytest.approx(3.0)
    assert forecast.bottleneck == "server"


def test_by_arrival_the_link_carries_one_message_after_the_other() -> None:
    """Four hosts get a megabit each; what comes back and 1 s of work beside it are hidden."""
    forecast = foretold(
        layout(4, shared=False),
        Each(answer=1.0, server=0.4),
        out=125_000,
        back=62_500,
        megabits=1,
        by_arrival=True,
    )
    assert forecast.step == pytest.approx(4.0)
    assert forecast.bottleneck == "link"


def test_by_arrival_cores_are_shared() -> None:
    what = Each(answer=2.0, ahead=1.0, server=1.0, busy=2.0)
    forecast = foretold(layout(4), what, by_arrival=True)
    assert forecast.step == pytest.approx((4 * 3 + 2) / 2)
    assert forecast.bottleneck == "cores"


def test_groups_work_beside_each_other() -> None:
    """Two hosts of 1 s and 3 s: each alone on its machine, or after each other on one core."""
    what = Costs((1.0, 3.0), (0.0, 0.0), 0.0, 0.5, 0.5)
    apart, shared = (
        predict(where, Link(), what, Traffic((0.0,) * 2, (0.0,) * 2)).step
        for where in (layout(2, shared=False), layout(2, cores=1))
    )
    assert apart == pytest.approx(3.0 + 0.5)
    assert shared == pytest.approx(1.0 + 3.0 + 0.5)


def test_exchanges_are_spread_over_the_steps_between_them() -> None:
    """0.5 s on the machine of each, and 1 Mbit at 1 Mbit/s; the work ahead has waited for it."""
    what = Each(ahead=0.25, answer=1.0, server=1.0)
    forecast = foretold(layout(2, shared=False), what, thing=125_000, megabits=1, exchange_every=5)
    assert forecast.exchange == pytest.approx(0.5 + 1.0 + 0.25)
    assert forecast.step == pytest.approx(2.0 + 1.75 / 5)
    assert foretold(layout(1, shared=False), what, thing=125_000, megabits=1).exchange == 0


@given(seconds, seconds, seconds, seconds, st.integers(1, 9), st.integers(1, 4), st.floats(0.1, 9))
def test_friction_explains_what_was_measured(
    ahead: float,
    answer: float,
    server: float,
    busy: float,
    num_workers: int,
    cores: int,
    measured: float,
) -> None:
    where = layout(num_workers, cores=cores)
    what = {"ahead": ahead, "answer": answer, "server": server, "busy": busy}
    factor = friction(where, Each(**what).on(where), measured)
    again = foretold(where, Each(**what, friction=factor))
    assert again.step == pytest.approx(measured)


@given(
    seconds,
    seconds,
    seconds,
    seconds,
    st.integers(1, 12),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from(["", "overlaps", "by_arrival"]),
    st.floats(0.01, 1000),
    st.floats(1, 100),
)
def test_more_bandwidth_or_less_latency_is_never_slower(
    ahead: float,
    answer: float,
    server: float,
    busy: float,
    num_workers: int,
    cores: int,
    shared: bool,
    kind: str,
    megabits: float,
    factor: float,
) -> None:
    where = layout(num_workers, cores=cores, shared=shared)
    what = Each(ahead=ahead, answer=answer, server=server, busy=busy)

    def taken(rate: float, latency: float) -> float:
        forecast = foretold(
            where,
            what,
            out=50_000,
            back=20_000,
            megabits=rate,
            latency=latency,
            overlaps=kind == "overlaps",
            by_arrival=kind == "by_arrival",
        )
        return forecast.step

    assert taken(megabits * factor, 0.1) <= taken(megabits, 0.1) * (1 + 1e-9)
    assert taken(megabits, 0.1) <= taken(megabits, 0.1 * factor) * (1 + 1e-9)


@given(seconds, seconds, seconds, seconds, st.integers(1, 30), st.integers(1, 4), st.booleans())
def test_more_workers_on_shared_cores_are_never_faster(
    ahead: float,
    answer: float,
    server: float,
    busy: float,
    num_workers: int,
    cores: int,
    overlaps: bool,
) -> None:
    assume(busy >= server)  # a server does not only wait
    what = Each(ahead=ahead, answer=answer, server=server, busy=busy)
    fewer, more = (
        foretold(layout(count, cores=cores), what, overlaps=overlaps).step
        for count in (num_workers, num_workers + 1)
    )
    # Where a host is the first to find a core free at once, the formulas fall by up to 2.5 %.
    assert fewer <= more * 1.05
