"""When checkpoints count, what they hold, and what a slow or full disk does to them."""

import errno
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from mdgan import messages
from mdgan.engine.server import checkpoints as module
from mdgan.engine.server.checkpoints import ServerCheckpoints
from mdgan.messages import Kind
from mdgan.storage.checkpoints import worker_file
from mdgan.storage.manifest import Manifest
from mdgan.storage.state_file import StoredFile, check_file, write_state
from tests.processes import wait_until
from tests.unit.engine.learners import same_state
from tests.unit.engine.played import LONG, Played, make_generator, state_of
from tests.unit.engine.stage import Actor, Stage

MakeStage = Callable[..., Stage]
PROGRESS = {"num_swaps": 0, "swap_every": 5}


def order(made: Stage, iteration: int, *hosts: Played) -> None:
    """Orders a checkpoint of these hosts, which alone take part from here on."""
    for number in made.peers.hosts():
        made.peers.lose(number, "it takes no part")
    for host in hosts:
        made.peers.joined(host.number, host.hello)
        made.peers.arrived(host.number)
    made.saving.order(iteration, PROGRESS, made.engine.part.state())


def save_alone(made: Stage, iteration: int) -> None:
    made.saving.save_alone(iteration, PROGRESS, made.engine.part.state())


def leave(made: Stage, worker: int, state: Mapping[str, Tensor]) -> None:
    """A worker goes of its own accord, and leaves its state."""
    host = made.play(worker)
    made.peers.joined(host.number, host.hello)
    made.saving.note_states(host.number, messages.state(1, {worker: state}, "leave"))
    made.peers.lose(host.number, "it leaves")
    host.die()


def write(made: Stage, host: Played, iteration: int, folder: Path | None = None) -> StoredFile:
    """What a good host does about a checkpoint; returns the file of its first worker."""
    place = folder or made.checkpoints.folder_of(iteration)
    files = {n: write_state(place, worker_file(n), state_of(n)) for n in host.workers}
    records = {worker: stored.as_record() for worker, stored in files.items()}
    made.saving.note_written(host.number, messages.checkpointed(iteration, records))
    return files[host.number]


def saved(made: Stage, iteration: int, *hosts: Played) -> Manifest:
    """A checkpoint is ordered, and all hosts write."""
    order(made, iteration, *hosts)
    for host in hosts:
        write(made, host, iteration)
    return made.wait_for_checkpoint(iteration)


def whole(made: Stage) -> Manifest:
    """The newest checkpoint, which is whole."""
    manifest, passed_over = made.checkpoints.newest()
    assert manifest is not None
    assert not passed_over
    return manifest


def is_kept(made: Stage, worker: int, state: Mapping[str, Tensor]) -> bool:
    """Whether the server has exactly this for a worker."""
    return same_state(made.saving.kept.state_for(worker) or {}, state)


def unsaved(made: Stage) -> list[tuple[int, str]]:
    """What the user is told of checkpoints that failed."""
    made.saving.poll()
    return [(event["iteration"], event["reason"]) for event in made.events("unsaved")]


class Blocked:
    """A disk that writes when it is told to."""

    def __init__(self) -> None:
        self.goes = threading.Event()
        self.begun = threading.Event()

    def write(self, folder: Path, name: str, state: Mapping[str, Tensor]) -> StoredFile:
        self.begun.set()
        assert self.goes.wait(LONG)
        return write_state(folder, name, state)


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Blocked:
    disk = Blocked()
    monkeypatch.setattr(module, "write_state", disk.write)
    return disk


@pytest.mark.parametrize(
    ("interval", "iterations", "due"),
    [
        (0, 10, []),
        (3, 10, [0, 3, 6, 9, 10]),
        (5, 10, [0, 5, 10]),
        (10, 10, [0, 10]),
        (11, 10, [10]),
        (1, 3, [0, 1, 2, 3]),
    ],
)
def test_when_a_checkpoint_is_due(
    stage: MakeStage, interval: int, iterations: int, due: list[int]
) -> None:
    saving = stage(checkpoints=interval, iterations=iterations).saving
    assert [i for i in range(iterations + 1) if saving.due(i - 1, i)] == due


