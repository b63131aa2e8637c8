"""How the server begins and ends a run."""

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path

import pytest
from safetensors.torch import load_file

from mdgan import messages
from mdgan.engine.channel import Channel
from mdgan.engine.server.engine import Engine
from mdgan.engine.server.scoring import ScorerLink
from mdgan.errors import BadInput, Interrupted, NotSaved
from mdgan.messages import Kind, Message
from mdgan.metrics.real_statistics import RealStatistics
from mdgan.records.run_directory import RunDirectory
from mdgan.storage.fence import Fence, Fenced
from tests.toy_family import ANSWER, ASK
from tests.unit.engine.learners import same_state
from tests.unit.engine.played import LONG, answer_all, answer_of, generator_after
from tests.unit.engine.stage import Stage, begun
from tests.unit.engine.test_scoring import statistics
from tests.unit.engine.test_server_checkpoints import order, save_alone, write

MakeStage = Callable[..., Stage]


def test_all_are_waited_for(stage: MakeStage) -> None:
    made = stage(num_workers=3, iterations=1)
    one, both = made.play(1), made.play(2, 3)
    made.begin(one)
    assert one.link.receive(0.1) is None, "ranks 2 and 3 are not ready"
    both.ready()
    made.finished(one, both)
    assert made.events("holdings")[0]["workers"].keys() == {"1", "2", "3"}


def test_who_does_not_come_is_named(stage: MakeStage) -> None:
    made = stage(num_workers=4, connect=1.5)
    one = made.play(1)
    arriving = made.play(3).lacks_everything()
    made.begin(one)
    error = made.over()
    assert isinstance(error, BadInput)
    assert str(error).startswith("rank(s) 2,3,4 did not join within 1.5 s; start them with --ranks")
    for host in (one, arriving):
        assert host.take(Kind.STOP).fields == {"reason": str(error), "shut_out": False, "said": ""}
    assert made.status()["state"] == "failed"


@pytest.mark.parametrize("when", ["waiting", "training", "late"])
def test_asked_to_stop_it_tells_every_host_and_saves(stage: MakeStage, when: str) -> None:
    made = stage(iterations=9, deadline=(0.05, 0.0) if when == "late" else (0.0, 0.0))
    one, two = made.play(1), made.play(2)
    if when == "waiting":
        made.begin(one)
        made.network.server.interrupt()
    else:
        made.begin(one, two)
        for i in (1, 2):
            one.answer(i)
            if when == "training":
                two.answer(i)
        one.take(ASK, 3)
        for _ in range(2):  # the first time it would wait for the others' answers
            made.network.server.interrupt()
    done = 0 if when == "waiting" else 2
    assert isinstance(made.over(), Interrupted)
    reason = f"the server was asked to stop after iteration {done}"
    assert one.take(Kind.STOP).fields == {"reason": reason, "shut_out": False, "said": ""}
    assert made.status()["state"] == "stopped"
    if when == "waiting":
        return
    saved = load_file(made.folder / "generator.safetensors")
    assert same_state(saved, made.generator.state_dict())
    assert made.events("attendance")


def test_a_checkpoint_under_way_is_kept_when_it_is_asked_to_stop(stage: MakeStage) -> None:
    made, (one, two) = begun(stage, (1,), (2,), iterations=9, checkpoints=2, to_server=True)
    answer_all([one, two], 1, 2)
    for host in (one, two):
        host.take(Kind.CHECKPOINT, 2)
    for _ in range(2):
        made.network.server.interrupt()
    for host in (one, two):
        host.take(Kind.STOP)
        state = made.engine.part.state()
        host.send(messages.state(2, {host.number: state}, "checkpoint"))
        host.die()
    assert isinstance(made.over(), Interrupted)
    manifest = made.checkpoints.newest()[0]
    assert manifest is not None
    assert (manifest.iteration, manifest.workers) == (2, (1, 2))


