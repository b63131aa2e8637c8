"""A study as a job of NVFlare: a server and three sites as processes of this machine."""

import json
import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from mdgan.data.find import shipped_folder
from mdgan.version import SERIES
from tests.claims.registry import claim
from tests.poc import Poc, started
from tests.processes import generator_bytes, read_metrics, run, wait_until

pytest.importorskip("nvflare")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TRACKER = {"id": "tb", "path": "nvflare.app_opt.tracking.tb.tb_receiver.TBAnalyticsReceiver"}
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5)
"""The first bytes of a client of HTTP/2, as gRPC's are: the preface, and empty settings."""
SITES = ("site-1", "site-2", "site-3")


@pytest.fixture(scope="module")
def poc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Poc]:
    with started(tmp_path_factory.mktemp("poc")) as poc:
        yield poc


def track(job: Path) -> None:
    """Adds a tracker to a job, as docs/nvflare.md says."""
    file = job / "app" / "config" / "config_fed_server.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "components": [TRACKER]}))


def tracked(result: Path) -> set[str]:
    """The names of the numbers that the tracker has received."""
    loading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    names: set[str] = set()
    for file in result.rglob("events.out.tfevents.*"):
        names |= set(loading.EventAccumulator(str(file)).Reload().Tags()["scalars"])
    return names


@claim("nvflare-checkpoints", "Checkpoints stay at the server.")
@claim(
    "nvflare-lines",
    "NVFlare's log of a site has no line of mdgan's process, and a site that fails answers with "
    "one line, without folders and values of samples.",
)
@claim("nvflare-approved", "A site refuses any study whose hash is not in approved")
def test_sites_that_approve_a_program_give_the_generator_of_one_command(poc: Poc) -> None:
    (poc.folder / "mine").mkdir()
    shutil.copy(shipped_folder() / "digits.py", poc.folder / "mine" / "own.py")
    job = poc.make_job("own", dataset="own", datasets_dir="mine", eval_interval=15)
    track(job)
    for name in ("server", *SITES):
        poc.site(name, approved=[])
    for name in ("server", "site-1", "site-3"):
        file = str(poc.parts / name / "local" / "mdgan.json")
        assert run("approve", str(job), "--site", file, cwd=poc.folder).status == 0
    status, log, _ = poc.submit(job)
    assert status != "FINISHED:COMPLETED"
    assert "site-2: the study with hash" in log
    file = str(poc.parts / "site-2" / "local" / "mdgan.json")
    assert run("approve", str(job), "--site", file, cwd=poc.folder).status == 0
    status, log, result = poc.submit(job)
    assert status == "FINISHED:COMPLETED", log
    assert "done: 30 of 30 iterations" in log
    alone = run("train", "--config", "own.json", "--out", "alone", cwd=poc.folder)
    assert alone.status == 0, alone.errors
    assert generator_bytes(result / "mdgan") == generator_bytes(poc.folder / "alone")
    assert (result / "mdgan" / "report.html").is_file()
    assert not (result / "mdgan" / "checkpoints").exists()
    assert {"loss/generator", "scores/fid"} <= tracked(result)
    for name in SITES:
        (own,) = poc.runs(name).glob("*.log")
        lines = [line.partition(" INFO ")[2].strip() for line in own.read_text().splitlines()]
        assert len(lines) > 3
        streamed = "".join(x.read_text() for x in (poc.parts / name).glob("*/log.txt"))
        assert own.name in streamed
        assert not [line for line in lines if line and line in streamed]


def hosts_of(poc: Poc, name: str) -> list[psutil.Process]:
    """The process that a site's job has started, and then that of its rank."""
    file = str(poc.parts / name / "local" / "mdgan.json")
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if "--site" in (command := process.cmdline()) and file in command:
                found.append(process)
    return sorted(found, key=lambda process: process.create_time())


def answers_of_the_port(poc: Poc) -> list[bytes]:
    """What NVFlare's port answers to machines without a certificate of NVFlare."""
    service = json.loads((poc.parts / "server" / "startup" / "fed_server.json").read_text())
    place = ("127.0.0.1", int(service["servers"][0]["service"]["target"].rpartition(":")[2]))
    answers = []
    for name in (None, *poc.folder.glob("authority/*.cred")):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        if name is not None:
            context.load_cert_chain(name)
        end = socket.create_connection(place, 10)
        with end, suppress(OSError), context.wrap_socket(end) as link:
            link.sendall(HTTP2)
            answers.append(link.recv(1 << 16))
    with socket.create_connection(place, 10) as end, suppress(OSError):
        end.sendall(HTTP2)
        answers.append(end.recv(1 << 16))
    return answers


@claim("nvflare-killed", "nothing: the site starts it again, up to ten times")
@claim("nvflare-outsider", "Without a certificate of NVFlare a machine gets no answer at its port.")
def test_a_killed_worker_comes_back_an_outsider_is_refused_and_an_aborted_job_goes_on(
    poc: Poc,
) -> None:
    for name in ("server", *SITES):
        poc.site(name)
    job = poc.make_job("long", iterations=1_000_000, checkpoint_interval=5, seed=5)
    reached = [0]

    def last_of_the_run() -> int:
        (folder,) = [x.parent for x in poc.runs("server").glob("digits-*/run.json")] or [Path("/-")]
        return max((each["iteration"] for each in read_metrics(folder)), default=0)

    def goes_on() -> None:
        before = max(reached[0], last_of_the_run())
        wait_until(lambda: last_of_the_run() > before + 20, "iterations", 300)
        reached[0] = last_of_the_run()

    def trouble() -> None:
        wait_until(lambda: last_of_the_run() > 20, "first iterations", 300)
        assert not any(answers_of_the_port(poc))
        goes_on()
        kill(0)  # the site's process
        kill(-1)  # that of its rank

    def kill(number: int) -> None:
        times = times_joined(2)
        hosts_of(poc, "site-2")[number].kill()
        wait_until(lambda: times_joined(2) > times, "the killed rank again", 300)
        goes_on()

    def times_joined(rank: int) -> int:
        (file,) = poc.runs("server").glob("digits-*/audit-log.jsonl")
        records = [json.loads(line) for line in file.read_text().splitlines()]
        return sum((x["outcome"], x["ranks"]) == ("let in", [rank]) for x in records)

    status, log, _ = poc.submit(job, trouble)
    assert status == "FINISHED:ABORTED", log
    status, log, _ = poc.submit(job, goes_on)
    assert status == "FINISHED:ABORTED", log
    assert "resum" in log


def test_what_keeps_a_job_from_running_is_a_line_in_its_log(poc: Poc) -> None:
    job = poc.make_job("other", seed=6)
    file = job / "app" / "config" / "asked.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "version": "0.1"}))
    status, log, _ = poc.submit(job)
    assert status != "FINISHED:COMPLETED"
    here = f"and here is {SERIES}; install the same version at the server and all sites"
    assert f"the job is for mdgan 0.1, {here}" in log
    status, log, _ = poc.run_job("more", seed=4, world_size=5)
    assert status != "FINISHED:COMPLETED"
    assert "the study has 4 workers, and 3 sites take part" in log
    file = poc.site("site-2", ranks="1")  # of another site
    status, log, _ = poc.run_job("greedy", seed=4)
    assert status != "FINISHED:COMPLETED"
    assert "site-2: mdgan.json: says ranks, and a site has one worker; leave them out" in log
    assert str(file.parent) not in log
