"""The server's side of masked sums, with hosts that a test plays and that drop out."""

from pathlib import Path

import torch

from mdgan import messages
from mdgan.engine.masked_answers import MaskedAnswers
from mdgan.gan.exact_sum import summed_in_steps
from mdgan.messages import Kind
from tests.unit.engine.played import Played, feedback_of
from tests.unit.engine.stage import Stage


class Masking(Played):
    """A host of one worker that masks what it answers."""

    def arrive(self, stage: Stage) -> None:
        self.masks = MaskedAnswers(self.number, stage.form)
        self.link.send(messages.ready(0, self.workers, None, self.masks.begin()))

    def answer_masked(self) -> None:
        question, (worker,) = self.take("BATCHES"), self.workers
        answer = self.masks.pack(
            question,
            {worker: feedback_of(worker, question.iteration)},
            {worker: torch.zeros(2)},
            {worker: question.fields["groups"][str(worker)]},
            lambda own: summed_in_steps(own.values()),
        )
        self.send(answer)


def test_a_sum_that_is_whole_is_not_asked_for_again(tmp_path: Path) -> None:
    """A host answers and drops out then; without it, the same sum would tell its answer."""
    stage = Stage(tmp_path, num_workers=7, iterations=1, secure_aggregation=True)
    hosts = {n: Masking(stage.network, n) for n in range(1, 8)}
    stage.actor.start()
    for host in hosts.values():
        host.arrive(stage)
    try:
        for n, host in hosts.items():
            if n != 6:
                host.answer_masked()
        stage.cut(7)  # its sum, of 1, 3, 5 and 7, is whole; the other lacks 6
        stage.cut(6)
        left = [hosts[n] for n in range(1, 6)]
        stage.finished(*left)
        assert not any(Kind.AGAIN in host.told() for host in left)
        assert [row["workers"] for row in stage.metrics()] == [4]
    finally:
        stage.close()


def test_sums_that_lack_an_answer_are_asked_for_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path, num_workers=8, iterations=1, secure_aggregation=True)
    hosts = {n: Masking(stage.network, n) for n in range(1, 9)}
    stage.actor.start()
    for host in hosts.values():
        host.arrive(stage)
    try:
        for n, host in hosts.items():
            if n != 8:
                host.answer_masked()
        stage.cut(8)
        for n in (2, 4, 6):
            hosts[n].send(hosts[n].masks.again(hosts[n].take(Kind.AGAIN)))
        left = [hosts[n] for n in range(1, 8)]
        stage.finished(*left)
        asked = {host.number for host in left if Kind.AGAIN in host.told()}
        assert asked == {2, 4, 6}
        assert [row["workers"] for row in stage.metrics()] == [7]
    finally:
        stage.close()
