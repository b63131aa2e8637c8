"""If anything is wrong with the newest checkpoint, the reader takes the one before."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdgan.errors import BadInput
from mdgan.storage.checkpoints import SERVER_FILE, Checkpoints, worker_file
from mdgan.storage.fence import Fenced
from mdgan.storage.manifest import SERVER
from mdgan.storage.state_file import read_state, write_state
from tests.marks import examples
from tests.unit.storage.small import all_files, make_manifest, make_state, save_checkpoint
from tests.unit.storage.test_manifest import sealed
from tests.unit.storage.test_state_file import equal_states


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "run" / "checkpoints", keep=3)


def newest_iteration(checkpoints: Checkpoints) -> int | None:
    manifest, _ = checkpoints.newest()
    return None if manifest is None else manifest.iteration


def test_a_checkpoint_lies_where_it_should_and_comes_back(
    tmp_path: Path, checkpoints: Checkpoints
) -> None:
    manifest = save_checkpoint(checkpoints, 40)
    assert all_files(tmp_path / "run" / "checkpoints") == {
        "0000040/manifest.json",
        "0000040/server.safetensors",
        "0000040/worker-0001.safetensors",
        "0000040/worker-0002.safetensors",
    }
    assert checkpoints.newest() == (manifest, [])
    for owner, seed in ((SERVER, 40), ("1", 1040), ("2", 2040)):
        stored = manifest.files[owner]
        assert equal_states(read_state(checkpoints.folder_of(40), stored), make_state(seed))


@settings(deadline=None, max_examples=examples(8))
@given(st.integers(1, 5), st.lists(st.integers(1, 10**8), min_size=1, max_size=9, unique=True))
def test_the_last_k_are_kept(
    tmp_path_factory: pytest.TempPathFactory, keep: int, iterations: list[int]
) -> None:
    checkpoints = Checkpoints(tmp_path_factory.mktemp("run") / "checkpoints", keep)
    done: list[int] = []
    for iteration in sorted(iterations):
        save_checkpoint(checkpoints, iteration, workers=[1])
        done.append(iteration)
        assert checkpoints.committed() == done[-keep:]
        folders = checkpoints.folder_of(0).parent.iterdir()
        assert {int(folder.name) for folder in folders} == set(done[-keep:])
        assert newest_iteration(checkpoints) == iteration


def _spoil(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return damage


def _rename(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _flip(data: bytes) -> bytes:
    place = len(data) // 2
    return data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :]


def _manifest_of_another(folder: Path) -> None:
    shutil.copy(folder.parent / "0000020" / "manifest.json", folder)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "torn manifest": (_spoil("manifest.json", lambda data: data[:200]), "manifest is not JSON"),
    "no manifest": (_rename("manifest.json"), "has no manifest; it was never completed"),
    "another's manifest": (_manifest_of_another, "the manifest is of iteration 20"),
    "torn server": (_spoil(SERVER_FILE, lambda data: data[:-1]), "server.safetensors: "),
    "flipped server": (_spoil(SERVER_FILE, _flip), "server.safetensors: its checksum is wrong"),
    "no server": (_rename(SERVER_FILE), "server.safetensors: is not there"),
    "flipped worker": (_spoil(worker_file(1), _flip), "worker-0001.safetensors: its checksum"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_with_the_reason(
    checkpoints: Checkpoints, name: str
) -> None:
    for iteration in (10, 20, 30):
        save_checkpoint(checkpoints, iteration)
    damage, reason = DAMAGES[name]
    damage(checkpoints.folder_of(30))
    manifest, (why,) = checkpoints.newest()
    assert manifest is not None
    assert manifest.iteration == 20
    assert why.startswith("checkpoint of iteration 30: ")
    assert reason in why
    assert len(why.splitlines()) == 1

    (checkpoints.folder_of(20) / SERVER_FILE).unlink()
    manifest, reasons = checkpoints.newest()
    assert manifest is not None
    assert manifest.iteration == 10
    assert len(reasons) == 2
    shutil.rmtree(checkpoints.folder_of(10))
    assert checkpoints.newest() == (None, reasons)


def test_files_that_lie_elsewhere_are_not_asked_for(checkpoints: Checkpoints) -> None:
    manifest = save_checkpoint(checkpoints, 10)
    (checkpoints.folder_of(10) / worker_file(2)).unlink()
    checkpoints.commit(make_manifest(10, files=dict(manifest.files), workers=[1, 2], elsewhere=[2]))
    assert newest_iteration(checkpoints) == 10


def test_a_checkpoint_of_a_newer_mdgan_is_refused_and_not_passed_over(
    checkpoints: Checkpoints,
) -> None:
    for iteration in (10, 20):
        save_checkpoint(checkpoints, iteration)
    path = checkpoints.folder_of(20) / "manifest.json"
    record = {**json.loads(path.read_bytes()), "format": 3, "version": "9.1.0"}
    path.write_bytes(sealed(record))
    with pytest.raises(BadInput, match=r"0000020: written in format 3 by mdgan 9\.1\.0.*update"):
        checkpoints.newest()


def test_a_commit_clears_what_interrupted_ones_left(
    tmp_path: Path, checkpoints: Checkpoints
) -> None:
    save_checkpoint(checkpoints, 10)
    write_state(checkpoints.folder_of(15), SERVER_FILE, make_state())
    (checkpoints.folder_of(15) / ".worker-0001.safetensors.77.tmp").write_bytes(b"half")
    (checkpoints.folder_of(10) / ".manifest.json.77.tmp").write_bytes(b"half")
    assert newest_iteration(checkpoints) == 10
    save_checkpoint(checkpoints, 20)
    assert {name.partition("/")[0] for name in all_files(checkpoints.folder_of(0).parent)} == {
        "0000010",
        "0000020",
    }
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_future_that_was_given_up_goes(checkpoints: Checkpoints) -> None:
    """The newest is damaged, so training goes on from the one before, as a later generation."""
    for iteration in (10, 20, 30):
        save_checkpoint(checkpoints, iteration)
    _spoil(SERVER_FILE, _flip)(checkpoints.folder_of(30))
    save_checkpoint(checkpoints, 25, generation=2)
    assert checkpoints.committed() == [10, 20, 25]
    assert not checkpoints.folder_of(30).exists()


def test_files_that_a_newer_server_may_be_writing_stay(checkpoints: Checkpoints) -> None:
    write_state(checkpoints.folder_of(30), SERVER_FILE, make_state())
    save_checkpoint(checkpoints, 20)
    assert (checkpoints.folder_of(30) / SERVER_FILE).exists()


@pytest.mark.parametrize("iteration", [15, 20, 25])
def test_an_old_server_cannot_commit_after_a_new_one(
    checkpoints: Checkpoints, iteration: int
) -> None:
    save_checkpoint(checkpoints, 10, generation=1)
    save_checkpoint(checkpoints, 20, generation=2)
    with pytest.raises(Fenced, match="generation 2 has taken over"):
        checkpoints.commit(make_manifest(iteration, generation=1))
    assert checkpoints.committed() == [10, 20]
    assert newest_iteration(checkpoints) == 20


def test_an_incomplete_checkpoint_is_discarded_and_a_whole_one_is_not(
    checkpoints: Checkpoints,
) -> None:
    save_checkpoint(checkpoints, 10)
    write_state(checkpoints.folder_of(20), SERVER_FILE, make_state())
    for iteration in (10, 20, 30):
        checkpoints.discard(iteration)
    assert not checkpoints.folder_of(20).exists()
    assert newest_iteration(checkpoints) == 10


def test_foreign_files_are_left_alone(tmp_path: Path, checkpoints: Checkpoints) -> None:
    folder = checkpoints.folder_of(0).parent
    (folder / "notes").mkdir(parents=True)
    (folder / "0000005").write_bytes(b"a file")
    for iteration in (10, 20, 30, 40):
        save_checkpoint(checkpoints, iteration)
    assert (folder / "notes").is_dir()
    assert (folder / "0000005").read_bytes() == b"a file"


def make_worker_files(checkpoints: Checkpoints, *iterations: int, worker: int = 3) -> None:
    for iteration in iterations:
        write_state(checkpoints.folder_of(iteration), worker_file(worker), make_state(iteration))


def test_a_worker_removes_its_own_files_alone(checkpoints: Checkpoints) -> None:
    make_worker_files(checkpoints, 10, 20, 30, 40, 50, 60)
    make_worker_files(checkpoints, 10, worker=4)
    (checkpoints.folder_of(20) / ".worker-0003.safetensors.9.tmp").write_bytes(b"half")
    checkpoints.prune_worker(3, kept=[30], current=60)
    # 40 and 50 may be about to be committed.
    assert all_files(checkpoints.folder_of(0).parent) == {
        "0000010/worker-0004.safetensors",
        *(f"00000{iteration}/worker-0003.safetensors" for iteration in (30, 40, 50, 60)),
    }
    assert not checkpoints.folder_of(20).exists()


def test_a_worker_keeps_a_bounded_number_when_its_server_commits_nothing(
    checkpoints: Checkpoints,
) -> None:
    for iteration in range(10, 200, 10):
        make_worker_files(checkpoints, iteration)
        checkpoints.prune_worker(3, kept=[], current=iteration)
    assert len(all_files(checkpoints.folder_of(0).parent)) == 3


def test_a_state_is_found_wherever_it_lies(checkpoints: Checkpoints) -> None:
    make_worker_files(checkpoints, 10, 20)
    stored = write_state(checkpoints.folder_of(10), worker_file(3), make_state(7))
    for iteration in (10, 20, 30):
        result = checkpoints.find(iteration, stored)
        assert result is not None
        assert equal_states(result, make_state(7))
    _spoil(worker_file(3), _flip)(checkpoints.folder_of(10))
    assert checkpoints.find(10, stored) is None
