"""Where reports are written, also during a run, and which files are served to whom."""

import csv
import http.client
import json
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from mdgan.errors import BadInput
from mdgan.report import compose
from mdgan.report import live as module
from mdgan.report.build import Report, write_report
from mdgan.report.live import keep_writing
from tests.unit.observe.fake_run import FakeRun
from tests.unit.observe.run_files import RunFiles


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages have empty drawings, which take no time; other tests look at full ones."""
    monkeypatch.setattr(compose, "inline_svg", lambda *_: "<svg></svg>")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return FakeRun(workers=2, iterations=5, sample_interval=5).write(tmp_path / "run")


@pytest.mark.usefixtures("undrawn")
def test_the_report_of_one_run_lies_in_its_folder(run: Path) -> None:
    report = write_report([run])
    assert report.path == run / "report.html"
    assert report.path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert report.num_figures == 6
    assert report.missing["scores"] == "no scores are recorded (mdgan evaluate adds some)"
    assert not report.running
    assert report.damage == ()


@pytest.mark.slow
def test_figures_are_also_files(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "figures"
    report = write_report([run], figures=folder, all_files=True)
    names = {path.stem for path in folder.iterdir()}
    assert len(names) > report.num_figures
    pictures = {name for name in names if name.startswith("samples-iteration-")}
    assert pictures == {"samples-iteration-5"}
    drawn = {path.stem for path in folder.glob("*.pdf")}
    assert {path.name for path in folder.iterdir() if path.suffix not in (".csv", ".png")} == {
        f"{name}.{ending}" for name in drawn for ending in ("pdf", "svg")
    }
    assert names - pictures == {path.stem for path in folder.glob("*.csv")} | drawn
    assert (folder / "losses.pdf").read_bytes().startswith(b"%PDF-")
    with (folder / "losses.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [float(row["value"]) for row in rows if row["drawing"] == "generator"] == pytest.approx(
        [row["generator_loss"] for row in logged if "generator_loss" in row]
    )
    with (folder / "duration-operations-server.csv").open(newline="") as file:
        assert float(next(csv.reader([*file][1:]))[3]) > 0
    with Image.open(folder / "duration.png") as picture:
        assert picture.width == 800
    assert (folder / "losses.svg").read_bytes().startswith(b"<?xml")
    own = run / "samples" / "0000005.png"
    assert (folder / "samples-iteration-5.png").read_bytes() == own.read_bytes()


def test_a_paper_gets_one_pdf_and_one_csv_a_drawing(run: Path, tmp_path: Path) -> None:
    write_report([run], figures=tmp_path / "figures")
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    drawn = {name.removesuffix(".pdf") for name in names if name.endswith(".pdf")}
    assert {"losses", "duration", "bytes-server"} <= drawn
    assert {f"{name}.csv" for name in drawn} <= names
    assert not [name for name in names if name.endswith(".svg")]
    assert {name[:8] for name in names if name.endswith(".png")} == {"samples-"}


@pytest.mark.slow
def test_several_runs_are_told_apart_and_the_report_lies_here(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = FakeRun(workers=0, iterations=5).write(tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    report = write_report([run, other], figures=tmp_path / "figures", all_files=True)
    assert report.path == Path("report.html")
    assert (tmp_path / "report.html").exists()
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"timeline-2-workers.png", "timeline-one-iteration-standalone.svg"} <= names
    assert "losses.svg" in names


@pytest.mark.usefixtures("undrawn")
def test_a_folder_of_runs_stands_for_those_that_are_in_it(run: Path, tmp_path: Path) -> None:
    FakeRun(workers=0, iterations=5).write(tmp_path / "another")
    (tmp_path / "no run").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{")
    report = write_report([tmp_path])
    assert report.path == tmp_path / "report.html"
    page = report.path.read_text(encoding="utf-8")
    assert "2 runs" in page
    assert [line[:10] for line in report.damage] == ["left out: "]
    assert str(tmp_path / "damaged" / "run.json") in report.damage[0]
    with pytest.raises(BadInput, match="not a run"):
        write_report([tmp_path / "no run"])
    for twice in ([tmp_path, run], [run, run / ".." / "run"]):
        with pytest.raises(BadInput, match="given twice"):
            write_report(twice)


@pytest.mark.slow
def test_the_page_of_a_run_under_way_is_read_again_by_the_browser(tmp_path: Path) -> None:
    going_on = FakeRun(workers=2, iterations=9, done=5, state="running").write(tmp_path / "run")
    report = write_report([going_on], refresh_seconds=7)
    assert report.running
    assert '<meta http-equiv="refresh" content="7">' in report.path.read_text(encoding="utf-8")
    page = write_report([going_on]).path.read_text(encoding="utf-8")
    assert 'http-equiv="refresh"' not in page


@pytest.mark.usefixtures("undrawn")
def test_a_place_that_cannot_be_written_is_named(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    page = tmp_path / "missing" / "page.html"
    with pytest.raises(BadInput, match="cannot write there") as caught:
        write_report([run], page)
    assert str(caught.value).startswith(f"-o {page}: ")
    with pytest.raises(BadInput, match=r"--figures .*: cannot write there"):
        write_report([run], figures=tmp_path / "file")


@pytest.mark.parametrize(
    ("library", "module"), [("matplotlib", "matplotlib.figure"), ("jinja2", "jinja2")]
)
def test_without_a_library_the_way_out_is_named(
    run: Path, library: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadInput) as caught:
        write_report([run])
    assert str(caught.value) == f"reports need {library}: pip install 'mdgan[plots]'"


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


def test_a_run_that_ends_while_its_page_is_written_gets_another_page(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write() -> Report:
        page = pages.write()
        if len(pages.written) == 1:
            pages.run.status("finished", 1000, 9.0)
        return page

    waits = iter((30.0,))  # it looks once, at once sees the end, and waits for nothing more
    monkeypatch.setattr("mdgan.report.live.time.sleep", lambda _: next(waits))
    keep_writing([pages.run.path], write, 30.0, None)
    assert pages.written == ["running", "finished"]


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
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.putrequest(method, path, skip_host=True)
    for host in hosts or (f"127.0.0.1:{port}",):
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    results = answer.status, answer.read(), dict(answer.getheaders())
    connection.close()
    return results


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
