"""The tutorial of three hospitals, with a process for each participant."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.test_readme import shell_lines
from tests.processes import (
    MDGAN,
    Finished,
    Process,
    finish,
    read_metrics,
    read_status,
    run_here,
    start,
    wait_until,
)
from tests.tutorials import TUTORIALS, blocks, not_said
from tests.unit.dataset_formats import write_image_folder

PAGE = TUTORIALS / "three-hospitals.md"
BEGUN, REVOKED = (block.text for block in blocks(PAGE) if not block.language)
RANKS = {"north": 1, "east": 2, "south": 3}
QUICK = ["--batch-size", "2", "--threads", "1", "--log-interval", "1", "--checkpoint-interval", "2"]
QUICK += ["--sample-interval", "0", "--eval-interval", "0", "--iterations"]


class Study:
    """Three hospitals, each in its own folder with scans and credentials, and the server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "study"
        lines = shell_lines(PAGE)
        self.credentials = [line for line in lines if line.startswith("mdgan credentials")]
        self.train, self.resume = [line for line in lines if line.startswith("mdgan train")]
        (self.join,) = [line for line in lines if line.startswith("mdgan join")]
        self.certify(*self.credentials[:-1])  # the last command revokes one
        for name, rank in RANKS.items():
            write_image_folder(folder / name / "scans", ["a"], 2 + rank, seed=rank)
            (folder / "authority" / f"{name}.cred").rename(folder / name / f"{name}.cred")

    def certify(self, *lines: str) -> None:
        """Runs commands of `mdgan credentials`."""
        for line in lines:
            assert run_here(*shlex.split(line)[1:], cwd=self.folder).status == 0

    def serve(self, line: str, *more: str) -> Process:
        """Starts the server, at a port that the system chooses, and waits until it listens."""
        words = shlex.split(line.replace("10.0.0.1", "127.0.0.1 --listen 127.0.0.1:0"))
        before = read_status(self.run)["process"] if self.run.exists() else 0
        server = start([*MDGAN, *words[1:], *more], self.folder)

        def listens() -> bool:
            known = read_status(self.run) if (self.run / "run.json").exists() else {}
            return server.poll() is not None or known.get("process", before) != before

        wait_until(listens, "a server")
        assert server.poll() is None, finish(server)
        return server

    def joins(self, hospitals: Sequence[str]) -> list[Process]:
        """Starts the command of step 3 at some hospitals."""
        port = read_status(self.run)["listens"].rpartition(":")[2]
        begun = []
        for name in hospitals:
            line = self.join.replace("north", name)
            line = line.replace("10.0.0.1", f"127.0.0.1 --master-port {port}")
            begun.append(start([*MDGAN, *shlex.split(line)[1:]], self.folder / name))
        return begun

    def stop(self, server: Process, hosts: Sequence[Process]) -> str:
        """Ctrl-C at the server, once an iteration is done; what it said."""
        done = len(read_metrics(self.run))
        wait_until(lambda: len(read_metrics(self.run)) > done, "iterations")
        server.terminate()
        return self.over([server, *hosts], (128 + 15, *[130] * len(hosts)))[0].errors

    def over(self, processes: Sequence[Process], statuses: Sequence[int]) -> list[Finished]:
        """All of them end."""
        results = [finish(process) for process in processes]
        assert [result.status for result in results] == list(statuses), results
        assert not any("Traceback" in result.errors for result in results)
        return results


@pytest.mark.slow
def test_three_hospitals_join_and_go_on_and_one_is_left_out(tmp_path: Path) -> None:
    study = Study(tmp_path)

    server = study.serve(study.train, *QUICK, "100000", "--log-file", "told.log")
    hosts = study.joins(["south"])
    told = tmp_path / "told.log"  # those who come together are told of together
    wait_until(lambda: told.exists() and " joined (" in told.read_text(), "one is told of")
    hosts += study.joins(["east", "north"])
    said = study.stop(server, hosts)
    assert not not_said(re.sub(r"\d[\d.:,]*", "…", BEGUN), said), "addresses and counts are others"

    server = study.serve(study.resume)  # each participant gives the same command again
    hosts = study.joins(["east", "south", "north"])
    study.stop(server, hosts)
    assert read_metrics(study.run)[-1]["workers"] == 3
    for name, rank in RANKS.items():
        before = {path.name for path in (tmp_path / name / "runs").glob("*/checkpoints/*/*")}
        assert {path.partition(".")[0] for path in before} == {f"worker-000{rank}"}, "its own rank"

    study.certify(study.credentials[-1])
    server = study.serve(study.resume, "--set", "connect_timeout=60")
    hosts = study.joins(["north", "east"])
    said = study.stop(server, hosts)
    assert not not_said(REVOKED, said)
    assert read_metrics(study.run)[-1]["workers"] == 2


@pytest.mark.slow
def test_a_hospital_that_does_not_come_is_left_out(tmp_path: Path) -> None:
    study = Study(tmp_path)
    server = study.serve(study.train, *QUICK, "100000")
    study.stop(server, study.joins([*RANKS]))
    server = study.serve(study.resume, "--set", "connect_timeout=15")
    said = study.stop(server, study.joins(["south"]))
    assert "rank(s) 3 joined (5 samples); waiting for rank(s) 1,2" in said
    assert "going on without rank(s) 1,2, which did not come within 15 s" in said
