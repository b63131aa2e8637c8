"""Workers that oppose the others, on feedback that the tests make up."""

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mdgan.engine.stages.opposition import Opposition
from mdgan.engine.stages.suspect_settings import GUILTY, SuspectSettings
from mdgan.engine.stages.suspects import Suspects
from mdgan.gan.exact_sum import PartialSum

SHAPE = (8, 1, 4, 4)
LIAR = 4
HOST_OF = {n: n for n in range(1, 11)}

Lie = Callable[[Tensor, int], Tensor]
"""From an honest answer and the iteration to what the liar answers."""
LIES: dict[str, Lie] = {
    "reversed": lambda truth, _i: -truth,
    "scaled": lambda truth, _i: -4 * truth,
    "half of the time": lambda truth, i: -truth if i % 2 else truth,
    "two of three times": lambda truth, i: -truth if i % 3 else truth,
    "pulled, and drawn back by the others": lambda truth, _i: 4 * (truth.roll(1) - truth),
}


class Game:
    """Workers that agree on a direction, which turns, and are off it by as much again."""

    def __init__(self, num_workers: int = 10, agreement: float = 1.0) -> None:
        self.random = torch.Generator().manual_seed(7)
        self.workers = range(1, num_workers + 1)
        self.agreement = agreement
        self.direction = self.draw(16)

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.random)

    def feedbacks(self, i: int, lie: Lie | None) -> dict[int, Tensor]:
        self.direction = 0.95 * self.direction + 0.3 * self.draw(16)
        wanted = self.agreement * self.direction
        results = {n: (wanted + self.draw(16) + 2 * self.draw(8, 16)) for n in self.workers}
        results = {n: each.view(SHAPE) for n, each in results.items()}
        return results if lie is None else results | {LIAR: lie(results[LIAR], i)}


def swap_if_due(opposition: Opposition, i: int, interval: int = 15) -> None:
    """All workers swap every so many iterations."""
    if i % interval == interval - 1:
        opposition.note_takers(HOST_OF)


def played(
    lie: Lie | None,
    *,
    num_workers: int = 10,
    agreement: float = 1.0,
    iterations: int = 300,
    swap_interval: int = 15,
) -> Opposition:
    game, opposition = Game(num_workers, agreement), Opposition()
    for i in range(iterations):
        opposition.look(game.feedbacks(i, lie), (), HOST_OF)
        swap_if_due(opposition, i, swap_interval)
    return opposition


@pytest.mark.parametrize(("num_workers", "swap_interval"), [(5, 15), (10, 15), (10, 2), (10, 1)])
@pytest.mark.parametrize("lie", LIES)
def test_who_opposes_the_others_is_found_and_no_other_one(
    lie: str, num_workers: int, swap_interval: int
) -> None:
    result = played(LIES[lie], num_workers=num_workers, swap_interval=swap_interval)
    assert result.guilty == result.left_out == {LIAR}
    assert max(score for n, score in result.scores.items() if n != LIAR) < GUILTY / 2


@pytest.mark.parametrize("agreement", [1.0, 0.3, 0.0])
@pytest.mark.parametrize("num_workers", [2, 3, 10])
def test_no_honest_worker_is_accused_however_little_they_agree(
    num_workers: int, agreement: float
) -> None:
    assert not played(None, num_workers=num_workers, agreement=agreement).guilty


def test_who_stops_is_forgiven() -> None:
    game, opposition = Game(), Opposition()
    counts = []
    for i in range(230):
        opposition.look(game.feedbacks(i, LIES["reversed"] if i < 80 else None), (), HOST_OF)
        swap_if_due(opposition, i)
        counts.append(bool(opposition.guilty))
    assert counts[79]
    assert not counts[-1]


def test_who_begins_again_is_not_forgiven_a_second_time() -> None:
    game, opposition = Game(), Opposition()
    counts = []
    for i in range(600):
        lies = i < 80 or 250 <= i < 370
        opposition.look(game.feedbacks(i, LIES["reversed"] if lies else None), (), HOST_OF)
        swap_if_due(opposition, i)
        counts.append(LIAR in opposition.guilty)
    assert counts[79]
    assert not counts[249]
    assert all(counts[369:])


