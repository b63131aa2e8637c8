"""Within a round, hosts of slots die, join, are late, or send sums that cannot be used."""

from collections.abc import Callable

import pytest

from mdgan.engine.server.engine import AllWorkersLost
from mdgan.families.federated.messages import ROUND
from tests.unit.families.federated.placing import PlacingStage, clients_in, mean_over
from tests.unit.families.federated.rounds import E
from tests.unit.gan.small import same_bits

MakePlaced = Callable[..., PlacingStage]
ALL = (1, 2, 3, 4, 5, 6)


def test_the_clients_of_a_host_that_dies_are_placed_on_the_others(placing: MakePlaced) -> None:
    made = placing(num_workers=3, iterations=2 * E)
    one, two, three = made.begin_slots(3)
    assert three.take_round(E)[1] == [5, 6]
    three.die()
    assert one.answer_round(E) + two.answer_round(E) == [1, 2, 3, 4]
    assert one.answer_round(E) + two.answer_round(E) == [5, 6]
    made.finished(one, two)
    assert made.has_become(mean_over(2 * E, ALL))
    assert [event["took_part"] for event in made.events("round")] == [list(ALL)] * 2
    clients = [n for slot in made.placed()[0]["slots"] for n in slot["clients"]]
    assert sorted(clients) == list(ALL)


def test_what_a_host_told_before_it_died_counts_once(placing: MakePlaced) -> None:
    made = placing(num_workers=2, iterations=E)
    one, two = made.begin_slots(2)
    order, _ = two.take_round(E)
    two.answer_with(order)
    two.die()
    made.wait_for_event("lost")
    one.answer_round(E)
    made.finished(one)
    assert made.has_become(mean_over(E, ALL))


def test_an_account_without_its_sum_counts_nothing(placing: MakePlaced) -> None:
    made = placing(num_workers=2, iterations=E)
    one, two = made.begin_slots(2)
    order, clients = two.take_round(E)
    two.send(two.account_of(order))
    two.die()
    made.round_is_done_by(one, clients)
    assert made.has_become(mean_over(E, ALL))


def test_all_hosts_die_and_the_round_begins_again(placing: MakePlaced) -> None:
    made = placing(num_workers=2, iterations=2 * E, participation=0.5)
    hosts = made.begin_slots(2)
    chosen = [host.take_round(E)[1] for host in hosts]
    for host in hosts:
        host.die()
    made.wait_for_event("lost", 2)
    again = made.play(1).arrive()
    assert again.answer_round(E) == sorted(chosen[0] + chosen[1])
    made.finished(again)
    assert [event["number"] for event in made.events("round")] == [0, 1]
    undisturbed = placing(num_workers=1, iterations=2 * E, participation=0.5)
    undisturbed.finished(*undisturbed.begin_slots(1))
    assert same_bits(made.vector(), undisturbed.vector())


def test_a_host_that_comes_back_at_once_is_asked_anew(placing: MakePlaced) -> None:
    made = placing(num_workers=2, iterations=E)
    one, two = made.begin_slots(2)
    two.take(ROUND, E)
    two.die()
    made.wait_for_event("lost")
    again = made.play(2, key=two.hello["key"])
    again.kinds = ("other",)
    again.arrive()
    made.wait_for_event("joined")
    one.answer_round(E)
    assert one.answer_round(E) == [4, 5, 6], "a host that has failed waits for the next round"
    made.finished(one, again)
    assert made.has_become(mean_over(E, ALL))


# ----- late


def test_a_late_host_is_left_behind_and_used_again(placing: MakePlaced) -> None:
    made = placing(num_workers=2, iterations=3 * E, deadline=(1.0, 0.0))
    one, slow = made.begin_slots(2)
    late, clients = slow.take_round(E)
    assert clients == [4, 5, 6]
    one.answer_round(E)
    assert one.take_round(2 * E)[1] == list(ALL), "the slow host is busy"
    slow.answer_with(late)
    made.wait_for_event("back")
    one.answer_with(one.seen[-1])
    assert one.answer_round(3 * E) + slow.answer_round(3 * E) == list(ALL)
    made.finished(one, slow)
    first, second, third = made.events("round")
    assert (first["took_part"], first["aborted"]) == ([1, 2, 3], False)
    assert second["took_part"] == third["took_part"] == list(ALL)
    assert made.has_become(mean_over(3 * E, ALL))


# ----- sums that cannot be used


