"""Other versions of mdgan meet this one: in a run, and as the writer of a run."""

import json
import re
import sys
from pathlib import Path

import pytest

from mdgan.version import SERIES, __version__
from tests.claims.registry import claim
from tests.processes import (
    QUICK,
    check_refused,
    finish,
    free_port,
    read_status,
    run,
    run_here,
    start,
)

FIRST, SECOND = map(int, SERIES.split("."))
OF_ANOTHER_VERSION = """
import sys, mdgan.version as version
version.__version__ = sys.argv.pop(1)
version.SERIES = ".".join(version.__version__.split(".")[:2])
from mdgan.cli import main
main(sys.argv[1:])
"""


def mdgan_of(version: str, *arguments: str) -> list[str]:
    """The command of a machine that has another version."""
    return [sys.executable, "-c", OF_ANOTHER_VERSION, version, *arguments]


def trio(port: int) -> list[str]:
    return [*QUICK, "--master-port", str(port), "--world-size", "3"]


@claim("versions", "1.0.0 and 1.0.3 train together")
@claim("exits", "0 done, 1 failed")
def test_versions_that_differ_in_the_third_number_train_together(tmp_path: Path) -> None:
    port = free_port()
    hosts = mdgan_of(f"{SERIES}.93", "train", *trio(port), "--ranks", "1..2")
    waiting = start(hosts, tmp_path)
    server = run("train", *trio(port), "--ranks", "0", "--out", "run", cwd=tmp_path)
    assert (server.status, finish(waiting).status) == (0, 0), server
    assert read_status(tmp_path / "run")["version"] == __version__


@pytest.mark.parametrize("theirs", [f"{FIRST}.{SECOND + 1}", f"{FIRST + 1}.{SECOND}"])
@pytest.mark.parametrize("command", ["join", "train"])
@claim("versions", "1.0 and 1.1 do not: a line names both versions.")
@claim("exits", "1 failed, 2 refused")
def test_versions_that_differ_before_it_do_not(tmp_path: Path, theirs: str, command: str) -> None:
    port = free_port()
    patient = [*trio(port), "--set", "connect_timeout=60"]
    server = start(
        [sys.executable, "-m", "mdgan", "train", *patient, "--ranks", "0", "--out", "run"], tmp_path
    )
    flags = {"train": [*patient, "--ranks", "1"], "join": ["--master-port", str(port)]}
    host = finish(start(mdgan_of(f"{theirs}.0", command, *flags[command]), tmp_path))
    check_refused(host, theirs, SERIES, "install the same version on every machine")
    server.terminate()
    refusals = [line for line in finish(server).errors.splitlines() if "refused a host" in line]
    assert all(f"mdgan {theirs}" in line and f"mdgan {SERIES}" in line for line in refusals)
    assert refusals or command == "join"  # who joins refuses the run itself


@pytest.mark.parametrize("theirs", [f"{SERIES}.93", f"{FIRST}.{SECOND + 1}.0", f"{FIRST + 1}.0"])
@claim("later", "A run of a later version is refused.")
def test_runs_of_later_versions_are_refused(tmp_path: Path, theirs: str) -> None:
    flags = [*QUICK, "--dataset", "digits", "--transport", "memory", "--world-size", "3"]
    assert run_here("train", *flags, "--out", "run", cwd=tmp_path).status == 0
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": theirs}))
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    for command in (
        *(["report", "run"], ["evaluate", "run"], ["sample", "run", "-o", "x.png"]),
        *(["train", "--resume", "run"], ["watch", "run"], ["audit", "run"], ["release", "run"]),
    ):
        refused = run_here(*command, cwd=tmp_path)
        check_refused(refused, f"newer than this {__version__}", "update mdgan")
        assert re.search(rf"a run of mdgan {re.escape(theirs)}\b", refused.errors)
    assert before == {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
