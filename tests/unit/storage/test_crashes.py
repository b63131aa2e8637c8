"""A server that is killed at any moment of a commit finds a whole checkpoint afterwards."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Forks: importing torch once for each kill would take the time of a hundred kills.
KILLS = """
import itertools, json, os, random, signal, sys, time
from pathlib import Path
import torch
from mdgan.storage.checkpoints import SERVER_FILE, Checkpoints, worker_file
from mdgan.storage.manifest import Manifest
from mdgan.storage.state_file import read_state, write_state

torch.set_num_threads(1)
checkpoints = Checkpoints(Path(sys.argv[1]) / "checkpoints", keep=2)
rounds, seed = int(sys.argv[2]), int(sys.argv[3])

def save(iteration, generation):
    folder = checkpoints.folder_of(iteration)
    state = {"iteration": torch.full((5000,), iteration)}
    files = {"server": write_state(folder, SERVER_FILE, state)}
    files["1"] = write_state(folder, worker_file(1), state)
    checkpoints.prune_worker(1, checkpoints.committed(), iteration)
    checkpoints.commit(Manifest(
        iteration=iteration, generation=generation, progress={}, seconds=0.0,
        workers=(1,), files=files, elsewhere=(), settings={}, version="1"))

random.seed(seed)
begin = time.monotonic()
for iteration in range(1, 6):
    save(iteration, 1)
one_save = (time.monotonic() - begin) / 5
told, generation = 5, 1
newest, interrupted = [], 0
while generation <= rounds or interrupted <= rounds // 10:  # some must be interrupted
    generation += 1
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        for iteration in itertools.count(told + 1):
            save(iteration, generation)
            os.write(writer, b"%d\\n" % iteration)
    os.close(writer)
    with open(reader) as pipe:
        # Some commits are waited for, so that there are some however slow the disk is.
        committed = [told, *(int(pipe.readline()) for _ in range(generation % 3))]
        time.sleep(random.uniform(0, 2 * one_save))  # the moment of the kill is what is drawn here
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        committed += map(int, pipe)
    manifest, passed_over = checkpoints.newest()
    assert manifest is not None, (seed, passed_over)
    # Nothing that was committed is lost; the one after may just have been.
    assert manifest.iteration in (committed[-1], committed[-1] + 1), (seed, manifest, committed)
    assert all("has no manifest" in why for why in passed_over), (seed, passed_over)
    for stored in manifest.files.values():
        state = read_state(checkpoints.folder_of(manifest.iteration), stored)
        assert state["iteration"].eq(manifest.iteration).all()
    leftovers = [path.name for path in checkpoints.folder_of(0).parent.rglob("*.tmp")]
    assert all(name.startswith(".") for name in leftovers)
    interrupted += bool(leftovers or passed_over)
    told = manifest.iteration
    newest.append(told)
save(told + 1, generation + 1)
folder = checkpoints.folder_of(0).parent
print(json.dumps({
    "newest": newest,
    "interrupted": interrupted,
    "left": sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()),
}))
"""


@pytest.mark.parametrize("rounds", [15, pytest.param(400, marks=pytest.mark.slow)])
def test_killed_at_any_moment(tmp_path: Path, rounds: int) -> None:
    command = [sys.executable, "-c", KILLS, str(tmp_path), str(rounds), str(rounds)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert result["newest"] == sorted(result["newest"])
    assert result["newest"][-1] >= 5 + rounds, "some commits were made"
    last = result["newest"][-1] + 1
    committed = {name.partition("/")[0] for name in result["left"] if "manifest" in name}
    assert len(committed) == 2
    assert result["left"] == sorted(
        f"{name}/{file}"
        for name in committed
        for file in ("manifest.json", "server.safetensors", "worker-0001.safetensors")
    )
    assert f"{last:07d}" in committed
