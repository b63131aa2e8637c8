"""A host that lies when it joins, or brings other hosts that lie."""

from pathlib import Path

import pytest
import torch

from mdgan import messages
from mdgan.engine.stages.contract import pack_answers
from mdgan.families.mdgan.messages import BATCHES, FEEDBACK, feedback_form
from mdgan.families.mdgan.settings import MDGANSettings
from mdgan.messages import Kind, Message
from tests.claims.registry import claim
from tests.hostile.bench import RANK, Hostile, Stranger, hostile_run

FORM = feedback_form(MDGANSettings.read({"world_size": 5, "batch_size": 4}), (1, 8, 8))


def whisper(question: Message) -> Message | None:
    """Feedback so small that honest feedback looks absurd beside it."""
    if question.kind != BATCHES:
        return None
    judged = {int(worker): place for worker, place in question.fields["judge"].items()}
    feedback = {worker: torch.full(FORM.shape, 1e-12) for worker in judged}
    losses = {worker: torch.full((2,), 0.5) for worker in judged}
    return pack_answers(question.iteration, feedback, losses, judged, FORM)


def test_invented_ranks_do_not_say_which_norm_is_usual(tmp_path: Path) -> None:
    strangers = Stranger(range(10, 16), whisper)
    ran = hostile_run(tmp_path, Hostile(FEEDBACK, from_iteration=2, brings=strangers))
    assert not ran.harm
    assert not ran.refusals
    assert set(range(10, 16)) <= ran.ranks("joined")


@pytest.mark.parametrize(("most", "ranks"), [(8, range(5, 9)), (5, range(5, 6))])
@claim("most-ranks", "--set max_world_size bounds them")
def test_more_ranks_than_the_user_allows_are_refused(
    tmp_path: Path, most: int, ranks: range
) -> None:
    strangers = Stranger(ranks)
    flags = ["--set", f"max_world_size={most}"]
    ran = hostile_run(tmp_path, Hostile(FEEDBACK, from_iteration=2, brings=strangers), flags=flags)
    assert not ran.harm
    assert f"rank {ranks[-1]} is outside 1..{most - 1}" in ran.refusals[0]
    assert "--set max_world_size=N" in ran.refusals[0]


@pytest.mark.slow
@pytest.mark.parametrize("generation", [0, 1])
def test_many_invented_ranks_are_refused(tmp_path: Path, generation: int) -> None:
    strangers = Stranger(range(5, 15_000), hello={"generation": generation})
    ran = hostile_run(tmp_path, Hostile(FEEDBACK, from_iteration=2, brings=strangers))
    assert not ran.harm
    assert "is outside 1.." in ran.refusals[0]


def test_the_rank_of_a_host_that_was_lost_is_kept_for_it(tmp_path: Path) -> None:
    liar = Hostile(FEEDBACK, from_iteration=3, brings=Stranger([RANK]))
    ran = hostile_run(tmp_path, liar)
    assert not ran.harm
    assert f"rank {RANK} is kept for the host that was lost with it" in ran.refusals[0]


@claim(
    "newcomer-copy",
    "A newcomer gets a copy of a worker's weights and buffers, without the state of its optimizer.",
)
def test_a_newcomer_gets_few_copies_without_moments(tmp_path: Path) -> None:
    result: list[Message] = []

    def ask_again(message: Message) -> Message | None:
        if message.kind != Kind.ADOPT:
            return None
        result.append(message)
        return messages.ready(message.iteration, [])

    stranger = Stranger([9], ask_again, holds=[])
    liar = Hostile(FEEDBACK, from_iteration=2, brings=stranger)
    flags = ["--iterations", "40", "--swap-interval", "0"]
    ran = hostile_run(tmp_path, liar, flags=flags, may_be_believed=True)
    assert not ran.harm
    assert 1 <= len(result) <= 5
    assert all(name.startswith("9/discriminator.model.") for m in result for name in m.tensors)
    assert 9 in ran.out


@pytest.mark.parametrize("rank", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_a_server_does_not_end_because_a_host_says_so(tmp_path: Path, rank: int) -> None:
    stranger = Stranger([rank], hello={"generation": 10**6})
    ran = hostile_run(tmp_path, Hostile(FEEDBACK, from_iteration=2, brings=stranger))
    assert not ran.harm
    assert "a server of generation 1000000" in ran.refusals[0]


@pytest.mark.parametrize(
    ("family", "flags"),
    [
        ("fl-gan", ["--training-load", "measured"]),
        pytest.param("clients", [], marks=pytest.mark.slow),
        pytest.param("mdgan", [], marks=pytest.mark.slow),
    ],
)
def test_what_a_newcomer_tells_of_itself_is_no_object(
    tmp_path: Path, family: str, flags: list[str]
) -> None:
    stranger = Stranger([5], told=["capabilities"])
    liar = Hostile({"mdgan": FEEDBACK}.get(family, "UPDATE"), from_iteration=2, brings=stranger)
    ran = hostile_run(tmp_path, liar, family, flags)
    assert not ran.harm
    assert 5 in ran.out
