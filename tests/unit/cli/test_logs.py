"""What the command line shows of what mdgan logs."""

import io
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from mdgan.cli.logs import TerminalHandler, show_logs

LOG = logging.getLogger("mdgan.tests")


class Terminal(io.StringIO):
    """A stream that says it is a terminal, and what a reader would see on its screen."""

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        lines = [""]
        column = 0
        for character in self.getvalue():
            if character == "\n":
                lines.append("")
                column = 0
            elif character == "\r":
                column = 0
            else:
                line = lines[-1].ljust(column)
                lines[-1] = line[:column] + character + line[column + 1 :]
                column += 1
        return [line.rstrip() for line in lines]


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    return made


def live(line: str) -> None:
    LOG.info("%s", line, extra={"shown": "live"})


def test_a_note_is_a_line_and_a_trouble_says_from_whom(capsys: pytest.CaptureFixture[str]) -> None:
    LOG.debug("nothing of this")
    LOG.info("starting %d processes", 5)
    LOG.warning("rank %d lost the server", 2)
    LOG.info("the end", extra={"shown": "result"})
    assert capsys.readouterr() == (
        "the end\n",
        "starting 5 processes\nmdgan: rank 2 lost the server\n",
    )


def test_what_went_wrong_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("7 is no rank")
    except ValueError:
        LOG.exception("rank 0 failed")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["mdgan: rank 0 failed", "Traceback (most recent call last):"]
    assert lines[-1] == "ValueError: 7 is no rank"


def test_a_terminal_gets_one_line_that_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    live("iteration 100/1000 and a long text after it")
    live("iteration 300/1000")
    assert "\n" not in terminal.getvalue()
    assert terminal.screen() == ["iteration 300/1000"]


def test_a_note_takes_the_place_of_the_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    live("iteration 100/1000")
    LOG.info("lost 3")
    live("iteration 100/1000")
    assert terminal.screen() == ["lost 3", "iteration 100/1000"]


def test_a_result_removes_the_live_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = on_terminal(monkeypatch)
    live("iteration 1000/1000")
    LOG.info("done", extra={"shown": "result"})
    assert terminal.screen() == [""]
    assert capsys.readouterr().out == "done\n"


def test_where_nothing_is_rewritten_live_lines_are_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    live("iteration 100/1000")
    live("iteration 300/1000")
    assert capsys.readouterr().err == "iteration 100/1000\niteration 300/1000\n"


def test_a_reader_that_is_gone_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            tried.append(text)
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())
    LOG.info("to a reader that is gone")
    assert tried == ["to a reader that is gone"]


def test_showing_twice_shows_once(capsys: pytest.CaptureFixture[str]) -> None:
    show_logs()
    LOG.info("once")
    assert capsys.readouterr().err == "once\n"
    handlers = logging.getLogger("mdgan").handlers
    assert len([each for each in handlers if isinstance(each, TerminalHandler)]) == 1


def test_a_program_that_imports_mdgan_sees_nothing(tmp_path: Path) -> None:
    program = (
        "import logging, mdgan.cli\n"
        "logging.getLogger('mdgan.launch').error('unheard')\n"
        "logging.basicConfig(format='%(name)s %(message)s')\n"
        "logging.getLogger('mdgan.launch').error('heard')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "mdgan.launch heard\n")
