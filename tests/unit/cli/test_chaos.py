"""`mdgan chaos`: which faults it plays, and which it refuses."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mdgan.chaos import run as module
from mdgan.chaos.play import ChaosLimits
from tests.processes import run_here


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is asked for, instead of doing it."""
    results: dict[str, Any] = {}

    def note(*arguments: object) -> int:
        names = ("commands", "settings", "seed", "num_faults", "kinds", "limits")
        results.update(zip(names, arguments, strict=True))
        return 0

    monkeypatch.setattr(module, "run_chaos", note)
    return results


def flags_of(command: Any) -> dict[str, str]:
    pairs = list(command[1:])
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def test_commands_without_a_standby(asked: dict[str, Any], tmp_path: Path) -> None:
    train = ["--world-size", "4", "--threads", "2", "--liveness-timeout", "7.5", "--out", "run"]
    assert run_here("chaos", "--kinds", "kill,stop,kill", "--", *train, cwd=tmp_path).status == 0
    commands = asked["commands"]
    assert commands.standby is commands.workers is None
    given = flags_of(commands.train)
    port = given.pop("--master-port")
    assert int(port) > 1023
    assert given.pop("--checkpoint-interval") == "50"
    assert given == dict(zip(train[::2], train[1::2], strict=True))
    assert flags_of(commands.join) == {
        **{"--threads": "2", "--liveness-timeout": "7.5", "--out": "run"},
        "--master-port": port,
    }
    assert asked["kinds"] == ("kill", "stop")
    assert (asked["seed"], asked["num_faults"]) == (None, 20)
    assert asked["limits"] == ChaosLimits(1, 0.0, 7.5, 300.0)


def test_commands_with_a_standby(asked: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"world_size": 4, "insecure": true, "threads": 3}')
    where = ["--master-addr", "10.0.0.1,10.0.0.2", "--master-port", "29501"]
    train = ["--config", "c.json", "--threads", "1", "--ranks", "0..2", *where]
    result = run_here("chaos", "--seed", "5", "--faults", "3", "--", *train, cwd=tmp_path)
    assert result.status == 0, result
    commands, out = asked["commands"], asked["settings"]["out"]
    assert list(commands.standby) == ["standby", out, *where]
    ranks = []
    for command in (commands.train, commands.workers):
        assert "--insecure" in command
        given = flags_of([part for part in command if part != "--insecure"])
        assert given["--world-size"] == "4"
        assert given["--threads"] == "1"
        assert given["--out"] == out
        ranks.append(given["--ranks"])
    assert ranks == ["0", "1,2"]
    assert (asked["seed"], asked["num_faults"]) == (5, 3)


def test_all_commands_have_what_follows_from_the_folder(
    asked: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "photos" / "0.png")
    flags = ["--dataset", "folder", "--data-dir", "photos", "--out", "run"]
    assert run_here("chaos", "--kinds", "server", "--", *flags, cwd=tmp_path).status == 0
    for command in (asked["commands"].train, asked["commands"].workers):
        given = " ".join(command)
        assert "--set image_size=8" in given
        assert "--partition iid" in given
    assert "image_size" not in " ".join(asked["commands"].join)


def test_keys_are_passed_on_to_the_commands_that_have_them(
    asked: dict[str, Any], tmp_path: Path
) -> None:
    keys = ["--set", "patience=3", "--set", "quorum=0.75", "--set", "channels_last=true"]
    result = run_here("chaos", "--kinds", "kill", "--", "--world-size", "3", *keys, cwd=tmp_path)
    assert result.status == 0, result

    def keys_of(command: list[str]) -> set[str]:
        return {text for flag, text in itertools.pairwise(command) if flag == "--set"}

    commands = asked["commands"]
    assert keys_of(commands.train) == {"patience=3.0", "quorum=0.75", "channels_last=true"}
    assert keys_of(commands.join) < keys_of(commands.train)


def test_a_standby_needs_two_addresses(asked: dict[str, Any], tmp_path: Path) -> None:
    assert run_here("chaos", cwd=tmp_path).status == 0
    assert asked["settings"]["master_addr"] == "127.0.0.1,127.0.0.2"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--kinds", "kill,hug"], "'hug' is none of kill, stop, leave, join, server"),
        (["--faults", "0"], "--faults"),
        (["--", "--dry-run"], "starts a new run; leave --dry-run and --resume out"),
        (["--", "--resume", "run"], "starts a new run; leave --dry-run and --resume out"),
        (["--", "--transport", "memory"], "leave other launchers and --transport memory out"),
        (["--", "--iterations", "0"], "--iterations 0"),
        (["--", "--no-such-flag"], "--no-such-flag"),
        (
            ["--faults", "30", "--kinds", "kill", "--", "--iterations", "20"],
            "--faults 30: too many for 20",
        ),
        (["--", "--ranks", "1..2"], "--ranks 1..2: rank 0 runs elsewhere"),
        (["--kinds", "kill", "--", "--ranks", "0"], "--ranks 0: no worker runs here"),
        (["--", "--checkpoint-interval", "0"], "--checkpoint-interval 0: without checkpoints"),
        (["--", "--dataset", "digit"], "did you mean 'digits'?"),
    ],
)
def test_bad_input(tmp_path: Path, flags: list[str], says: str) -> None:
    result = run_here("chaos", *flags, cwd=tmp_path)
    assert result.status == 2, result
    assert result.errors.count("\n") == 1, result
    assert says in result.errors
    assert list(tmp_path.iterdir()) == []
