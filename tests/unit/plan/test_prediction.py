"""The formulas, against cases worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdgan.plan.prediction import friction
from tests.unit.plan.small import costs, foretold, layout

seconds = st.floats(1e-4, 10.0)


def test_everybody_on_two_cores_takes_all_work_over_two() -> None:
    what = costs(real_half=1.0, learn=2.0, feedback=1.0, server=2.0, busy=4.0)
    forecast = foretold(layout(4), what)
    assert forecast.iteration == pytest.approx((4 * 4 + 4) / 2)
    assert forecast.bottleneck == "cores"


def test_server_that_cannot_use_all_cores_leaves_some_idle() -> None:
    """Nothing is left to be done beside it: 4 workers take 2 rounds of 1 s, then the server 3 s."""
    forecast = foretold(layout(4), costs(learn=1.0, server=3.0, busy=3.0))
    assert forecast.iteration == pytest.approx(2.0 + 3.0)


def test_one_worker_of_many_cores_waits_for_the_server() -> None:
    what = costs(real_half=0.5, learn=1.0, server=2.0, busy=2.0)
    forecast = foretold(layout(1, cores=8, shared=False), what)
    assert forecast.iteration == pytest.approx(3.0)
    assert forecast.bottleneck == "server"


def test_real_halves_that_outlast_the_server_count() -> None:
    what = costs(real_half=5.0, learn=1.0, server=2.0)
    forecast = foretold(layout(3, shared=False), what)
    assert forecast.iteration == pytest.approx(6.0)
    assert forecast.bottleneck == "workers"


def test_workers_of_a_host_take_turns() -> None:
    what = costs(real_half=0.1, learn=1.0, feedback=0.5, server=2.0)
    assert foretold(layout(6, carried=3, shared=False), what).iteration == pytest.approx(6.5)


def test_batches_leave_one_after_the_other() -> None:
    """Three hosts get a megabit each by 1, 2 and 3 s; the last computes 1 s and sends 0.5 s."""
    what = costs(learn=1.0, server=0.25)
    forecast = foretold(
        layout(3, shared=False), what, out=125_000, back=62_500, megabits=1, latency=0.1
    )
    assert forecast.iteration == pytest.approx(0.25 + 3.0 + 1.0 + 0.5 + 0.2)
    assert (forecast.out, forecast.back) == pytest.approx((3.0, 1.5))
    assert forecast.latency == pytest.approx(0.2)
    assert forecast.bottleneck == "link"


def test_answers_wait_for_each_other_on_the_link() -> None:
    what = costs(learn=1.0, server=0.25)
    forecast = foretold(layout(3, shared=False), what, back=125_000, megabits=1)
    assert forecast.iteration == pytest.approx(0.25 + 1.0 + 3.0)


def test_latency_alone() -> None:
    forecast = foretold(layout(2, shared=False), costs(learn=0.01, server=0.01), latency=1.0)
    assert forecast.iteration == pytest.approx(2.02)
    assert forecast.bottleneck == "latency"


def test_stale_iterations_overlap() -> None:
    what = costs(learn=1.0, feedback=1.0, server=2.0)
    plain, stale = (foretold(layout(2, shared=False), what, stale=stale) for stale in (0, 1))
    assert plain.iteration == pytest.approx(4.0)
    assert stale.iteration == pytest.approx(2.0)


def test_swaps_are_spread_over_the_iterations_between_them() -> None:
    """0.5 s on the machine of each, and 1 Mbit at 1 Mbit/s; the real half has waited for it."""
    what = costs(real_half=0.25, learn=1.0, server=1.0)
    forecast = foretold(layout(2, shared=False), what, swap=125_000, megabits=1, swap_every=5)
    assert forecast.swap == pytest.approx(0.5 + 1.0 + 0.25)
    assert forecast.iteration == pytest.approx(2.0 + 1.75 / 5)
    assert foretold(layout(1, shared=False), what, swap=125_000, megabits=1).swap == 0


@given(seconds, seconds, seconds, seconds, st.integers(1, 9), st.integers(1, 4), st.floats(0.1, 9))
def test_friction_explains_what_was_measured(
    real_half: float,
    learn: float,
    server: float,
    busy: float,
    num_workers: int,
    cores: int,
    measured: float,
) -> None:
    where = layout(num_workers, cores=cores)
    what = {"real_half": real_half, "learn": learn, "server": server, "busy": busy}
    factor = friction(where, costs(**what), measured)
    again = foretold(where, costs(**what, friction=factor))
    assert again.iteration == pytest.approx(measured)


@given(
    seconds,
    seconds,
    seconds,
    seconds,
    st.integers(1, 12),
    st.integers(1, 4),
    st.booleans(),
    st.integers(0, 1),
    st.floats(0.01, 1000),
    st.floats(1, 100),
)
def test_more_bandwidth_or_less_latency_is_never_slower(
    real_half: float,
    learn: float,
    server: float,
    busy: float,
    num_workers: int,
    cores: int,
    shared: bool,
    stale: int,
    megabits: float,
    factor: float,
) -> None:
    where = layout(num_workers, cores=cores, shared=shared)
    what = costs(real_half=real_half, learn=learn, server=server, busy=busy)

    def taken(rate: float, latency: float) -> float:
        forecast = foretold(
            where, what, out=50_000, back=20_000, megabits=rate, latency=latency, stale=stale
        )
        return forecast.iteration

    assert taken(megabits * factor, 0.1) <= taken(megabits, 0.1) * (1 + 1e-9)
    assert taken(megabits, 0.1) <= taken(megabits, 0.1 * factor) * (1 + 1e-9)


@given(seconds, seconds, seconds, seconds, st.integers(1, 30), st.integers(1, 4), st.integers(0, 1))
def test_more_workers_on_shared_cores_are_never_faster(
    real_half: float,
    learn: float,
    server: float,
    busy: float,
    num_workers: int,
    cores: int,
    stale: int,
) -> None:
    what = costs(real_half=real_half, learn=learn, server=server, busy=busy)
    fewer, more = (
        foretold(layout(count, cores=cores), what, stale=stale).iteration
        for count in (num_workers, num_workers + 1)
    )
    assert fewer <= more * (1 + 1e-9)