def test_a_failure_of_its_own_is_told_without_details(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage(num_workers=1)

    def fail(_done: int, _engine: Engine) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(made.engine.part, "advance", fail)
    (one,) = made.begin_with((1,))
    assert one.take(Kind.STOP).fields["reason"] == "the server failed"
    assert isinstance(made.over(), ZeroDivisionError)
    assert made.status()["state"] == "failed"


def test_who_comes_at_the_very_end_is_told_to_stop(stage: MakeStage) -> None:
    made, (one,) = begun(stage, (1,), num_workers=1, iterations=1, checkpoints=1)
    one.answer(1)
    one.take(Kind.CHECKPOINT, 1)  # the server waits for its report
    newcomer = made.play(5)
    one.send(messages.checkpointed(1, {}, "no disk"))
    assert newcomer.take(Kind.STOP).fields["reason"] == ""
    newcomer.die()
    made.finished(one)


def test_a_host_that_is_late_at_the_end_is_not_waited_for(stage: MakeStage) -> None:
    made = stage(num_workers=3, iterations=2, deadline=(0.1, 0.0), quorum=0.6, checkpoints=2)
    one, two, hung = made.begin_with((1,), (2,), (3,))
    made.finished(one, two)
    assert hung.take(Kind.STOP)
    assert hung.iterations() == [1]
    assert made.status()["state"] == "finished"


def test_who_comes_in_a_place_of_a_described_host_is_asked_for_its_data_again(
    stage: MakeStage,
) -> None:
    """Else the end of training would wait for what no host has been asked."""
    first, second = Pipe()
    scorer = Channel(second)
    link = ScorerLink(Channel(first))
    made = stage(num_workers=1, iterations=3, eval_interval=100, scorer=link)
    scorer.send(Message(Kind.EXTRACTOR, 0, {"kind": "file"}))
    (one,) = made.begin_with((1,))
    one.answer(1)
    one.take(Kind.EXTRACTOR)
    one.take(ASK, 2)
    one.die()
    made.wait_for_event("lost")
    again = made.play(1).ready()
    again.answer(2)
    again.take(Kind.EXTRACTOR)
    again.answer(3)
    again.send(messages.real(3, statistics(3).tensors()))
    handed = iter(lambda: scorer.receive(LONG), None)
    message = next(message for message in handed if message.kind == Kind.REAL)
    link.abandon()
    assert RealStatistics.from_tensors(message.tensors).num_samples == 20
    made.finished(again)
    for connection in (first, second):
        connection.close()


@pytest.mark.parametrize("seed", range(3))
def test_whatever_becomes_of_the_others_the_generator_learns_from_who_answered(
    stage: MakeStage, seed: int
) -> None:
    """Random losses, lies, leaves and arrivals, and the same computed here."""
    draw = random.Random(seed)
    made = stage(num_workers=4, iterations=12, strikes=2)
    hosts = {host.number: host for host in made.begin_with((1,), (2,), (3,), (4,))}
    answered, questions, lies = [], [], Counter[int]()
    for i in range(1, 13):
        present = sorted(hosts)
        fates = {n: draw.choice(["dies", "leaves", "lies"] + 9 * ["answers"]) for n in present}
        fates[present[0]] = "answers"
        for n in present:
            hosts[n].take(ASK, i)
        if i % 3 == 0:
            hosts[20 + i] = made.play(20 + i).ready()
            made.wait_for_event("joined", i // 3)
        for n, fate in fates.items():
            lies[n] += fate == "lies"
            if fate == "answers":
                hosts[n].send(answer_of(n, iteration=i))
            elif fate == "lies":
                hosts[n].send(messages.Message(ANSWER, i, {"workers": [n]}, {}))
            elif fate == "leaves":
                hosts[n].send(messages.leave(i))
            if fate in ("dies", "leaves") or lies[n] == 2:
                hosts.pop(n).die()
        questions.append(present)
        answered.append([n for n in present if fates[n] == "answers"])
    made.finished(*hosts.values())
    assert made.has_learnt(generator_after(answered))


# A server that may no longer write, or has nowhere to write to.


def test_nothing_is_written_once_another_server_has_taken_over(stage: MakeStage) -> None:
    made = stage(checkpoints=5)
    one = made.play(1)
    order(made, 5, one)
    Fence.claim(made.folder)
    write(made, one, 5)
    made.saving.close(LONG)
    assert not made.checkpoints.committed()
    with pytest.raises(Fenced):
        order(made, 10, one)
    with pytest.raises(Fenced):
        save_alone(made, 10)


def test_a_fenced_server_stops_and_says_no_word_to_its_hosts(stage: MakeStage) -> None:
    made, (one,) = begun(stage, (1,), num_workers=1, iterations=9, checkpoints=2)
    one.answer(1)
    one.take(ASK, 2)
    made.wait_for_checkpoint(0)
    Fence.claim(made.folder)
    files = {path: path.stat().st_mtime_ns for path in made.folder.rglob("*")}
    one.send(answer_of(1, iteration=2))
    assert isinstance(made.over(), Fenced)
    assert one.lost() == "it said goodbye"
    assert "STOP" not in one.message_kinds()
    changed = {
        path.name for path in made.folder.rglob("*") if path.stat().st_mtime_ns != files.get(path)
    }
    assert changed <= {"metrics.jsonl", "server.jsonl"}, "iteration 2 was its own"
    assert made.status()["state"] == "running"


def test_a_worker_that_tells_of_a_later_server_makes_this_one_look(stage: MakeStage) -> None:
    made, (one,) = begun(stage, (1,), num_workers=1, iterations=9)
    one.take(ASK, 1)
    Fence.claim(made.folder)
    refusal = made.admission.admit({**one.hello, "generation": 2})
    assert refusal == "a server of generation 2 has taken over"
    with pytest.raises(BadInput, match="has taken over"):
        made.play(1, generation=2)
    assert isinstance(made.over(), Fenced)
    assert "STOP" not in one.message_kinds()


def test_a_run_whose_folder_vanishes_trains_on(
    stage: MakeStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    made, (one,) = begun(stage, (1,), num_workers=1, iterations=6, checkpoints=2)
    one.answer(1)
    one.take(ASK, 2)
    made.wait_for_checkpoint(0)
    shutil.rmtree(made.folder)
    one.send(answer_of(1, iteration=2))
    answer_all([one], 3, 4, 5, 6)
    assert isinstance(made.over(), NotSaved)
    (saved,) = (tmp_path / "elsewhere").iterdir()
    assert RunDirectory(saved).read_generator()[1] == 6
    assert not made.folder.exists()
