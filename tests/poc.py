"""NVFlare's try-out: a server and three sites as processes of this machine, and its admin."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.processes import REPOSITORY, environment, run

STUDY = {"dataset": "digits", "world_size": 4, "iterations": 30, "seed": 3, "threads": 1}
ADMIN = "admin@nvidia.com"


_ADMIN_PROGRAM = """
import sys, time
from nvflare.fuel.flare_api.flare_api import new_secure_session
admin, folder, job = sys.argv[1:]
session = new_secure_session(admin, folder, timeout=120)
if not job:
    while len(session.get_connected_client_list()) < 3:
        time.sleep(1)
else:
    number = session.submit_job(job)
    while not (status := session.get_job_meta(number)["status"]).startswith("FINISHED"):
        time.sleep(1)
    print(status)
    print(session.download_job_result(number))
session.close()
"""
"""Waits for the sites, or runs a job. Where warnings are errors NVFlare cannot log in."""


class Poc:
    """NVFlare's try-out, and what its admin does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = folder / "poc" / "example_project" / "prod_00"

    def command(self, *command: str) -> str:
        """Runs a program to its end; returns what it prints."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        changes = {"NVFLARE_POC_WORKSPACE": f"{self.folder}/poc", "PYTHONPATH": str(REPOSITORY)}
        variables = environment(PATH=path, OMP_NUM_THREADS="1", **changes)
        output = self.folder / "output.txt"  # no pipe: what it starts would hold that open
        with output.open("wb") as file:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file}
            subprocess.run(
                command, cwd=self.folder, env=variables, timeout=600, check=True, **streams
            )
        return output.read_text()

    def poc(self, *arguments: str) -> None:
        self.command(str(Path(sys.executable).parent / "nvflare"), "poc", *arguments)

    def admin(self, job: str = "") -> list[str]:
        program = [sys.executable, "-c", _ADMIN_PROGRAM, ADMIN, str(self.parts / ADMIN), job]
        return self.command(*program).splitlines()

    def site(self, name: str, **settings: Any) -> Path:
        """Writes the file of a site, or of the server."""
        local = self.parts / name / "local"
        allowed = json.loads((local / "resources.json.default").read_text())
        allowed.setdefault("class_allow_list", []).append("mdgan.nvflare.")
        (local / "resources.json").write_text(json.dumps(allowed))
        credentials = str(self.folder / "authority" / f"{name}.cred")
        file = local / "mdgan.json"
        file.write_text(json.dumps({"credentials": credentials, **settings}))
        return file

    def run_job(self, name: str, **changes: Any) -> tuple[str, str, Path]:
        """Makes and runs a job; returns its status, its log and what was downloaded."""
        study = self.folder / f"{name}.json"
        study.write_text(json.dumps({**STUDY, **changes}))
        made = run("job", "nvflare", study.name, "-o", name, cwd=self.folder)
        assert made.status == 0, made.errors
        status, result = self.admin(str(self.folder / name))[-2:]
        workspace = Path(result) / "workspace"
        return status, (workspace / "log.txt").read_text(), workspace


@contextmanager
def started(folder: Path) -> Iterator[Poc]:
    """Starts a server and three sites, each with a certificate of the study, and stops them."""
    poc = Poc(folder)
    poc.poc("prepare", "-n", "3")
    assert run("credentials", "init", "authority", cwd=poc.folder).status == 0
    for name in ("server", "site-1", "site-2", "site-3"):
        role = "server" if name == "server" else "worker"
        issue = ["credentials", "issue", "authority", name, "--role", role]
        assert run(*issue, cwd=poc.folder).status == 0
        poc.site(name)
    poc.poc("start", "--no-wait")
    try:
        poc.admin()
        yield poc
    finally:
        poc.poc("stop")
