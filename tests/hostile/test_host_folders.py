"""A server names its run like another run, of which this machine has a folder."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from mdgan.credentials.files import write_shared
from mdgan.credentials.identity import read_credentials
from mdgan.errors import BadInput
from mdgan.launch.claim import host_folder, run_key
from mdgan.storage.checkpoints import Checkpoints, worker_file
from mdgan.storage.state_file import write_state
from tests.claims.registry import claim
from tests.processes import MDGAN, QUICK, ended_well, finish, read_status, start, wait_until
from tests.unit.launch.test_links import DAY

TRAIN = [*MDGAN, "train", "--world-size", "2", *QUICK, "--checkpoint-interval", "6"]
ID = "5" * 32


def train(server: Path, host: Path, iterations: int, *run: str) -> bytes:
    """A server and its host, each in its own folder, as on two machines; the generator."""
    flags = ["--iterations", str(iterations)]
    status = server / "victim" / "run.json"
    before = read_status(status.parent).get("listens") if status.exists() else None
    serving = start([*TRAIN, *flags, "--ranks", "0", "--listen", "127.0.0.1:0", *run], server)
    wait_until(
        lambda: (
            serving.poll() is not None
            or (status.exists() and read_status(status.parent)["listens"] != before)
        ),
        "the server listens",
    )
    port = read_status(status.parent)["listens"].rpartition(":")[2]
    working = start([*TRAIN, *flags, "--ranks", "1", "--master-port", port], host)
    assert finish(working).status == 0
    return ended_well(finish(serving), status.parent, iterations)


def content(folder: Path) -> Mapping[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@claim("host-settings", "and reaches no folder of another run")
def test_a_server_touches_no_folder_of_another_run(tmp_path: Path) -> None:
    """The host finds its own states again, also where versions before this one wrote them."""
    server, host = tmp_path / "server", tmp_path / "host"
    server.mkdir()
    mine = host / "runs" / "victim"
    for number in (6, 12):
        folder = mine / "checkpoints" / f"{number:07d}"
        folder.mkdir(parents=True)
        (folder / worker_file(1)).write_bytes(b"mine")
    before = content(mine)
    train(server, host, 6, "--out", "victim")
    assert content(mine) == before
    (theirs,) = (path for path in (host / "runs").iterdir() if path != mine)
    assert theirs.name.startswith("victim-")
    assert "checkpoints/0000006/worker-0001.safetensors" in content(theirs)

    for copy in ("again", "old"):
        shutil.copytree(server, tmp_path / f"server-{copy}")
        shutil.copytree(host, tmp_path / copy)
    generator = train(server, host, 12, "--resume", "victim")
    assert content(mine) == before
    shutil.rmtree(tmp_path / "old" / "runs" / "victim")
    (tmp_path / "old" / "runs" / theirs.name).rename(tmp_path / "old" / "runs" / "victim")
    kept = content(tmp_path / "old" / "runs" / "victim")
    assert train(tmp_path / "server-old", tmp_path / "old", 12, "--resume", "victim") == generator
    assert content(tmp_path / "old" / "runs" / "victim") == kept


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def welcome(name: object, **more: Any) -> dict[str, Any]:
    return {"run": name, "run_id": ID, "generation": 1, "iteration": 0, **more}


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../victim", "/etc", "a/..", "a\0", "a\nb", "\x1b[2J", "\ud800"]
)
@claim("host-settings", "and reaches no folder of another run")
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="give --out DIR") as caught:
        host_folder(welcome(name), (1,), None, None)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("run_id", [None, 7, "../..", "\0", {}, "x" * 10**6])
def test_an_id_that_is_none_leads_nowhere_else(run_id: object) -> None:
    result = host_folder(welcome("victim", run_id=run_id), (1,), None, None)
    assert result.parent == Path("runs")
    assert result.name.startswith("victim-")
    assert len(result.name) == len("victim-") + 16


def test_a_server_of_another_authority_gets_another_folder(tmp_path: Path) -> None:
    """Even if it has learnt the id, as a worker of the other run has."""
    results = set()
    for name in ("one", "other"):
        write_shared(tmp_path / name, DAY)
        identity = read_credentials(tmp_path / name)
        results |= {host_folder(welcome("victim"), (1,), identity, None) for _ in range(2)}
    assert len(results) == 2


def test_on_a_shared_disk_it_is_the_folder_of_the_server(tmp_path: Path) -> None:
    run = Path("runs", "victim")
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"run_id": ID, "run_key": run_key(ID, None)}))
    assert host_folder(welcome("victim"), (1,), None, None) == run
    assert host_folder(welcome("victim", run_id="6" * 32), (1,), None, None) != run
    assert host_folder(welcome("victim"), (1,), None, str(run)) == run
    with pytest.raises(BadInput, match="--out runs/victim: has another run in it"):
        host_folder(welcome("victim", run_id="6" * 32), (1,), None, str(run))


@pytest.mark.parametrize("files", [None, {}, {"1": None}, {"1": {"name": "../../x"}}, 7])
def test_a_checkpoint_that_is_none_brings_nothing(files: object) -> None:
    Path("runs", "victim", "checkpoints", "0000006").mkdir(parents=True)
    told = welcome("victim", checkpoint={"iteration": 6, "files": files})
    assert not host_folder(told, (1,), None, None).exists()


def test_states_of_another_run_are_not_taken_for_ours() -> None:
    """They lie where an older version would have written ours, and are not what was written."""
    folder = Checkpoints(Path("runs", "victim", "checkpoints"), 1).make_folder_of(6)
    seen = Path("runs", "victim", "canaries", "1.json")
    seen.parent.mkdir()
    seen.write_bytes(b"{}")
    seen.chmod(0o600)
    stored = write_state(folder, worker_file(1), {"weight": torch.ones(3)})
    other = {**stored.as_record(), "sha256": "0" * 64}
    for record, is_brought in ((other, False), (stored.as_record(), True)):
        told = welcome("victim", checkpoint={"iteration": 6, "files": {"1": record}})
        own = host_folder(told, (1,), None, None)
        assert bool(content(own)) is is_brought
    assert {Path(name).name for name in content(own)} == {worker_file(1), "1.json"}
    assert (own / "canaries" / "1.json").stat().st_mode & 0o777 == 0o600