def test_without_an_interval_nothing_is_written_but_what_there_is_can_be_found(
    stage: MakeStage,
) -> None:
    made = stage(checkpoints=5, to_server=True)
    leave(made, 1, state_of(1))
    manifest = saved(made, 5)
    assert manifest.files.keys() == {"server", "1"}
    settings = made.make_settings({"iterations": 5, "checkpoint_interval": 0})
    saving = ServerCheckpoints(made.checkpoints, settings, {}, made.fence, made.peers, manifest)
    saving.save_alone(7, PROGRESS, made.engine.part.state())
    saving.close(LONG)
    assert made.checkpoints.committed() == [5]
    assert same_state(saving.kept.state_for(1) or {}, state_of(1))


@pytest.mark.parametrize("to_server", [False, True])
def test_a_checkpoint_is_ordered_and_counts_when_all_have_reported(
    stage: MakeStage, to_server: bool
) -> None:
    made = stage(num_workers=3, checkpoints=5, iterations=10, to_server=to_server)
    hosts = [made.play(1), made.play(2, 3)]
    order(made, 5, *hosts)
    for host in hosts:
        ordered = host.take(Kind.CHECKPOINT, 5)
        assert ordered.fields == {"kept": [], "to_server": to_server}
    for host in hosts:
        assert not made.saving.complete()
        assert not made.checkpoints.committed()
        if to_server:
            states = {n: state_of(n) for n in host.workers}
            made.saving.note_states(host.number, messages.state(5, states, "checkpoint"))
        else:
            write(made, host, 5)
    assert made.saving.complete()
    manifest = made.wait_for_checkpoint(5)
    assert manifest == whole(made)
    assert manifest.workers == (1, 2, 3)
    assert manifest.elsewhere == ()
    assert manifest.progress == PROGRESS
    assert 0 < manifest.seconds < LONG
    assert manifest.generation == made.fence.generation
    assert manifest.settings == {"iterations": 10}
    found = made.checkpoints.find(5, manifest.files["server"])
    assert same_state(found or {}, made.engine.part.state())
    assert all(is_kept(made, n, state_of(n)) for n in (1, 2, 3))


def test_a_worker_with_a_disk_of_its_own_is_elsewhere(stage: MakeStage, tmp_path: Path) -> None:
    made = stage(checkpoints=5, keep=1)
    one, two = made.play(1), made.play(2)
    order(made, 5, one, two)
    write(made, one, 5)
    write(made, two, 5, tmp_path / "another machine")
    before = made.wait_for_checkpoint(5)
    assert before == whole(made)
    assert (before.workers, before.elsewhere) == ((1, 2), (2,))
    assert made.saving.kept.state_for(2) is None
    # Alone, the server keeps the workers' files.
    save_alone(made, 7)
    manifest = made.wait_for_checkpoint(7)
    assert manifest == whole(made)
    assert made.checkpoints.committed() == [7]
    assert (manifest.workers, manifest.elsewhere) == ((1, 2), (2,))
    assert all(manifest.files[name] == before.files[name] for name in ("1", "2"))
    assert is_kept(made, 1, state_of(1))
    assert (made.saving.newest() or {})["iteration"] == 7


def test_the_next_one_is_left_out_while_workers_are_still_writing(stage: MakeStage) -> None:
    made = stage(checkpoints=5)
    one, slow = made.play(1), made.play(2)
    order(made, 5, one, slow)
    write(made, one, 5)
    for i in (10, 15):
        made.saving.order(i, PROGRESS, made.engine.part.state())
    assert one.link.receive(0.5) is not None
    assert one.link.receive(0.0) is None, "it was asked once"
    write(made, slow, 5)
    assert made.wait_for_checkpoint(5).workers == (1, 2)
    reason = "no checkpoint of iteration 10: workers are still writing that of iteration 5"
    assert unsaved(made) == [(10, reason)]
    assert saved(made, 20, one, slow).workers == (1, 2)