def test_who_opposes_the_others_only_while_it_counts_is_left_out_for_good() -> None:
    """As one that draws to a picture: the others draw back only while its answers count."""
    game, opposition = Game(), Opposition()
    counts = []
    for i in range(900):
        draws_back = LIAR not in opposition.left_out
        lie: Lie = (lambda truth, _i: -truth) if draws_back else (lambda truth, _i: 0.5 * truth)
        opposition.look(game.feedbacks(i, lie), (), HOST_OF)
        swap_if_due(opposition, i)
        counts.append(LIAR not in opposition.left_out)
    assert sum(counts) < 300
    assert not any(counts[500:])
    assert opposition.guilty == {LIAR}


def test_one_discriminator_has_no_worker_named() -> None:
    """An honest worker whose own discriminator opposes the others until another one gets it."""
    game, opposition = Game(), Opposition()
    for i in range(300):
        if i == 100:
            opposition.note_takers(HOST_OF)
        opposition.look(game.feedbacks(i, LIES["reversed"] if i < 100 else None), (), HOST_OF)
        assert not opposition.guilty
        assert i not in range(40, 160) or LIAR in opposition.left_out
    assert not opposition.left_out


@pytest.mark.parametrize("agreement", [1.0, 0.0])
def test_who_is_always_far_too_long_is_found_whatever_it_asks_for(agreement: float) -> None:
    result = played(lambda truth, _i: 4 * truth, agreement=agreement, iterations=80)
    assert result.guilty == {LIAR}


class Owned:
    """Suspects, and a server whose hosts have certificates."""

    def __init__(self) -> None:
        self.suspects = Suspects(SuspectSettings(), SHAPE[0], of_sums=False)
        self.notes: list[str] = []

    def resume(self) -> None:
        """Another server goes on with what this one has saved."""
        state, self.suspects = self.suspects.state(), Owned().suspects
        self.suspects.load_state(state)

    def play(self, game: Game, *, liars_owner: str, lie: Lie | None, num: int = 80) -> bool:
        """Whether the liar's rank is guilty after some iterations."""
        owner_of = {n: liars_owner if n == LIAR else f"certificate {n}" for n in HOST_OF}
        peers = SimpleNamespace(host_of=lambda: HOST_OF, identity=owner_of.__getitem__)
        engine: Any = SimpleNamespace(peers=peers, note=self.notes.append)
        for i in range(num):
            self.suspects.opposing(game.feedbacks(i, lie), (), engine)
            swap_if_due(self.suspects.opposition, i)
        return LIAR in self.suspects.opposition.guilty


@pytest.mark.parametrize("resumes", [False, True])
def test_a_rank_that_another_host_has_taken_begins_anew(resumes: bool) -> None:
    game, owned = Game(), Owned()
    assert owned.play(game, liars_owner="old", lie=LIES["reversed"])
    if resumes:
        owned.resume()
    assert owned.play(game, liars_owner="old", lie=LIES["reversed"], num=1)
    if resumes:
        owned.resume()
    assert not owned.play(game, liars_owner="new", lie=None, num=1)
    assert not owned.suspects.opposition.scores[LIAR]


def test_another_host_that_takes_the_rank_of_an_attacker_is_named_if_it_attacks_too() -> None:
    game, owned = Game(), Owned()
    for owner in ("old", "new"):
        assert owned.play(game, liars_owner=owner, lie=LIES["reversed"])
    assert len(owned.notes) == 2
    assert all(note.startswith(f"rank {LIAR} looks like an attacker") for note in owned.notes)


def test_hosts_without_certificates_may_have_other_numbers_when_a_run_goes_on() -> None:
    """Nothing of them is kept: how ranks are spread over hosts changes no bits."""
    game, owned = Game(), Owned()
    assert owned.play(game, liars_owner=f"host {LIAR}", lie=LIES["reversed"])
    assert "owners" in owned.suspects.state()
    assert LIAR not in owned.suspects.state()["owners"][:, 0]
    owned.resume()
    assert owned.play(game, liars_owner="host 1", lie=LIES["reversed"], num=1)


