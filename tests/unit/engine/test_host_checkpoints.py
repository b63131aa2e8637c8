import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mdgan import messages
from mdgan.engine.host import checkpoints as module
from mdgan.engine.host.checkpoints import HostCheckpoints
from mdgan.messages import Kind, Message
from mdgan.observe.tracer import Tracer
from mdgan.storage.checkpoints import worker_file
from mdgan.storage.state_file import StoredFile, write_state
from tests.processes import wait_until
from tests.unit.engine.played import LONG
from tests.unit.engine.stage import Learner, make_worker, same_state

WELCOME = {"run": "digits-1"}


class Sent:
    """What a keeper has reported, from whatever thread."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def __call__(self, message: Message) -> None:
        self.messages.append(message)

    def take(self, number: int = 1) -> Message:
        wait_until(lambda: len(self.messages) >= number, "the report", LONG)
        return self.messages[number - 1]


def make_keeper(folder: Path) -> HostCheckpoints:
    keeper = HostCheckpoints(lambda run: folder / run / "checkpoints", Tracer())
    keeper.attend(WELCOME)
    return keeper


def trained(rank: int, seed: int = 0) -> Learner:
    worker = make_worker(rank, model_seed=seed)
    worker.step()
    return worker


def saved(
    keeper: HostCheckpoints,
    workers: dict[int, Learner],
    iteration: int = 5,
    kept: tuple[int, ...] = (),
) -> Message:
    sent = Sent()
    order = messages.checkpoint(iteration, kept, to_server=False)
    keeper.save(order, workers, sent)
    return sent.take()


def whereabouts(report: Message) -> dict[str, Any]:
    return {"iteration": report.iteration, "files": report.fields["files"]}


def test_what_was_saved_is_restored_bit_for_bit(tmp_path: Path) -> None:
    keeper = make_keeper(tmp_path)
    workers = {1: trained(1), 4: trained(4)}
    states = {rank: worker.state() for rank, worker in workers.items()}
    report = saved(keeper, workers)
    assert (report.kind, report.iteration) == (Kind.CHECKPOINTED, 5)
    assert (set(report.fields["files"]), report.fields["reason"]) == ({"1", "4"}, "")
    folder = tmp_path / "digits-1" / "checkpoints" / "0000005"
    assert {path.name for path in folder.iterdir()} == {worker_file(1), worker_file(4)}
    for worker in workers.values():
        worker.step()  # training goes on
    fresh = {1: make_worker(1, model_seed=2), 4: make_worker(4, model_seed=2)}
    again = make_keeper(tmp_path)
    assert again.restore(whereabouts(report), fresh) == [1, 4]
    assert all(same_state(fresh[rank].state(), state) for rank, state in states.items())
    keeper.close()


def test_what_is_saved_is_what_was_there_when_it_was_ordered(tmp_path: Path) -> None:
    keeper, worker = make_keeper(tmp_path), trained(1)
    state = worker.state()
    sent = Sent()
    keeper.save(messages.checkpoint(5, [], to_server=False), {1: worker}, sent)
    for _ in range(5):
        worker.step()
    fresh = make_worker(1)
    assert keeper.restore(whereabouts(sent.take()), {1: fresh}) == [1]
    assert same_state(fresh.state(), state)


def test_to_the_server_nothing_is_written(tmp_path: Path) -> None:
    keeper, worker, sent = make_keeper(tmp_path), trained(2), Sent()
    keeper.save(messages.checkpoint(5, [], to_server=True), {2: worker}, sent)
    (message,) = sent.messages
    assert (message.kind, message.iteration) == (Kind.STATE, 5)
    assert message.fields["purpose"] == "checkpoint"
    assert same_state(messages.by_worker(message)[2], worker.state())
    assert not list(tmp_path.iterdir())


def damage_missing(path: Path) -> None:
    path.unlink()


def damage_torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def damage_changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [damage_missing, damage_torn, damage_changed, damage_empty])
def test_what_is_damaged_is_not_restored_and_the_others_are(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    keeper = make_keeper(tmp_path)
    report = saved(keeper, {1: trained(1), 2: trained(2)})
    damage(tmp_path / "digits-1" / "checkpoints" / "0000005" / worker_file(1))
    fresh = {1: make_worker(1), 2: make_worker(2)}
    before = fresh[1].state()
    assert keeper.restore(whereabouts(report), fresh) == [2]
    assert same_state(fresh[1].state(), before)


def test_only_what_belongs_to_the_checkpoint_is_restored(tmp_path: Path) -> None:
    keeper = make_keeper(tmp_path)
    saved(keeper, {1: trained(1, seed=3)}, iteration=5)
    report = saved(keeper, {2: trained(2)}, iteration=5)
    assert keeper.restore(whereabouts(report), {1: make_worker(1), 2: make_worker(2)}) == [2]
    assert keeper.restore({"iteration": 5, "files": {}}, {1: make_worker(1)}) == []


@pytest.mark.parametrize(
    "record", [None, 7, {}, {"name": "../x", "sha256": "0" * 64, "num_bytes": 1}]
)
def test_a_record_that_is_none_restores_nothing(tmp_path: Path, record: Any) -> None:
    keeper = make_keeper(tmp_path)
    assert keeper.restore({"iteration": 5, "files": {"1": record}}, {1: make_worker(1)}) == []


def test_a_state_of_other_models_is_not_restored(tmp_path: Path) -> None:
    folder = tmp_path / "digits-1" / "checkpoints" / "0000005"
    state = {name: t for name, t in make_worker(1).state().items() if not name.endswith("bias")}
    stored = write_state(folder, worker_file(1), state)
    newest = {"iteration": 5, "files": {"1": stored.as_record()}}
    worker = make_worker(1)
    before = worker.state()
    assert make_keeper(tmp_path).restore(newest, {1: worker}) == []
    assert same_state(worker.state(), before)


def test_files_that_are_no_longer_needed_are_deleted(tmp_path: Path) -> None:
    keeper, worker = make_keeper(tmp_path), trained(1)
    for iteration in (2, 4, 6, 8, 10):
        saved(keeper, {1: worker}, iteration, kept=(2,))
    wait_until(lambda: len(folders(tmp_path)) == 4, "pruning")
    assert folders(tmp_path) == ["0000002", "0000006", "0000008", "0000010"]


def folders(path: Path) -> list[str]:
    return sorted(folder.name for folder in (path / "digits-1" / "checkpoints").iterdir())


def test_a_disk_that_is_full_is_told_of_and_training_goes_on(tmp_path: Path) -> None:
    keeper, worker = make_keeper(tmp_path), trained(1)
    (tmp_path / "digits-1").write_text("a file in the way of the folder")
    report = saved(keeper, {1: worker})
    assert report.fields == {"files": {}, "reason": "File exists"}
    (tmp_path / "digits-1").unlink()
    assert saved(keeper, {1: worker}).fields["reason"] == ""


def test_a_slow_disk_costs_the_older_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes, begun = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> StoredFile:
        begun.set()
        assert goes.wait(LONG)
        return write_state(*arguments)

    monkeypatch.setattr(module, "write_state", slow)
    keeper, worker, sent = make_keeper(tmp_path), trained(1), Sent()
    for iteration in (1, 2, 3):
        keeper.save(messages.checkpoint(iteration, [], to_server=False), {1: worker}, sent)
        assert begun.wait(LONG)
    assert [(m.iteration, m.fields["reason"]) for m in sent.messages] == [
        (2, "the disk cannot keep up")
    ]
    goes.set()
    keeper.close()
    assert [(m.iteration, m.fields["reason"]) for m in sent.messages[1:]] == [(1, ""), (3, "")]


def test_closing_waits_until_everything_is_written(tmp_path: Path) -> None:
    keeper, sent = make_keeper(tmp_path), Sent()
    keeper.save(messages.checkpoint(5, [], to_server=False), {1: trained(1)}, sent)
    keeper.close()
    assert sent.messages[0].fields["reason"] == ""


def test_the_server_learns_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: Path, *_: Any) -> StoredFile:
        raise OSError(f"{folder}/p0.png is in the way")

    monkeypatch.setattr(module, "write_state", fail)
    assert saved(make_keeper(tmp_path), {1: trained(1)}).fields["reason"] == "OSError"


def test_an_error_without_words_is_told_of_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> StoredFile:
        raise OSError(errno.EIO, None)

    monkeypatch.setattr(module, "write_state", fail)
    assert saved(make_keeper(tmp_path), {1: trained(1)}).fields["reason"]
