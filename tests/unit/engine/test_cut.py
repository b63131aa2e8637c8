"""Answers that are far longer than usual are shortened, and all others stay as they are."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from mdgan.engine.answers import AnswerForm, Answers
from mdgan.engine.server.hosts import Strikes
from mdgan.engine.stages.screen import Screening
from mdgan.engine.stages.suspect_settings import MOST_USUAL
from mdgan.gan.exact_sum import FEEDBACK, PartialSum
from tests.unit.engine.test_screening import WHOLE, feedback

NORMS = st.lists(st.floats(0.5, 1.9), min_size=3, max_size=9)


def cut(norms: list[float], order: list[int], summed: int = 0) -> tuple[Answers, list[int]]:
    """Answers of so many norms, that come in an order; the last ones of which a host added up."""
    form = AnswerForm("FEEDBACK", WHOLE, most_usual=MOST_USUAL)
    screening, answers = Screening(form, Strikes(3)), Answers()
    sent = {n: feedback(norm, seed=n) for n, norm in enumerate(norms)}
    own = tuple(sorted(sent))[len(sent) - summed :]
    for n in order:
        answers.losses[n] = torch.zeros(2)
        if n not in own:
            assert screening.refuse(n, sent[n]) is None
            answers.singles[n] = sent[n]
    if own:
        total = FEEDBACK.add_up({n: sent[n] for n in own}, {})
        answers.sums = [PartialSum(own, total)]
        assert not screening.refuse_together(own, (total / len(own)).float())
    screening.look_back()
    return answers, screening.cut(answers, order)


# The mean of a few answers that point elsewhere is shorter than they are.
@given(
    st.lists(st.floats(1.0, 1.9), min_size=3, max_size=9),
    st.randoms(use_true_random=False),
    st.integers(0, 3),
)
def test_usual_answers_keep_their_bits(norms: list[float], random: object, summed: int) -> None:
    order = [*range(len(norms))]
    random.shuffle(order)  # type: ignore[attr-defined] # a `random.Random`
    answers, shortened = cut(norms, order, summed)
    assert not shortened
    for n, answer in answers.singles.items():
        assert torch.equal(answer, feedback(norms[n], seed=n))
    for part in answers.sums:
        sent = {n: feedback(norms[n], seed=n) for n in part.workers}
        assert torch.equal(part.total, FEEDBACK.add_up(sent, {}))


@given(NORMS, st.permutations(range(9)), st.floats(20, 900))
def test_one_far_longer_is_as_long_as_it_may_be_whatever_comes_first(
    norms: list[float], order: list[int], factor: float
) -> None:
    lies = [norms[0] * factor, *norms[1:]]
    first, shortened = cut(lies, [*range(len(lies))])
    other, _ = cut(lies, [n for n in order if n < len(lies)])
    assert shortened == [0]
    limit = MOST_USUAL * sorted(lies)[len(lies) // 2]
    assert float(first.singles[0].norm()) <= limit * 1.001
    for n, answer in first.singles.items():
        assert torch.equal(answer, other.singles[n])


def test_a_sum_is_shortened_as_its_workers_would_be() -> None:
    answers, shortened = cut([1, 1, 1, 1, 300, 300, 300], [*range(7)], summed=3)
    assert shortened == [4, 5, 6]
    assert float(answers.sums[0].total.norm()) / 3 <= MOST_USUAL * 1.001


def test_of_two_answers_none_is_usual() -> None:
    answers, shortened = cut([1.0, 500.0], [0, 1])
    assert not shortened
    assert float(answers.singles[1].norm()) > 499
