"""Which answers the server refuses as unusable, and which hosts it shuts out."""

import math
from itertools import combinations
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mdgan.engine.answers import AnswerForm
from mdgan.engine.server.hosts import Strikes
from mdgan.engine.stages.screen import Screening
from mdgan.gan.randomness import generator_for
from tests.unit.gan.small import BATCH_SIZE, SHAPE

STRIKES = 3


def make_screening(strikes: int = STRIKES) -> Screening:
    form = AnswerForm("FEEDBACK", (BATCH_SIZE, *SHAPE), beside={"outputs": (BATCH_SIZE,)})
    return Screening(form, Strikes(strikes))


def feedback(norm: float, seed: int = 0) -> Tensor:
    drawn = torch.randn(BATCH_SIZE, *SHAPE, generator=generator_for(seed, "feedback"))
    return drawn * (norm / float(drawn.norm()))


def informed(norms: tuple[float, ...] = (1.0, 1.0, 1.0)) -> Screening:
    """One that has accepted an answer from as many workers as there are norms."""
    screening = make_screening()
    for worker, norm in enumerate(norms, start=1):
        assert screening.refuse(worker, feedback(norm)) is None
    assert screening.look_back() == {}
    return screening


def test_those_that_came_later_do_not_say_what_is_usual() -> None:
    form = AnswerForm("FEEDBACK", (BATCH_SIZE, *SHAPE))
    screening = Screening(form, Strikes(STRIKES), voters=range(1, 4))
    for worker in range(10, 20):
        assert screening.refuse(worker, feedback(1e-12)) is None
    for worker in (1, 2, 3):
        assert screening.refuse(worker, feedback(1.0)) is None
    assert screening.look_back() == {}
    assert screening.refuse(1, feedback(2.0)) is None
    assert screening.refuse(15, feedback(1e4)) is not None, "they are judged like all others"


def test_who_is_excused_gets_no_strike_and_no_vote_until_it_answers_well() -> None:
    screening = informed()
    conduct = screening.conduct
    assert screening.refuse(3, broken(math.nan)) is not None
    conduct.excuse([1, 2, 3])
    for _ in range(2 * STRIKES):
        for worker in (1, 2):
            assert screening.refuse(worker, feedback(1e9)) is not None
    assert set(conduct.unusable) == {1, 2, 3}
    assert [conduct.strikes_of(worker) for worker in (1, 2, 3)] == [0, 0, 1]
    assert screening.refuse(3, feedback(1e9)) is not None, "most claim it, but have no vote"
    assert conduct.strikes_of(3) == 2, "one with a strike is not excused"
    for worker in (1, 2):
        assert screening.refuse(worker, feedback(1.0)) is None
        assert screening.refuse(worker, broken(math.nan)) is not None
        assert conduct.strikes_of(worker) == 1


def broken(value: float) -> Tensor:
    answer = feedback(1.0)
    answer[-1, 0, 2, 1] = value
    return answer


WHOLE = (BATCH_SIZE, *SHAPE)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (broken(math.nan), "NaN or Inf"),
        (broken(math.inf), "NaN or Inf"),
        (broken(3e38), "a norm beyond float32"),
        (feedback(1.0)[1:], "shape [4, 1, 4, 4], not [5, 1, 4, 4]"),
        (feedback(1.0).squeeze(1), "shape [5, 4, 4], not [5, 1, 4, 4]"),
        (torch.zeros(0), "shape [0], not [5, 1, 4, 4]"),
        (feedback(1.0).double(), "torch.float64, not torch.float32"),
        (torch.zeros(WHOLE, dtype=torch.int64), "torch.int64, not torch.float32"),
        (feedback(1.1e3), "norm 1.1e+03, 1.1e+03 times the usual"),
        (feedback(-1.2e9), "norm 1.2e+09, 1.2e+09 times the usual"),
    ],
)
def test_unusable_feedback_is_refused_with_a_reason(answer: Tensor, reason: str) -> None:
    screening = informed()
    assert screening.refuse(1, answer) == reason
    assert screening.conduct.strikes_of(1) == 1
    assert screening.refuse(2, feedback(1.0)) is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_the_first_answer_of_all_is_judged_where_no_other_is_needed(bad: float) -> None:
    screening = make_screening()
    assert screening.refuse(1, broken(bad)) is not None
    assert screening.refuse(1, feedback(1.0)) is None


def test_a_worker_is_out_after_its_strikes_and_alone() -> None:
    screening = informed()
    for strike in range(1, STRIKES + 1):
        assert not screening.conduct.is_out(2)
        assert screening.refuse(2, broken(math.nan)) is not None
        assert screening.conduct.strikes_of(2) == strike
        assert screening.refuse(2, feedback(1.0)) is None, "a good answer is taken in between"
    assert screening.conduct.is_out(2)
    assert [screening.conduct.strikes_of(worker) for worker in (1, 3, 99)] == [0, 0, 0]
    assert not any(screening.conduct.is_out(worker) for worker in (1, 3, 99))