def test_attackers_that_are_gone_shield_no_other_one() -> None:
    """Of eight workers three attack and go; one of the five that are left is found, too."""
    game, opposition, gone = Game(8), Opposition(), set[int]()
    for attacker in (6, 7, 8, LIAR):
        for i in range(100):
            feedbacks = game.feedbacks(i, None)
            feedbacks = {
                n: -F if n == attacker else F for n, F in feedbacks.items() if n not in gone
            }
            opposition.look(feedbacks, (), {n: n for n in feedbacks})
        assert attacker in opposition.left_out
        gone.add(attacker)


def test_who_was_found_by_sums_may_go_on_without_them() -> None:
    """The user may leave `--secure-aggregation` out on --resume; then evidence begins anew."""
    game, sums, on = Game(), Opposition(of_sums=True), Opposition()
    sums.look(game.feedbacks(0, None), (), HOST_OF)
    sums.guilty = {LIAR}
    state = sums.state()
    on.load_state({**state, ".evidence": torch.zeros(0)})
    for i in range(20):
        on.look(game.feedbacks(i, None), (), HOST_OF)
    assert not on.guilty


def test_a_discriminator_that_was_given_is_no_proof() -> None:
    game, opposition = Game(), Opposition()
    for i in range(150):
        if i == 20:
            opposition.note_takers([LIAR])
        lie = LIES["reversed"] if 20 <= i < 80 else None
        opposition.look(game.feedbacks(i, lie), (), HOST_OF)
        assert not opposition.guilty


@pytest.mark.parametrize("lie", ["reversed", "scaled"])
def test_of_sums_it_is_found_once_hosts_are_divided_anew(lie: str) -> None:
    game, opposition, random = Game(9), Opposition(of_sums=True), Random(3)
    order, ever_divided = [*game.workers], False
    for i in range(120):
        if opposition.divides:
            ever_divided = True
            random.shuffle(order)
        feedbacks = game.feedbacks(i, LIES[lie])
        groups = [order[first::3] for first in range(3)]
        sums = [
            PartialSum(tuple(own), torch.stack([feedbacks[n] for n in own]).double().sum(0))
            for own in groups
            if LIAR not in opposition.guilty or LIAR not in own
        ]
        opposition.look({}, sums, HOST_OF)
    assert ever_divided
    assert opposition.guilty == {LIAR}


def test_half_of_the_workers_leave_nobody_out() -> None:
    game, opposition = Game(6), Opposition()
    for i in range(100):
        feedbacks = game.feedbacks(i, None)
        feedbacks |= {n: -feedbacks[n] for n in (1, 2, 3)}
        opposition.look(feedbacks, (), HOST_OF)
        assert len(opposition.guilty) < 3


@pytest.mark.parametrize("num_workers", [3, 4, 5, 6, 7])
@pytest.mark.parametrize(
    "lie",
    [lambda truth: -truth, lambda truth: -2.9 * truth, lambda truth: -2.8 * truth.sign()],
    ids=["reversed", "scaled", "signs"],
)
def test_who_knows_what_another_one_answers_has_nobody_named_in_its_place(
    num_workers: int, lie: Callable[[Tensor], Tensor]
) -> None:
    """Where each asks for something else for long, as workers with other classes do."""
    for seed in range(6):
        random = torch.Generator().manual_seed(seed)
        opposition, asked = Opposition(), torch.randn(num_workers, 32, generator=random)
        for _ in range(250):
            asked = 0.98 * asked + 0.2 * torch.randn(num_workers, 32, generator=random)
            values = {n: asked[n - 1].expand(2, 32) for n in range(1, num_workers + 1)}
            values[2] = lie(values[1])
            opposition.look(values, (), HOST_OF)
            assert opposition.left_out <= {2}


@pytest.mark.parametrize("stops_at", [0, 10, 120])
def test_a_server_that_goes_on_has_forgotten_nothing(stops_at: int) -> None:
    """Otherwise whether an answer counts, and so the generator, would depend on when it stopped."""
    game, opposition, on = Game(), Opposition(), Opposition()
    for i in range(130):
        if i == stops_at:
            on.load_state(opposition.state())
        feedbacks = game.feedbacks(i, LIES["reversed"])
        for each in [opposition, on] if i >= stops_at else [opposition]:
            each.look(feedbacks, (), HOST_OF)
            swap_if_due(each, i)
        assert i < stops_at or (on.left_out, on.scores) == (opposition.left_out, opposition.scores)
    assert on.guilty == {LIAR}