def test_the_clients_of_a_sum_that_is_refused_are_placed_on_the_others(placing: MakePlaced) -> None:
    made = placing(num_workers=4, iterations=2 * E, strikes=2, clients=8)
    *good, bad = made.begin_slots(4)
    everyone = list(range(1, 9))
    for i, scale in ((E, float("nan")), (2 * E, 1e7)):
        bad.answer_round(i, scale=scale)
        clients = [n for host in good for n in host.answer_round(i)]
        assert clients == [1, 2, 3, 4, 5, 6]
        for host in good[:2]:
            assert len(host.answer_round(i)) == 1
    made.finished(*good)
    assert [event["strikes"] for event in made.events("refused")] == [1, 2]
    assert made.events("shut out")[0]["workers"] == [4]
    assert [event["took_part"] for event in made.events("round")] == [everyone] * 2
    assert made.has_become(mean_over(2 * E, everyone))


def test_clients_whose_models_are_never_finite_are_left_out(placing: MakePlaced) -> None:
    made = placing(num_workers=1, iterations=3 * E, strikes=2)
    (host,) = made.begin_slots(1)
    for i in (E, 2 * E):
        assert host.answer_round(i, unusable=[2, 5]) == list(ALL)
    assert host.answer_round(3 * E) == [1, 3, 4, 6]
    made.finished(host)
    assert made.has_become(mean_over(3 * E, [1, 3, 4, 6]))


def test_training_ends_if_no_models_are_finite(placing: MakePlaced) -> None:
    made = placing(num_workers=1, iterations=E, strikes=2)
    (host,) = made.begin_slots(1)
    for _ in range(2):
        host.answer_round(E, unusable=ALL)
    error = made.over()
    assert isinstance(error, AllWorkersLost)
    assert "smaller learning rates" in str(error)


@pytest.mark.parametrize(("clients", "named"), [(1000, True), (1001, False)])
def test_losses_of_each_client_are_recorded_unless_there_are_too_many(
    placing: MakePlaced, clients: int, named: bool
) -> None:
    made = placing(num_workers=1, iterations=E, clients=clients, participation=0.003)
    made.finished(*made.begin_slots(1))
    (row,) = made.metrics()
    assert (row["workers"], len(row.get("by_worker", ()))) == (3, 3 if named else 0)


# ----- one client at a time


def test_pull_places_the_client_of_a_host_that_dies_again(placing: MakePlaced) -> None:
    made = placing(num_workers=3, iterations=2 * E, placement="pull")
    one, two, three = made.begin_slots(3)
    assert three.take_round(E)[1] == [3]
    three.die()
    assert one.answer_round(E) + two.answer_round(E) == [1, 2]
    made.finished(one, two)
    arguments = [clients_in(m) for host in (one, two) for m in host.seen if m.kind == ROUND]
    assert sorted(n for clients in arguments for n in clients) == sorted(2 * ALL)
    assert made.has_become(mean_over(2 * E, ALL))


def test_pull_asks_a_host_anew_that_came_back_while_others_were_awaited(
    placing: MakePlaced,
) -> None:
    made = placing(num_workers=2, iterations=E, placement="pull")
    one, two = made.begin_slots(2)
    one.take(ROUND, E)
    two.take(ROUND, E)
    two.die()
    made.wait_for_event("lost")
    again = made.play(2, key=two.hello["key"]).arrive()
    made.wait_for_event("joined")
    one.answer_with(one.seen[-1])
    made.finished(one, again)
    assert made.has_become(mean_over(E, ALL))


# ----- stop and resume


def test_a_run_that_goes_on_ends_as_one_that_never_stopped(placing: MakePlaced) -> None:
    how = {"num_workers": 2, "participation": 0.5, "checkpoints": E}
    whole = placing(iterations=3 * E, **how)
    whole.finished(*whole.begin_slots(2))
    first = placing(iterations=E, **how)
    first.finished(*first.begin_slots(2))
    second = placing(folder=first.folder, iterations=3 * E, goes_on=True, **how)
    hosts = [second.play(rank) for rank in (1, 2)]
    second.actor.start()
    second.finished(*(host.arrive() for host in hosts))
    assert same_bits(second.vector(), whole.vector())
    both = first.events("round") + second.events("round")[len(first.events("round")) :]
    assert [event["asked"] for event in both][-3:] == [
        event["asked"] for event in whole.events("round")
    ]
