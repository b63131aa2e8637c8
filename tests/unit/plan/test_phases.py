"""Seconds by phase, from made-up charges."""

from mdgan.plan.phases import HostStages, PhaseCharge, host_stages, per_worker, stages, step_seconds

_WARM_UP = 2


def charges(*phases: tuple[str, float, float], steps: int) -> list[PhaseCharge]:
    """The same phases in so many steps, after those that do not count, and before a cut one."""
    slow = [PhaseCharge(phase, 100.0, 100.0) for phase, _, _ in phases]
    return slow * _WARM_UP + [PhaseCharge(*phase) for phase in phases] * steps + slow[:1]


def test_server_is_charged_for_messages_only_what_it_computes() -> None:
    messages = ("send", 1.0, 0.5), ("wait", 8.0, 0.25)
    done = charges(*messages, ("aggregate", 2.0, 4.0), ("step", 1.0, 1.5), steps=3)
    alone = stages([done], "send", busy=False)
    assert alone == {"send": 0.5, "wait": 0.25, "aggregate": 2.0, "step": 1.0}
    assert stages([done], "send", busy=True)["aggregate"] == 4.0
    assert step_seconds(done, "send") == 12.0


def test_phases_that_come_twice_are_added_up() -> None:
    done = charges(("send", 0.0, 0.0), ("train", 1.0, 1.0), ("train", 2.0, 2.0), steps=2)
    assert stages([done], "send", busy=False)["train"] == 3.0


def test_a_step_may_be_made_of_several_answers() -> None:
    two = [("send", 0.5, 0.5), ("wait", 8.0, 0.25), ("send", 0.5, 0.5), ("wait", 0.0, 0.25)]
    done = charges(*two, steps=4)
    assert step_seconds(done, "send", times=2) == 9.0


def test_what_a_host_does_after_its_answer_is_ahead_of_the_next_question() -> None:
    step = ("receive", 9.0, 0.5), ("learn", 2.0, 2.0), ("send", 0.5, 0.25)
    done = charges(*step, ("learn", 1.0, 1.0), steps=3)
    result = host_stages([done], busy=False)
    assert result == HostStages({"receive": 0.5, "learn": 2.0, "send": 0.25}, {"learn": 1.0})


def test_the_usual_is_that_of_all_hosts() -> None:
    hosts = [charges(("receive", 0.0, 0.0), ("learn", s, s), steps=1) for s in (1.0, 2.0, 4.0)]
    assert host_stages(hosts, busy=True).asked["learn"] == 2.0


def test_workers_share_what_is_computed_and_not_the_messages() -> None:
    shared = per_worker([PhaseCharge("learn", 3.0, 6.0), PhaseCharge("send", 1.0, 0.5)], 3)
    assert shared == [PhaseCharge("learn", 1.0, 2.0), PhaseCharge("send", 1.0, 0.5)]