def test_who_does_not_write_for_long_is_left_out(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STRAGGLE_SECONDS", 0.0)
    made = stage(checkpoints=5)
    one, slow = made.play(1), made.play(2)
    order(made, 5, one, slow)
    write(made, one, 5)
    made.saving.order(10, PROGRESS, made.engine.part.state())
    assert made.wait_for_checkpoint(5).workers == (1,)
    write(made, slow, 5)  # too late for that
    assert whole(made).iteration == 5
    write(made, slow, 10)
    write(made, one, 10)
    assert made.wait_for_checkpoint(10).workers == (1, 2)


@pytest.mark.parametrize("cause", ["it is gone", "its disk is full"])
def test_a_host_that_cannot_write_is_left_out(stage: MakeStage, cause: str) -> None:
    made = stage(checkpoints=5)
    one, two = made.play(1), made.play(2)
    order(made, 5, one, two)
    write(made, one, 5)
    if cause == "it is gone":
        made.peers.lose(2, cause)
        made.saving.on_lost()
    else:
        made.saving.note_written(2, messages.checkpointed(5, {}, cause))
    assert made.wait_for_checkpoint(5).workers == (1,)
    told = [(5, f"a worker could not write its checkpoint: {cause}")]
    assert unsaved(made) == ([] if cause == "it is gone" else told)


def test_a_full_disk_costs_a_checkpoint_and_nothing_else(stage: MakeStage) -> None:
    made = stage(checkpoints=5)
    one = made.play(1)
    saved(made, 5, one)

    def full(*_: Any) -> StoredFile:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "write_state", full)
        order(made, 10, one)
        write(made, one, 10)
        wait_until(lambda: not made.saving._problems.empty(), "the failure")
    reason = "the checkpoint of iteration 10 could not be written: No space left on device"
    assert unsaved(made) == [(10, reason)]
    assert whole(made).iteration == 5
    assert not made.checkpoints.folder_of(10).exists(), "it would only take space"
    saved(made, 15, one)


def test_a_folder_that_is_gone_costs_no_training(stage: MakeStage) -> None:
    made = stage(checkpoints=5)
    one = made.play(1)
    away = made.folder.rename(made.folder.with_name("away"))
    order(made, 5, one)
    save_alone(made, 5)
    made.saving.poll()
    assert one.link.receive(0.0) is None
    away.rename(made.folder)
    saved(made, 10, one)


def test_alone_it_does_not_touch_a_checkpoint_that_is_on_its_way(
    stage: MakeStage, blocked: Blocked
) -> None:
    """All were lost right after a checkpoint, which is still being written."""
    made = stage(checkpoints=5)
    one = made.play(1)
    blocked.goes.set()
    saved(made, 0, one)
    blocked.goes.clear()
    order(made, 5, one)
    stored = write(made, one, 5)
    state = made.engine.part.state()
    made.generator.load_state_dict(make_generator(7).state_dict())  # it trains on
    later = made.engine.part.state()
    alone = Actor(lambda: made.saving.save_alone(5, PROGRESS, later))
    alone.start()
    alone.join(0.2)
    assert alone.is_alive(), "no worker trains: it waits for the disk"
    blocked.goes.set()
    assert alone.over() is None
    made.saving.close(LONG)
    manifest = whole(made)
    assert manifest.iteration == 5
    assert manifest.files["1"] == stored
    found = made.checkpoints.find(5, manifest.files["server"])
    assert same_state(found or {}, state)


def test_what_was_left_is_saved_until_its_rank_is_taken(stage: MakeStage) -> None:
    made = stage(checkpoints=5, to_server=True)
    leave(made, 2, state_of(2, 3))
    manifest = saved(made, 5)
    assert manifest.workers == (2,)
    check_file(made.checkpoints.folder_of(5), manifest.files["2"])
    assert is_kept(made, 2, state_of(2, 3))
    made.saving.kept.hold([2])
    assert saved(made, 10).workers == ()


def test_what_is_damaged_on_disk_is_no_workers_state(stage: MakeStage) -> None:
    made = stage(checkpoints=5)
    stored = saved(made, 5, made.play(1)).files["1"]
    path = made.checkpoints.folder_of(5) / stored.name
    path.write_bytes(path.read_bytes()[:-1])
    assert made.saving.kept.state_for(1) is None
