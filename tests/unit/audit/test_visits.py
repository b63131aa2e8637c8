from mdgan.audit.visits import visits
from mdgan.records.rows import Swap


def swap(iteration: int, moves: dict[int, int], *lost: int) -> Swap:
    taken = {taker: "d" for taker in moves.values() if taker not in lost}
    return Swap(iteration=iteration, pairs=tuple(moves.items()), taken=taken)


def test_a_discriminator_takes_along_with_whom_it_was() -> None:
    swaps = [swap(10, {1: 2, 2: 1}), swap(30, {1: 3, 3: 1})]
    found = visits(swaps, [1, 2, 3], 45)
    assert found[3].iterations == {2: 10, 1: 20, 3: 15}
    assert found[1].iterations == {3: 30, 1: 15}
    assert found[2].iterations == {1: 10, 2: 35}
    assert [found[n].last for n in (1, 2, 3)] == [1, 2, 3]


def test_one_that_has_just_arrived_was_trained_by_its_giver() -> None:
    found = visits([swap(10, {1: 2, 2: 1})], [1, 2], 10)
    assert (found[1].last, found[2].last) == (2, 1)
    assert found[1].iterations == {2: 10}


def test_one_that_did_not_arrive_leaves_the_other_in_place_and_later_swaps_do_not_count() -> None:
    found = visits([swap(10, {1: 2, 2: 1}, 1), swap(99, {1: 2, 2: 1})], [1, 2], 20)
    assert found[1].iterations == {1: 20}
    assert found[2].iterations == {1: 10, 2: 10}
