"""NVFlare's try-out: a server and three sites as processes of this machine, and its admin."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.processes import REPOSITORY, environment, kill_at_one_blow, run

STUDY = {"dataset": "digits", "world_size": 4, "iterations": 30, "seed": 3, "threads": 1}
ADMIN = "admin@nvidia.com"


_ADMIN_PROGRAM = """
import os, sys, time
from nvflare.fuel.flare_api.flare_api import new_secure_session
admin, folder, job, abort = sys.argv[1:]
session = new_secure_session(admin, folder, timeout=300)
if not job:
    while len(session.get_connected_client_list()) < 3:
        time.sleep(1)
else:
    number = session.submit_job(job)
    while not (status := session.get_job_meta(number)["status"]).startswith("FINISHED"):
        if os.path.exists(abort):
            os.remove(abort)
            session.abort_job(number)
        time.sleep(1)
    print(status)
    print(session.download_job_result(number))
session.close()
"""
"""Waits for the sites, or runs a job, and aborts it once there is a file `abort`.

Where warnings are errors NVFlare cannot log in.
"""


class Poc:
    """NVFlare's try-out, and what its admin does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = folder / "poc" / "example_project" / "prod_00"

    def command(self, *command: str, to: str = "output.txt") -> str:
        """Runs a program to its end; returns what it prints, which also goes into a file."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        changes = {"NVFLARE_POC_WORKSPACE": f"{self.folder}/poc", "PYTHONPATH": str(REPOSITORY)}
        variables = environment(PATH=path, OMP_NUM_THREADS="1", **changes)
        output = self.folder / to  # no pipe: what it starts would hold that open
        with output.open("wb") as file:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file}
            subprocess.run(
                command, cwd=self.folder, env=variables, timeout=600, check=True, **streams
            )
        return output.read_text()

    def poc(self, *arguments: str) -> None:
        self.command(str(Path(sys.executable).parent / "nvflare"), "poc", *arguments)

    def admin(self, job: str = "") -> list[str]:
        own = [ADMIN, str(self.parts / ADMIN), job, str(self.folder / "abort")]
        return self.command(sys.executable, "-c", _ADMIN_PROGRAM, *own).splitlines()

    def site(self, name: str, **settings: Any) -> Path:
        """Writes the files of a site, or of the server, as docs/nvflare.md tells their owner to."""
        local = self.parts / name / "local"
        part = "server.JobServer" if name == "server" else "site.JobSite"
        default = (local / "resources.json.default").read_text()
        # Servers of one machine would else share their jobs, and take those of others for lost.
        allowed = json.loads(default.replace("/tmp/nvflare", f"{self.folder}/{name}"))
        allowed.setdefault("class_allow_list", []).append(f"mdgan.nvflare.{part}")
        allowed["allow_log_streaming"] = False
        (local / "resources.json").write_text(json.dumps(allowed))
        rules = json.loads((local / "authorization.json.default").read_text())
        roles = rules["permissions"]
        for role, rights in roles.items():
            granted = dict.fromkeys(roles["lead"], "any") if rights == "any" else rights
            roles[role] = {**granted, "byoc": "none"}
        (local / "authorization.json").write_text(json.dumps(rules))
        credentials = str(self.folder / "authority" / f"{name}.cred")
        file = local / "mdgan.json"
        file.write_text(json.dumps({"credentials": credentials, **settings}))
        return file

    def runs(self, name: str) -> Path:
        """The folder in which a site, or the server, keeps what mdgan writes."""
        return self.parts / name / "local" / "mdgan-runs"

    def make_job(self, name: str, **changes: Any) -> Path:
        """Writes a study, and its job."""
        study = self.folder / f"{name}.json"
        study.write_text(json.dumps({**STUDY, **changes}))
        made = run("job", "nvflare", study.name, "-o", name, cwd=self.folder)
        assert made.status == 0, made.errors
        return self.folder / name

    def submit(
        self, job: Path, meanwhile: Callable[[], object] | None = None
    ) -> tuple[str, str, Path]:
        """Runs a job; returns its status, its log and what was downloaded.

        Args:
            meanwhile: what happens beside the job, which is aborted afterwards.
        """

        def act() -> None:
            try:
                if meanwhile is not None:
                    meanwhile()
            finally:
                if meanwhile is not None:
                    (self.folder / "abort").touch()

        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(act)
            status, result = self.admin(str(job))[-2:]
            done.result()
        workspace = Path(result) / "workspace"
        return status, (workspace / "log.txt").read_text(), workspace

    def run_job(self, name: str, **changes: Any) -> tuple[str, str, Path]:
        """Makes and runs a job, as `submit`."""
        return self.submit(self.make_job(name, **changes))


@contextmanager
def started(folder: Path) -> Iterator[Poc]:
    """Starts a server and three sites, each with a certificate of the study, and stops them."""
    poc = Poc(folder)
    poc.poc("prepare", "-n", "3")
    assert run("credentials", "init", "authority", cwd=poc.folder).status == 0
    whose = {"server": ["--role", "server"]} | {f"site-{n}": ["--ranks", f"{n}"] for n in (1, 2, 3)}
    for name, flags in whose.items():
        issued = run("credentials", "issue", "authority", name, *flags, cwd=poc.folder)
        assert issued.status == 0, issued.errors
        poc.site(name)
    try:
        for name in whose:  # `nvflare poc start` has other flags in other versions
            start = poc.parts / name / "startup" / "start.sh"
            poc.command("bash", str(start), to=f"{name}.txt")
        poc.admin()
        yield poc
    finally:
        try:
            poc.poc("stop")
        finally:
            kill_at_one_blow(list(processes_of(folder)))


def processes_of(folder: Path) -> Iterator[psutil.Process]:
    """The processes of NVFlare in a folder, and what they have started."""
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if f"{folder}/poc/" in " ".join(process.cmdline()):
                yield process
