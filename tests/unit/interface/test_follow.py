"""The output of a run in a Python program."""

import io
import re
import sys
from pathlib import Path

import pytest

from mdgan.interface.follow import Follower, Reached, Screen
from mdgan.interface.messages import LineLogged
from mdgan.interface.run import Run
from mdgan.observe.events import GeneratorScored, IterationLogged, ProgressEvent, TrainingBegun

LIVE = LineLogged("iteration 3/9 | 1.0 it/s", shown="live")
RESULT = LineLogged("done: 9 of 9 iterations", shown="result")


def test_lines_have_the_time_where_nobody_looks_on(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen("data: 3 pictures")
    for line in (LIVE, LineLogged("rank 2 is lost", is_warning=True), "mine\n", RESULT):
        screen.show(line)
    shown = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", capsys.readouterr().out)
    assert shown.splitlines() == [
        "data: 3 pictures",
        f"TIME {LIVE.text}",
        "TIME mdgan: rank 2 is lost",
        "mine",
        RESULT.text,
    ]
    Screen("data: 3 pictures", quiet=True).show(RESULT)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("is_there", [True, False])
def test_an_output_that_is_closed_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed if is_there else None)
    Screen("data: 3 pictures").show(RESULT)


def test_on_a_terminal_a_bar_stands_for_lines_of_progress(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    notes: list[Reached] = []
    follower = Follower(Run(Path("run")), Screen(), [notes.append])
    events: list[ProgressEvent] = [
        TrainingBegun("run", 2, 9),
        IterationLogged(5, {"generator": 0.5, "discriminator": None}),
        GeneratorScored(3, {"fid": 1.5, "kid": None}),  # training went on meanwhile
    ]
    assert [follower.follow(event) for event in events] == [False] * 3
    for line in (LIVE, RESULT):
        follower.screen.show(line)
    shown, bar = capfd.readouterr()
    assert shown == f"{RESULT.text}\n"
    assert "3/9" not in bar
    assert "5/9" in bar
    assert "fid=1.5" in bar
    first, second = notes
    assert (first.iteration, first.iterations, first.scores) == (5, 9, {})
    assert second.losses["generator"] == 0.5
    assert second.losses["discriminator"] != second.losses["discriminator"]  # NaN
    assert second.scores == {"fid": 1.5}


@pytest.mark.parametrize("has_bar", [False, True])
def test_an_output_that_lacks_a_character_shows_the_rest(
    monkeypatch: pytest.MonkeyPatch, has_bar: bool
) -> None:
    pytest.importorskip("tqdm")
    narrow = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", narrow)
    monkeypatch.setattr(narrow, "isatty", lambda: has_bar, raising=False)
    screen = Screen()
    screen.begin_bar(TrainingBegun("run", 2, 9))
    screen.show("3 pictures of 8×8 pixels\n")
    screen.close()
    narrow.seek(0)
    assert "3 pictures of 8?8 pixels\n" in narrow.read()


def test_a_terminal_whose_errors_go_nowhere_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", None)
    follower = Follower(Run(Path("run")), Screen())
    follower.follow(TrainingBegun("run", 2, 9))
    follower.follow(IterationLogged(3, {"generator": 0.5, "discriminator": None}))
    follower.screen.close()
