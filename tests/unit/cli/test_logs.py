"""Which of mdgan's log messages the command line shows."""

import contextlib
import fcntl
import io
import logging
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time as clock
from itertools import count
from pathlib import Path

import pytest

from mdgan.cli.logs import TerminalHandler, begin_long_command, show_logs
from mdgan.observe.progress import Progress
from tests.processes import run_here

LOG = logging.getLogger("mdgan.tests")


def screen(text: str, columns: int) -> list[str]:
    """What a terminal shows that was sent a text."""
    rows, row, column = [""], 0, 0
    for character in text.replace("\r\n", "\n"):
        if character == "\r":
            column = 0
        elif character == "\n":
            row, column = row + 1, 0
        else:
            if column == columns:
                row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
            line = rows[row].ljust(column)
            rows[row] = line[:column] + character + line[column + 1 :]
            column += 1
    return [line.rstrip() for line in rows]


class Terminal:
    """A terminal of a given width, as the kernel makes it."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        self.stream = os.fdopen(slave, "w")

    def screen(self) -> list[str]:
        """What it shows; closes it."""
        self.stream.flush()
        os.set_blocking(self._master, False)
        sent = b""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._master, 4096):
                sent += piece
        self.stream.close()
        os.close(self._master)
        return screen(sent.decode(), self.columns)


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 60) -> Terminal:
    made = Terminal(columns)
    monkeypatch.setattr(sys, "stderr", made.stream)
    return made


def live(line: str) -> None:
    LOG.info("%s", line, extra={"shown": "live"})


def test_a_note_is_a_line_and_a_trouble_says_from_whom(capsys: pytest.CaptureFixture[str]) -> None:
    show_logs()  # twice is as once
    LOG.debug("nothing of this")
    live("iteration 100/1000")
    LOG.info("starting %d processes", 5)
    LOG.warning("rank %d lost the server", 2)
    LOG.info("the end", extra={"shown": "result"})
    lines = "iteration 100/1000\nstarting 5 processes\nmdgan: rank 2 lost the server\n"
    assert capsys.readouterr() == ("the end\n", lines)


def test_what_is_being_done_is_shown_on_terminals_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show_logs()
    LOG.info("loading …", extra={"shown": "doing"})
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    LOG.info("loading …", extra={"shown": "doing"})
    LOG.info("the page", extra={"shown": "result"})
    captured = capsys.readouterr()
    assert captured.out == "the page\n"
    assert re.fullmatch(r"\r +\rloading …\r +\r", captured.err)


def test_what_went_wrong_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("7 is no rank")
    except ValueError:
        LOG.exception("rank 0 failed")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["mdgan: rank 0 failed", "Traceback (most recent call last):"]
    assert lines[-1] == "ValueError: 7 is no rank"


@pytest.mark.parametrize("columns", [42, 54, 66, 120])
def test_a_terminal_of_any_width_gets_one_line_that_is_rewritten(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    terminal = on_terminal(monkeypatch, columns)
    monkeypatch.setattr(clock, "monotonic", count(100).__next__)
    progress = Progress(30_000)
    progress.remark = "FID 12.3"
    for iteration in (28_999, 29_000, 29_001):
        progress.show(iteration, (0.6931, 1.3863))
    (line,) = terminal.screen()
    assert line.startswith("iteration 29001/30000 | ")
    assert line.endswith(" left")
    assert (" it/s | " in line) == (columns >= 54)
    assert ("loss G 0.693 D 1.386" in line) == (columns > 66)


def test_every_other_line_takes_the_place_of_the_live_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = on_terminal(monkeypatch)
    begin_long_command(None)  # a terminal shows no time
    live("iteration 100/1000")
    LOG.info("lost 3")
    live("iteration 100/1000")
    other = TerminalHandler()  # of another process
    other.emit(LOG.makeRecord("mdgan", logging.WARNING, "", 0, "rank 2 is lost", (), None))
    live("iteration 1000/1000")
    LOG.info("done", extra={"shown": "result"})
    show_logs()
    assert terminal.screen() == ["lost 3", "mdgan: rank 2 is lost", ""]
    assert capsys.readouterr().out == "done\n"


STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


def test_lines_of_long_commands_have_the_time_and_go_to_a_file_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.txt"
    path.write_text("of an earlier run\n")
    try:
        begin_long_command(str(path))
        LOG.info("starting")
        for iteration in range(5):
            live(f"iteration {iteration}/1000")
        LOG.warning("rank 2 is lost")
        LOG.info("done", extra={"shown": "result"})
    finally:
        show_logs()
    out, err = capsys.readouterr()
    assert out == "done\n"
    shown = err.splitlines()
    assert re.fullmatch(rf"{STAMP} starting", shown[0])
    assert re.fullmatch(rf"{STAMP} mdgan: rank 2 is lost", shown[-1])
    written = path.read_text().splitlines()
    assert written[0] == "of an earlier run"
    assert [re.sub(rf"{STAMP},\d+ ", "", line) for line in written[1:]] == [
        *("INFO    starting", "INFO    iteration 0/1000", "WARNING rank 2 is lost"),
        "INFO    done",
    ]
    LOG.info("to no file")
    assert len(path.read_text().splitlines()) == 5


def test_a_log_file_on_a_full_disk_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        begin_long_command("/dev/full")
        LOG.info("starting")
    finally:
        show_logs()
    assert capsys.readouterr().err.count("\n") == 1


def test_a_log_file_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "log"
    result = run_here("train", "--log-file", str(path), cwd=tmp_path)
    assert result.status == 2
    assert result.errors.endswith(
        f"mdgan: --log-file {path}: cannot be written (No such file or directory); name another "
        "file\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_is_gone_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            tried.append(text)
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())
    LOG.info("to a reader that is gone")
    assert tried == ["to a reader that is gone\n"]


def test_a_program_that_imports_mdgan_sees_nothing(tmp_path: Path) -> None:
    program = (
        "import logging, mdgan.cli\n"
        "from mdgan.spelling import flag\n"
        "logging.getLogger('mdgan.launch').error('unheard')\n"
        "logging.basicConfig(format='%(name)s %(message)s')\n"
        "logging.getLogger('mdgan.launch').error(f\"heard {flag('threads', 3)} of %d\", 4)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (
        *(0, ""),
        "mdgan.launch heard threads=3 of 4\n",
    )


UNBUFFERED = """
import logging, os
from mdgan.cli.logs import TerminalHandler

log = logging.getLogger("mdgan")
log.setLevel(logging.INFO)
log.addHandler(TerminalHandler())
os.fork()
os.fork()
for line in range(1000):
    log.info("line %d", line)
"""


def test_lines_of_several_processes_stay_apart_without_buffers() -> None:
    """PYTHONUNBUFFERED is usual in containers: a line's end must not be written apart."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", UNBUFFERED],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    lines = ran.stderr.splitlines()
    assert [line for line in lines if not re.fullmatch(r"line \d+", line)] == []
    assert lines.count("line 999") == 4
