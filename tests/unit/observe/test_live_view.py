"""`mdgan watch` during a run, and its curves."""

import math
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import example, given
from hypothesis import strategies as st

from mdgan.cli.inspect import watch
from mdgan.errors import BadInput
from mdgan.observe.live_view import sparkline
from tests.processes import MDGAN, environment
from tests.unit.observe.run_files import RunFiles

Points = list[tuple[int, float | None]]


def every(step: int, *values: float | None) -> Points:
    return [(number * step, value) for number, value in enumerate(values, start=1)]


@pytest.mark.parametrize(
    ("points", "width", "until", "line"),
    [
        (every(1, *range(8)), 8, 8, "▁▂▃▄▅▆▇█"),
        (every(1, 3.0, -1.0, 1.0), 3, 3, "█▁▅"),
        (every(1, 2.5, 2.5, 2.5), 3, 3, "▄▄▄"),
        ([], 4, 100, "    "),
        ([], 4, 0, "    "),
        (every(100, 1.0, 2.0), 8, 400, " ▁▁█████"),
        (every(1, 0.0, 2.0, 1.0, 3.0, 7.0, 9.0), 3, 6, "▁▂█"),
        (every(1, 1.0, None, math.nan, 2.0, math.inf), 5, 5, "▁××█×"),
    ],
)
def test_a_line_shows_means_of_stretches(points: Points, width: int, until: int, line: str) -> None:
    assert sparkline(points, width, until) == line


def test_the_logarithm_is_drawn_if_there_is_one() -> None:
    assert sparkline(every(1, 1.0, 10.0, 100.0), 3, 3, logarithmic=True) == "▁▅█"
    assert sparkline(every(1, 0.0, 50.0, 100.0), 3, 3, logarithmic=True) == "▁▅█"


@given(st.lists(st.floats() | st.none()), st.integers(1, 50), st.integers(0, 1000))
@example([-1.7e308, 1.7e308], 2, 2)  # further apart than the largest number
@example([math.inf, -math.inf, 1.0], 3, 3)
def test_any_series_fits_into_any_width(values: list[float | None], width: int, until: int) -> None:
    assert len(sparkline(every(1, *values), width, until)) == width


ESCAPE = "\x1b"
SLEEP = "mdgan.observe.live_view.time.sleep"


def command(*arguments: object) -> Result:
    environment = {"COLUMNS": "80", "FORCE_COLOR": "1"}
    return CliRunner().invoke(watch, [str(argument) for argument in arguments], env=environment)


def follow(
    path: Path, monkeypatch: pytest.MonkeyPatch, *meanwhile: Callable[[], None]
) -> list[str]:
    """The frames that are printed while things happen, one each time it waits."""
    left = list(meanwhile)
    waits = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if left:
            left.pop(0)()

    monkeypatch.setattr(SLEEP, wait)
    done = command(path, "--interval", "0.5")
    assert done.exit_code == 0, done.exception
    assert not left
    assert set(waits) == {0.5}
    assert ESCAPE not in done.stdout
    return done.stdout.split("\n\n" + str(path))


def test_each_change_is_a_frame_until_the_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunFiles(Path("run"), num_workers=1, iterations=30)
    frames = follow(
        run.path,
        monkeypatch,
        lambda: run.losses(10, 1.0, 0.5, 1.5),
        lambda: None,
        lambda: run.spans("server", 20, 2.0, ("generate", 0, 0.0, 0.1)),
        lambda: run.status("finished", 30, 3.0),
        lambda: run.work("host-1", [1], range(25, 31), 0.25),
    )
    assert [frame.split("/30")[0].split()[-1] for frame in frames] == ["0", "10", "20", "30", "30"]
    assert "running" in frames[2]
    assert "finished" in frames[3]
    assert "250 ms" not in frames[3]
    assert "250 ms" in frames[4]


def test_what_was_replaced_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunFiles(Path("run"), num_workers=1, iterations=300)
    run.losses(200, 20.0, 9.0, 9.0)
    run.work("host-1", [1], range(190, 201), 0.25)

    def resume() -> None:
        (run.path / "metrics.jsonl").unlink()
        (run.path / "trace" / "host-1.jsonl").unlink()
        run.losses(100, 10.0, 0.5, 0.5)
        run.work("host-1", [1], range(90, 101), 0.75)

    first, second, _ = follow(
        run.path, monkeypatch, resume, lambda: run.status("stopped", 100, 10.0), lambda: None
    )
    assert "9.000" in first
    assert "250 ms" in first
    assert "100/300" in second
    assert "9.000" not in second
    assert "750 ms" in second


def test_a_run_that_is_removed_ends_it_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFiles(tmp_path / "run")
    monkeypatch.setattr(SLEEP, lambda _: (run.path / "run.json").unlink())
    done = command(run.path)
    assert isinstance(done.exception, BadInput)
    assert str(done.exception).startswith(f"{run.path}: not a run")


class Terminal:
    """`mdgan watch` in a terminal of 24 lines of 80 characters."""

    def __init__(self, path: Path) -> None:
        self._end, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*MDGAN, "watch", str(path), "--interval", "0.1"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(TERM="xterm-256color", COLUMNS="80", LINES="24"),
            start_new_session=True,
        )
        os.close(theirs)
        self._bytes = b""

    @property
    def output(self) -> str:
        """Everything so far."""
        return self._bytes.decode(errors="replace")

    def wait_for(self, text: str, seconds: float = 300.0) -> None:
        """Reads until it says so, or ends."""
        deadline = time.monotonic() + seconds
        while text not in self.output and time.monotonic() < deadline:
            if not select.select([self._end], [], [], 0.1)[0]:
                continue
            try:
                self._bytes += os.read(self._end, 65536)
            except OSError:  # it has ended
                break
        assert text in self.output

    def close(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.wait()
        os.close(self._end)


def test_a_terminal_is_rewritten_until_the_end_or_ctrl_c(tmp_path: Path) -> None:
    run = RunFiles(tmp_path / "run", num_workers=100)
    terminal, other = Terminal(run.path), Terminal(run.path)
    try:
        for each in (terminal, other):
            each.wait_for("0/1,000")
            each.wait_for("… and 90 more")
        run.losses(10, 1.0, 0.5, 1.5)
        for each in (terminal, other):
            each.wait_for("10/1,000")
        assert "\x1b[?25l" in terminal.output  # the cursor is hidden
        os.kill(other.process.pid, signal.SIGINT)
        other.wait_for("\x1b[?25h")
        assert other.process.wait(30) == 130
        run.status("finished", 1000, 10.0)
        terminal.wait_for("\x1b[?25h")
        assert terminal.process.wait(30) == 0
        for each in (terminal, other):
            assert "Traceback" not in each.output
    finally:
        terminal.close()
        other.close()
