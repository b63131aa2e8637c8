"""What a host writes about its workers, and reads again."""

import errno
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
from tests.claims.registry import claim
from tests.processes import wait_until
from tests.unit.engine.learners import Learner, make_worker, same_state
from tests.unit.engine.played import LONG, state_of


class Keeper:
    """A host's side of checkpoints, and what it has reported from whatever thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "digits-1" / "checkpoints"
        self.messages: list[Message] = []
        self.saving = HostCheckpoints(
            lambda told: folder / told["run"] / "checkpoints", Tracer(), 2
        )
        assert self.saving.attend({"run": "digits-1"}) == folder / "digits-1"

    def order(self, workers: dict[int, Learner], iteration: int = 5, *kept: int) -> None:
        order = messages.checkpoint(iteration, kept, to_server=False)
        self.saving.save(order, workers, self.messages.append)

    def saved(self, workers: dict[int, Learner], iteration: int = 5, *kept: int) -> Message:
        """Saves workers; returns the report."""
        before = len(self.messages)
        self.order(workers, iteration, *kept)
        wait_until(lambda: len(self.messages) > before, "the report", LONG)
        return self.messages[-1]

    def reasons(self) -> list[tuple[int, str]]:
        return [(message.iteration, message.fields["reason"]) for message in self.messages]

    def restore(self, report: Message, workers: dict[int, Learner]) -> list[int]:
        newest = {"iteration": report.iteration, "files": report.fields["files"]}
        return self.saving.restore(newest, workers)


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    return Keeper(tmp_path)


def trained(rank: int, seed: int = 0) -> Learner:
    worker = make_worker(rank, model_seed=seed)
    worker.step()
    return worker


def test_what_was_saved_is_restored_bit_for_bit(keeper: Keeper, tmp_path: Path) -> None:
    workers = {1: trained(1), 4: trained(4)}
    states = {rank: worker.state() for rank, worker in workers.items()}
    keeper.order(workers)
    for worker in workers.values():
        worker.step()  # training goes on while the disk writes
    wait_until(lambda: bool(keeper.messages), "the report", LONG)
    report = keeper.messages[0]
    assert (report.kind, report.iteration) == (Kind.CHECKPOINTED, 5)
    assert (set(report.fields["files"]), report.fields["reason"]) == ({"1", "4"}, "")
    names = {path.name for path in (keeper.folder / "0000005").iterdir()}
    assert names == {worker_file(1), worker_file(4)}
    fresh = {1: make_worker(1, model_seed=2), 4: make_worker(4, model_seed=2)}
    assert Keeper(tmp_path).restore(report, fresh) == [1, 4]
    assert all(same_state(fresh[rank].state(), state) for rank, state in states.items())
    keeper.saving.close()


def changed(data: bytes) -> bytes:
    return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]


@pytest.mark.parametrize("damage", [None, lambda data: data[:-1], changed, lambda _: b""])
def test_what_is_damaged_is_not_restored_and_the_others_are(
    keeper: Keeper, damage: Callable[[bytes], bytes] | None
) -> None:
    report = keeper.saved({1: trained(1), 2: trained(2)})
    path = keeper.folder / "0000005" / worker_file(1)
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    fresh = {1: make_worker(1), 2: make_worker(2)}
    assert keeper.restore(report, fresh) == [2]
    assert same_state(fresh[1].state(), state_of(1))


def test_only_what_belongs_to_the_checkpoint_is_restored(keeper: Keeper) -> None:
    keeper.saved({1: trained(1, seed=3)})
    report = keeper.saved({2: trained(2)})
    assert keeper.restore(report, {1: make_worker(1), 2: make_worker(2)}) == [2]
    for record in (None, 7, {}, {"name": "../x", "sha256": "0" * 64, "num_bytes": 1}):
        files = {"iteration": 5, "files": {"1": record}}
        assert keeper.saving.restore(files, {1: make_worker(1)}) == []


def test_a_state_of_other_models_is_not_restored(keeper: Keeper) -> None:
    state = {name: t for name, t in state_of(1).items() if not name.endswith("bias")}
    stored = write_state(keeper.folder / "0000005", worker_file(1), state)
    newest = {"iteration": 5, "files": {"1": stored.as_record()}}
    worker = make_worker(1)
    assert keeper.saving.restore(newest, {1: worker}) == []
    assert same_state(worker.state(), state_of(1))


def test_files_that_are_no_longer_needed_are_deleted(keeper: Keeper) -> None:
    def folders() -> list[str]:
        return sorted(folder.name for folder in keeper.folder.iterdir())

    for iteration in (2, 4, 6, 8, 10):
        keeper.saved({1: trained(1)}, iteration, 2)
    wait_until(lambda: len(folders()) == 4, "pruning")
    assert folders() == ["0000002", "0000006", "0000008", "0000010"]


def test_a_disk_that_is_full_is_told_of_and_training_goes_on(
    keeper: Keeper, tmp_path: Path
) -> None:
    (tmp_path / "digits-1").write_text("a file in the way of the folder")
    report = keeper.saved({1: trained(1)})
    assert report.fields == {"files": {}, "reason": "File exists"}
    (tmp_path / "digits-1").unlink()
    assert keeper.saved({1: trained(1)}).fields["reason"] == ""


@pytest.mark.parametrize("error", [OSError("p0.png is in the way"), OSError(errno.EIO, None)])
@claim("counts-under-dp", "No name of a file with samples leaves a machine")
def test_the_server_learns_no_path_but_some_reason(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def fail(*_: Any) -> StoredFile:
        raise error

    monkeypatch.setattr(module, "write_state", fail)
    assert keeper.saved({1: trained(1)}).fields["reason"] == "OSError"