@pytest.mark.parametrize("others", [0, 1])
def test_two_cannot_tell_whose_norm_is_the_usual_one(others: int) -> None:
    screening = informed((1.0,) * others)
    for _ in range(3):
        assert screening.refuse(9, feedback(1e9)) is None
        assert screening.look_back() == {}


ABSURD = 1e9
PETTY = 1e-9


@pytest.mark.parametrize("lie", [ABSURD, PETTY, 0.0])
@pytest.mark.parametrize("liars", list(combinations(range(5), 2)))
def test_who_answers_first_does_not_decide_what_is_usual(
    liars: tuple[int, ...], lie: float
) -> None:
    """Two of five lie from the first iteration on; only their answers are refused, if any."""
    screening = make_screening()
    refused: dict[int, int] = {}
    for _ in range(2):
        for worker in range(5):
            answer = feedback(lie if worker in liars else 1.0)
            if screening.refuse(worker, answer) is not None:
                refused[worker] = refused.get(worker, 0) + 1
        for worker, reason in screening.look_back().items():
            assert reason == "norm 1e+09, 1e+09 times the usual"
            refused[worker] = refused.get(worker, 0) + 1
    assert refused == (dict.fromkeys(liars, 2) if lie == ABSURD else {})
    assert all(
        screening.conduct.strikes_of(worker) == refused.get(worker, 0) for worker in range(5)
    )


def test_without_looking_back_the_second_iteration_is_judged() -> None:
    screening = make_screening()
    norms = [ABSURD, 1.0, 1.0, 1.0]
    assert [screening.refuse(worker, feedback(norm)) for worker, norm in enumerate(norms)] == [
        None
    ] * 4
    refused = [screening.refuse(worker, feedback(norm)) for worker, norm in enumerate(norms)]
    assert [reason is not None for reason in refused] == [True, False, False, False]


@given(
    st.integers(0, 4),
    st.lists(st.floats(1.0, 30.0), min_size=1, max_size=30),
    st.lists(st.one_of(st.floats(0, 1e15), st.sampled_from([0.0, PETTY, ABSURD])), min_size=1),
    st.randoms(use_true_random=False),
)
def test_a_minority_cannot_have_honest_workers_refused(
    num_liars: int, honest: list[float], lies: list[float], random: Random
) -> None:
    screening = make_screening()
    workers = list(range(2 * num_liars + 3))
    for iteration in range(4):
        random.shuffle(workers)
        for worker in workers:
            norms = lies if worker < num_liars else honest
            norm = norms[(worker + 7 * iteration) % len(norms)]
            reason = screening.refuse(worker, feedback(norm))
            assert reason is None or worker < num_liars
            assert reason is not None or norm < 1e6 or iteration == 0
        assert all(worker < num_liars for worker in screening.look_back())


def test_one_machine_that_comes_back_under_ever_new_numbers_stays_one() -> None:
    screening = informed()
    for worker in range(10, 60):
        for _ in range(STRIKES):
            assert screening.refuse(worker, feedback(ABSURD)) is not None
        assert screening.conduct.is_out(worker)
    assert screening.refuse(1, feedback(1.0)) is None


def test_gradients_may_vanish_and_come_back() -> None:
    screening = informed()
    for norm in (1e-6, 0.0, 1e-9):
        for worker in (1, 2, 3):
            assert screening.refuse(worker, feedback(norm)) is None
    assert all(screening.refuse(worker, feedback(1.0)) is None for worker in (1, 2, 3, 4))


def test_gradients_may_grow_slowly() -> None:
    screening = informed()
    for step in range(1, 8):
        for worker in (1, 2, 3):
            assert screening.refuse(worker, feedback(100.0**step)) is None
    assert screening.refuse(1, feedback(1e20)) is not None


def test_no_worker_is_measured_against_zeros() -> None:
    screening = informed((0.0, 0.0, 0.0))
    assert screening.refuse(4, feedback(1.0)) is None


OUTPUTS = torch.linspace(-9, 9, BATCH_SIZE)


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        (torch.empty(0), "outputs of shape [0], not [5]"),
        (OUTPUTS[1:], "outputs of shape [4], not [5]"),
        (OUTPUTS.double(), "outputs of torch.float64, not torch.float32"),
        (OUTPUTS / 0, "NaN or Inf among its outputs"),
        (OUTPUTS.where(OUTPUTS < 9, math.nan), "NaN or Inf among its outputs"),
    ],
)
def test_outputs_that_say_nothing_are_a_strike(outputs: Tensor, reason: str) -> None:
    screening = informed()
    assert screening.refuse(1, feedback(1.0), {"outputs": outputs}) == reason
    assert screening.conduct.strikes_of(1) == 1
    assert screening.refuse(1, feedback(1.0), {"outputs": OUTPUTS}) is None
    assert screening.refuse(1, feedback(1.0)) is None, "where the form does not ask for them"
