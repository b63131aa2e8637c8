"""Scores for free riding, on feedback that the tests make up."""

from collections.abc import Callable, Mapping, Sequence
from math import log, sqrt
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mdgan.engine.answers import Answers
from mdgan.engine.stages.free_riders import Evidence, FreeRiders
from mdgan.engine.stages.handovers import Handovers
from mdgan.engine.stages.suspect_settings import GUILTY, SuspectSettings
from mdgan.engine.stages.suspects import Suspects
from mdgan.families.mdgan.swaps import Moves, draw_swap
from tests.claims.registry import claim

SHAPE = (8, 1, 4, 4)
WORKERS = (1, 2, 3, 4, 5)
KAPPA = 2
EVERY = 10
JUDGED = {n: place % KAPPA for place, n in enumerate(WORKERS)}

Answer = Callable[[int, Tensor, int], Tensor]
"""From a worker, its batch and the iteration to its feedback."""


def moves_after(i: int) -> Moves:
    """The taker of each giver in the swap after iteration i."""
    return draw_swap("pairs", 1, i // EVERY - 1, WORKERS)


class Game:
    """Workers whose feedback is a function of the batch that changes as they learn."""

    def __init__(self, liars: Mapping[int, Answer] | None = None) -> None:
        self.random = torch.Generator().manual_seed(5)
        self.liars = liars or {}
        self.held = {n: self.draw(16) for n in WORKERS}
        self.matrix = self.draw(16, 16)
        self.played: list[tuple[Tensor, dict[int, Tensor], bool]] = []

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.random)

    def play(self, num_iterations: int) -> list[tuple[Tensor, dict[int, Tensor], bool]]:
        """Batches, feedback, and whether a swap follows, of each iteration."""
        for i in range(1, num_iterations + 1):
            generated = self.draw(KAPPA, *SHAPE)
            feedbacks = {n: self.feedback(n, generated[JUDGED[n]], i) for n in WORKERS}
            swaps = i % EVERY == 0
            self.played.append((generated, feedbacks, swaps))
            if swaps:
                self.held |= {t: self.held[giver] for giver, t in moves_after(i).items()}
        return self.played

    def feedback(self, worker: int, judged: Tensor, i: int) -> Tensor:
        if worker not in self.liars:
            self.held[worker] = self.held[worker] + 0.5 * self.draw(16)
        answer = (judged.flatten(1) @ self.matrix).tanh() + self.held[worker]
        answer = answer + self.draw(8, 16)
        lie = self.liars.get(worker)
        return answer.view(SHAPE) if lie is None else lie(i, answer, worker).view(SHAPE)


def scored(played: Sequence[tuple[Tensor, dict[int, Tensor], bool]]) -> FreeRiders:
    scores = FreeRiders(SHAPE[0], Handovers())
    for i, (generated, feedbacks, swaps) in enumerate(played, start=1):
        scores.look(generated, JUDGED, feedbacks, swap_follows=swaps)
        if swaps:
            scores.swapped(moves_after(i))
    return scores


def noise(_i: int, answer: Tensor, worker: int) -> Tensor:
    return torch.randn(answer.shape, generator=torch.Generator().manual_seed(97 * _i + worker))


