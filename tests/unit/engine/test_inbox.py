"""Answers that come before the server waits for them."""

from collections.abc import Callable

from mdgan.families.mdgan.messages import FEEDBACK
from tests.unit.engine.played import answer_of
from tests.unit.engine.stage import Stage

MakeStage = Callable[..., Stage]


def take_all(inbox: AnswerInbox, iteration: int) -> list[tuple[int, int]]:
    """Takes in what is there; the host and the iteration of every answer."""
    found = []
    for _ in range(20):
        answer = inbox.next(0.0, iteration)
        if answer is not None:
            found.append((answer.host, answer.message.iteration))
    return found


def test_only_answers_that_are_owed_are_kept_and_not_longer_than_their_host(
    stage: MakeStage,
) -> None:
    made = stage()
    engine = made.server._engine
    inbox = AnswerInbox(made.network.server, made.members, engine.desk, [FEEDBACK])
    hosts = {n: made.play(n).ready() for n in (1, 2)}
    engine.poll()
    for i in (1, 2):
        made.members.owe({1: [1], 2: [2]}, i)
    for n, host in hosts.items():
        for i in (2, 2, 2, 10**6, 10**6 + 1):  # one is owed
            host.send(answer_of(n, i))
    assert take_all(inbox, 1) == []
    assert inbox.has_kept()
    engine.desk.lose(1, "its link is gone")
    inbox.settle()
    assert take_all(inbox, 2) == [(2, 2)]
    assert not inbox.has_kept()
