"""A page that is written while its run goes on, and what the server gives to whom."""

import http.client
import re
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mdgan.errors import BadInput
from mdgan.report import live as module
from mdgan.report.build import Report
from mdgan.report.live import keep_writing
from tests.unit.observe.run_files import RunFiles


class Pages:
    """Writes a page of few words instead of a report, and tells what was written."""

    def __init__(self, run: RunFiles) -> None:
        self.run = run
        self.written: list[str] = []
        self.path = run.path / "report.html"

    def write(self) -> Report:
        state = re.findall(r'"state": "(\w+)"', (self.run.path / "run.json").read_text())[0]
        self.written.append(state)
        self.path.write_text(f"page {len(self.written)}, {state}")
        return Report(self.path, 17, {}, (), state in ("starting", "running"))


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(RunFiles(tmp_path / "run"))


def test_it_writes_what_is_new_until_the_run_is_over(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="mdgan")
    meanwhile = [
        lambda: pages.run.losses(10, 1.0, 0.5, 1.5),
        lambda: None,  # nothing new: it looks again, and writes nothing
        lambda: None,
        lambda: pages.run.status("finished", 1000, 9.0),
    ]
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        meanwhile.pop(0)()

    monkeypatch.setattr("mdgan.report.live.time.sleep", sleep)
    keep_writing([pages.run.path], pages.write, 30.0, None)
    assert pages.written == ["running", "running", "finished"]
    assert waits == [30.0, 30.0, 1.0, 1.0]
    assert [record.getMessage() for record in caplog.records] == [
        f"{pages.path}: 17 figures",
        "written again every 30 s until the run ends; Ctrl-C ends this",
        f"the run is over; {pages.path} is complete",
    ]


def test_of_a_run_that_is_over_there_is_one_page(pages: Pages) -> None:
    pages.run.status("finished", 1000, 9.0)
    keep_writing([pages.run.path], pages.write, 30.0, None)
    assert pages.written == ["finished"]


def test_ctrl_c_ends_it_without_an_error(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mdgan.report.live.time.sleep", lambda _: signal.raise_signal(signal.SIGINT)
    )
    keep_writing([pages.run.path], pages.write, 30.0, 0)
    assert pages.written == ["running"]


@pytest.fixture
def port(pages: Pages) -> Iterator[int]:
    """Where a page is served."""
    pages.write()
    with module._serving(pages.path, 0) as address:
        yield int(address.rstrip("/").rpartition(":")[2])


def ask(port: int, method: str, path: str, *hosts: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.putrequest(method, path, skip_host=True)
    for host in hosts or (f"127.0.0.1:{port}",):
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.read(), dict(answer.getheaders())
    connection.close()
    return found


def test_the_page_is_served_as_it_is_now(pages: Pages, port: int) -> None:
    for path in ("/", "/report.html", "/?again"):
        status, content, headers = ask(port, "GET", path)
        assert (status, content) == (200, b"page 1, running")
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        assert headers["Cache-Control"] == "no-store"
    pages.write()
    assert ask(port, "GET", "/", f"localhost:{port}")[1] == b"page 2, running"
    pages.path.unlink()
    assert ask(port, "GET", "/")[0] == 503


def test_nothing_else_is_served(port: int) -> None:
    paths = ("/run.json", "/../run.json", "//etc/passwd", "/report.html/", "*", "/%2e%2e/run.json")
    for path in paths:
        status, content, _ = ask(port, "GET", path)
        assert status == 404, path
        assert b"running" not in content


def test_who_names_another_host_gets_nothing(port: int) -> None:
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", ""):
        status, content, _ = ask(port, "GET", "/", host)
        assert status == 421, host
        assert b"page" not in content
    ours = f"127.0.0.1:{port}"
    assert ask(port, "GET", "/", ours, "evil.example")[0] == 421
    for method in ("HEAD", "POST", "OPTIONS"):
        assert ask(port, method, "/")[0] == 501


def test_a_client_that_says_nothing_keeps_nobody_waiting(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)):
        assert ask(port, "GET", "/")[0] == 200


def test_a_port_that_is_taken_is_named(pages: Pages) -> None:
    threads = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(BadInput, match=f"^--serve {number}: cannot listen on 127.0.0.1"):
            keep_writing([pages.run.path], pages.write, 30.0, number)
    assert threading.active_count() <= threads