REPLAYED = torch.randn(8, 16, generator=torch.Generator().manual_seed(3))
LIES: Mapping[str, Answer] = {
    "constant": lambda _i, answer, _worker: torch.full_like(answer, -1.0),
    "zero": lambda _i, answer, _worker: torch.zeros_like(answer),
    "replayed": lambda _i, _answer, _worker: REPLAYED,
    "noise": noise,
    "frozen": lambda _i, answer, _worker: answer,  # the game does not let it learn
    "formula": lambda _i, answer, _worker: answer - answer.mean(dim=0),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_free_rider_is_found_and_no_honest_worker(lie: str) -> None:
    of_run = scored(Game({3: LIES[lie]}).play(250))
    assert of_run.guilty() == {3}
    assert of_run.scores[3] >= GUILTY
    assert max(score for worker, score in of_run.scores.items() if worker != 3) < GUILTY / 2


def test_honest_workers_are_not_accused() -> None:
    of_run = scored(Game().play(300))
    assert not of_run.guilty()
    assert max(of_run.scores.values()) < GUILTY / 2


def swap_digests(handovers: Handovers, copycats: set[int], *, swaps: int) -> None:
    """Each swap moves discriminators round a ring; copycats leave them as they are."""
    held = {n: f"{n}." for n in range(1, 7)}
    for number in range(swaps):
        held = {n: d if n in copycats else f"{d}{number}-{n}." for n, d in held.items()}
        distance = 1 + number % 5
        moves = {n: 1 + (n - 1 + distance) % 6 for n in held}
        taken_digests = {taker: held[giver] for giver, taker in moves.items()}
        handovers.note_swap(moves, held, taken_digests, {n: n for n in held})
        held = taken_digests


@pytest.mark.parametrize(("swaps", "guilty"), [(4, False), (6, True)])
def test_who_gives_discriminators_away_is_found_once_enough_hosts_say_so(
    swaps: int, guilty: bool
) -> None:
    handovers = Handovers()
    swap_digests(handovers, {3}, swaps=swaps)
    assert guilty or [handovers.num_witnesses(n) for n in WORKERS] == [0, 0, 3, 0, 0]
    scores = FreeRiders(SHAPE[0], handovers)
    for generated, feedbacks, follows in Game().play(2):
        scores.look(generated, JUDGED, feedbacks, swap_follows=follows)
    assert scores.guilty() == ({3} if guilty else set())
    assert not guilty or scores.why(3) == "it gives away discriminators as they came"


def test_where_no_discriminator_changes_none_is_blamed() -> None:
    handovers = Handovers()
    swap_digests(handovers, {1, 2, 3, 4, 5, 6}, swaps=6)
    assert not any(map(handovers.num_witnesses, WORKERS))


def refusals(handovers: Handovers, spoiler: int, *, found_by: int) -> None:
    """Takers refuse what a worker has spoilt: the first that gets it, or only a later one."""
    workers = range(1, 9)
    spoilt_for = dict.fromkeys(workers, 0)
    for number in range(30):
        moves = draw_swap("pairs", 3, number, workers)
        after = {
            t: 1 if g == spoiler else spoilt_for[g] and spoilt_for[g] + 1 for g, t in moves.items()
        }
        refused = {taker for taker, swaps in after.items() if swaps == found_by}
        spoilt_for = {n: 0 if n in refused else after[n] for n in workers}
        values = {giver: f"{giver} in {number}" for giver in moves}
        taken_digests = {
            taker: values[giver] for giver, taker in moves.items() if taker not in refused
        }
        handovers.note_swap(moves, values, taken_digests, {n: n for n in workers}, refused)


@pytest.mark.parametrize("found_by", [1, 2])
@claim(
    "spoiler",
    "A worker that has held nearly all that was refused is named once four hosts have refused it, "
    "and nobody else is",
)
def test_who_spoils_discriminators_is_found_and_none_that_handed_them_on(found_by: int) -> None:
    handovers = Handovers()
    refusals(handovers, 5, found_by=found_by)
    assert handovers.spoilers.keys() == {5}
    on = Handovers()
    on.load_state(handovers.state())
    assert on.spoilers == handovers.spoilers, "also after the server has gone on"
    scores = FreeRiders(SHAPE[0], handovers)
    scores.look(torch.zeros(1), {}, {}, swap_follows=False)  # as with secure sums
    assert scores.guilty() == {5}
    assert scores.why(5) == "others refuse the discriminators that it has had"


def test_who_refuses_whatever_it_is_given_has_nobody_blamed() -> None:
    handovers = Handovers()
    for number in range(30):
        moves = draw_swap("pairs", 3, number, range(1, 9))
        handovers.note_swap(moves, {}, {n: "" for n in moves if n != 5}, {n: n for n in moves}, {5})
    assert not handovers.spoilers


def test_who_spoils_what_one_other_gave_and_refuses_the_rest_of_it_frames_nobody() -> None:
    handovers, owner_of = Handovers(), {n: n for n in range(1, 9)}
    victim, liar = 1, 2
    for taker in (3, 4, 5, 6, 7):
        handovers.note_swap({victim: liar, liar: victim}, {}, {victim: "", liar: ""}, owner_of)
        swap = {liar: taker, taker: liar, 8: victim, victim: 8}
        handovers.note_swap(swap, {}, {n: "" for n in swap if n != taker}, owner_of, {taker})
        swap = {victim: liar, liar: victim, 3: 4, 4: 3, 5: 6, 6: 5}
        handovers.note_swap(swap, {}, {n: "" for n in swap if n != liar}, owner_of, {liar})
    assert victim not in handovers.spoilers


@pytest.mark.parametrize(("givers", "is_guilty"), [((5,) * 8, False), ((1, 2, 4, 5) * 2, True)])
def test_what_one_other_worker_gives_has_nobody_blamed(
    givers: Sequence[int], is_guilty: bool
) -> None:
    """Eight times worker 3 gets a discriminator of which it makes nothing."""
    evidence = Evidence(1.0, 0.1, 2.0)
    for giver in givers:
        evidence.moved({giver: 3})
        for _ in range(10):
            evidence.take({1: 1.0, 2: 1.0, 3: 0.0, 4: 1.0, 5: 1.0})
    assert (sqrt(2 * evidence.of(3)) >= GUILTY) is is_guilty


def test_why_it_is_accused_is_said() -> None:
    def wander(i: int, answer: Tensor, worker: int) -> Tensor:
        return noise(i, answer, worker) + i

    assert "does not depend on the samples" in scored(Game({3: wander}).play(150)).why(3)
    assert "does not change" in scored(Game({3: LIES["frozen"]}).play(150)).why(3)


@pytest.mark.parametrize(("honest", "then"), [(60, 160), (230, 230)])
def test_who_stops_training_later_is_found(honest: int, then: int) -> None:
    game = Game()
    game.play(honest)
    game.liars = {3: noise}
    assert scored(game.play(then)).guilty() == {3}


@pytest.mark.parametrize("later", ["honest", "constant"])
def test_what_a_rank_did_is_not_held_against_its_next_owner(later: str) -> None:
    game, notes = Game({3: LIES["constant"]}), list[str]()
    game.play(250)
    game.liars = {3: LIES["constant"]} if later == "constant" else {}
    game.play(250)
    suspects = Suspects(SuspectSettings(), SHAPE[0], of_sums=False)
    for place, (generated, feedbacks, swaps) in enumerate(game.played):
        owner = "the first" if place < 250 else "the second"
        peers = SimpleNamespace(
            host_of=lambda: dict(zip(WORKERS, WORKERS, strict=True)),
            identity=f"{owner} {{}}".format,
        )
        engine: Any = SimpleNamespace(peers=peers, note=notes.append)
        answers = Answers(dict(feedbacks), losses=dict.fromkeys(WORKERS, torch.zeros(2)))
        suspects.score(generated, JUDGED, answers, engine, swap_follows=swaps)
        if swaps:
            suspects.swapped(moves_after(1 + place % 250))
        if place in (249, 260):
            assert len(notes) == 1
    assert len(notes) == 1 + (later == "constant")
    assert all(note.startswith("rank 3 looks like a free rider") for note in notes)


def test_the_next_owner_of_a_spoilers_rank_may_give_and_is_blamed_for_nothing_before() -> None:
    handovers, on = Handovers(), Handovers()
    refusals(handovers, 5, found_by=2)
    handovers.forget({5})
    on.load_state(handovers.state())
    assert handovers.spoilers == on.spoilers == {}
    workers = range(1, 9)
    for number in range(30, 60):
        moves = draw_swap("pairs", 3, number, workers)
        values = {giver: f"{giver} in {number}" for giver in moves}
        taken_digests = {taker: values[giver] for giver, taker in moves.items()}
        handovers.note_swap(moves, values, taken_digests, {n: n for n in workers})
    assert not handovers.accused()


def test_the_size_of_answers_does_not_matter() -> None:
    played = Game({3: noise}).play(60)
    tiny = [(x, {n: f * 1e-24 for n, f in given.items()}, swaps) for x, given, swaps in played]
    expected = scored(played).scores
    assert scored(tiny).scores == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_one_broken_discriminator_that_it_was_given_is_not_enough() -> None:
    game = Game()
    played = game.play(EVERY)
    game.liars = {3: LIES["zero"]}
    broken = [(x, given, False) for x, given, _ in game.play(15 * EVERY)[EVERY:]]
    assert scored([*played[:EVERY], *broken]).guilty() == set()


def test_who_was_late_is_not_said_to_stand_still() -> None:
    """A worker that answered less often has trained less often."""
    played = Game({3: LIES["frozen"]}).play(150)
    for place, (_, feedbacks, _) in enumerate(played):
        if place % EVERY == 4:
            del feedbacks[3]
    assert scored(played).guilty() == set()


def test_a_few_workers_or_samples_have_no_scores() -> None:
    played = [(x, {n: f[n] for n in (1, 2)}, swaps) for x, f, swaps in Game().play(40)]
    assert scored(played).scores == {}
    few = FreeRiders(3, Handovers())
    for generated, feedbacks, swaps in Game().play(10):
        cut = {n: f[:3] for n, f in feedbacks.items()}
        few.look(generated[:, :3], JUDGED, cut, swap_follows=swaps)
    assert few.scores == {}


class Reference:
    """The same scores, one worker and one pair of samples at a time."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, int], float] = {}
        self.most: dict[tuple[str, int], float] = {}
        self.origin: dict[tuple[str, int], int] = {}
        self.parts: dict[tuple[str, int], dict[int, float]] = {}
        self.usual: dict[str, list[float]] = {"heed": [], "motion": []}
        self.deviations: dict[str, list[float]] = {"heed": [], "motion": []}

    def heed(self, judged: Tensor, feedback: Tensor) -> float:
        samples, answers = judged.flatten(1).double(), feedback.flatten(1).double()
        samples, answers = samples - samples.mean(0), answers - answers.mean(0)
        alike = [
            [torch.cosine_similarity(rows[i], rows[j], dim=0) for i in range(8) for j in range(i)]
            for rows in (samples, answers)
        ]
        return float(torch.corrcoef(torch.tensor(alike))[0, 1])

    def motion(self, then: Tensor, now: Tensor) -> float:
        then, now = then.flatten(1).double(), now.flatten(1).double()
        by_chance = (then.var(0).sum() + now.var(0).sum()) / 8
        return log((now.mean(0) - then.mean(0)).square().sum() / by_chance)

    def take(self, name: str, figures: Mapping[int, float]) -> None:
        share, least, most = {"heed": (1.0, 1 / 27, 2.0), "motion": (0.5, 0.09, 8.0)}[name]
        usual = median(figures.values())
        deviation = 1.4826 * median(abs(figure - usual) for figure in figures.values())
        self.usual[name].append(usual)
        self.deviations[name].append(deviation**2)
        gap = share * max(0.0, self.mean(self.usual[name]))
        variance = max(least, self.mean(self.deviations[name]))
        for worker, figure in figures.items():
            below = min(usual - figure, 2 * gap)
            # ln N(below; gap, variance) − ln N(below; 0, variance)
            ratio = (below**2 - (below - gap) ** 2) / (2 * variance)
            key = (name, worker)
            before = self.of.get(key, 0.0)
            result = min(max(0.0, before + min(ratio, most)), self.most.get(key, 1e9))
            self.of[key], parts = result, self.parts.setdefault(key, {})
            for origin in parts if result < before else ():
                parts[origin] *= result / before
            if result > before:
                origin = self.origin.get(key, worker)
                parts[origin] = parts.get(origin, 0.0) + result - before

    def swapped(self, moves: Mapping[int, int]) -> None:
        """A worker with more evidence since its last discriminator passes on that one's origin."""
        for kind in ("heed", "motion"):
            spoilt = [n for n in moves if self.of.get((kind, n), 0.0) > self.began(kind, n)]
            self.origin |= {
                (kind, taker): self.origin.get((kind, giver), giver) if giver in spoilt else giver
                for giver, taker in moves.items()
            }
            for key in [(kind, taker) for taker in moves.values()]:
                self.most[key] = self.of.get(key, 0.0) + 8.0

    def began(self, kind: str, worker: int) -> float:
        return self.most.get((kind, worker), 8.0) - 8.0

    def mean(self, values: Sequence[float]) -> float:
        """The mean of the first 25, from then on with a memory of 25."""
        mean = sum(values[:25]) / len(values[:25])
        for value in values[25:]:
            mean += (value - mean) / 25
        return mean

    def scores(self) -> dict[int, float]:
        """Evidence, less what the discriminators of a single other worker account for."""
        both = dict.fromkeys(WORKERS, 0.0)
        for (_, n), parts in self.parts.items():
            excused = max([0.0, *(part for origin, part in parts.items() if origin != n)])
            both[n] = max(both[n], sum(parts.values()) - excused)
        return {n: sqrt(2 * found) for n, found in both.items()}


def test_scores_are_those_of_a_reference() -> None:
    played = Game({3: noise, 5: LIES["frozen"]}).play(60)
    reference, then = Reference(), {n: [f] for n, f in played[0][1].items()}
    for place, (generated, feedbacks, swaps) in enumerate(played):
        judged = {n: generated[JUDGED[n]] for n in WORKERS}
        if place % 3 == 2:
            reference.take("heed", {n: reference.heed(judged[n], f) for n, f in feedbacks.items()})
        if swaps:
            motions = {
                n: min(reference.motion(old, f) for old in then[n]) for n, f in feedbacks.items()
            }
            if place:
                reference.take("motion", motions)
            then = {n: [f] for n, f in feedbacks.items()}
            moves = moves_after(place + 1)
            for giver, taker in moves.items():
                then[taker].append(feedbacks[giver])
            reference.swapped(moves)
    assert scored(played).scores == pytest.approx(reference.scores(), rel=1e-4, abs=1e-4)
