"""Hosts and strangers that try to fill the disk by their messages."""

import logging
from pathlib import Path

import pytest

from mdgan.errors import BadInput
from mdgan.families.mdgan.messages import FEEDBACK
from mdgan.messages import Kind, Message
from tests.hostile.bench import RANK, Hostile, Stranger, hostile_run
from tests.processes import read_events
from tests.unit.engine.played import hello
from tests.unit.engine.stage import Stage

CLASSES = 330_000


def test_a_newcomer_tells_of_no_more_classes_than_there_are(tmp_path: Path) -> None:
    counts = {"class_counts": {"9": [0] * (CLASSES - 1) + [100]}, "num_samples": {"9": 100}}
    liar = Hostile(FEEDBACK, from_iteration=2, brings=Stranger([9], hello=counts))
    ran = hostile_run(tmp_path, liar)
    assert not ran.harm
    assert "rank 9 tells of 330000 classes, the run has at most 1000" in ran.refusals[0]
    assert "say NUM_CLASSES in the dataset file" in ran.refusals[0]
    assert (ran.folder / "metrics.jsonl").stat().st_size < 100_000


def test_a_host_says_once_for_each_order_why_it_saves_nothing(tmp_path: Path) -> None:
    def flood(message: Message) -> list[Message]:
        told = [
            Message(Kind.CHECKPOINTED, i, {"files": {}, "reason": f"{n} " + "no room " * 100})
            for i in (message.iteration - 1, message.iteration)
            for n in range(300)
        ]
        return [message, *told]

    flags = ["--checkpoint-interval", "2"]
    ran = hostile_run(tmp_path, Hostile(FEEDBACK, flood), flags=flags, may_be_believed=True)
    assert not ran.harm
    reasons = [event["reason"] for event in read_events(ran.folder, "unsaved")]
    assert len(reasons) <= 5, "as many as there were checkpoints"
    assert all(len(reason) < 200 for reason in reasons)
    assert RANK not in ran.out, "what is not asked for is ignored"


def test_refusals_are_told_less_and_less_often(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Stage(tmp_path / "run")
    with caplog.at_level(logging.INFO, "mdgan"):
        for n in range(3000):
            own_hello = hello(1)
            own_hello["identity"] = {"version": f"1.{n % 3}!", "seed": 0}
            with pytest.raises(BadInput):
                made.network.join(1, own_hello)
        made.engine.poll()
    made.close()
    lines = [line for line in caplog.messages if line.startswith("refused a host: ")]
    assert len(lines) == 3 * 10, "the 1st, 2nd, 4th, … of each cause"
    assert lines[-1].endswith("(512 times so far)")
