"""The launch scripts, in the report's convention (Darmanger and Gombas, section 6.5)."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from mdgan.families import registry
from mdgan.launch.settings import LaunchSettings
from mdgan.spelling import flag
from tests.processes import QUICK, REPOSITORY, Finished, finish, start

SCRIPTS = REPOSITORY / "scripts"


def script(name: str, *arguments: str, cwd: Path, **environment: str) -> Finished:
    command = [str(SCRIPTS / name), *arguments]
    return finish(start(command, cwd, python=sys.executable, **environment))


def config_of(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config


@pytest.mark.slow
def test_distributed_from_any_folder(tmp_path: Path) -> None:
    result = script(
        "run-distributed.sh",
        *["0..3", *QUICK, "--master-port", "0", "--generator-optimizer", "beta1=0.4"],
        cwd=tmp_path,
        world_size="4",
        swap_interval="2",
        generator_optimizer="beta1=0.3",
        out="here",
    )
    assert result.status == 0, result
    config = config_of(tmp_path / "here")
    assert (config["world_size"], config["swap_interval"]) == (4, 2)  # from the environment
    assert "beta1=0.4" in config["generator_optimizer"]  # flags after the ranks win
    assert config["seed"] == 0  # as with `mdgan train`


@pytest.mark.slow
def test_standalone_from_any_folder(tmp_path: Path) -> None:
    result = script(
        "run-standalone.sh", *QUICK, cwd=tmp_path, out="alone", generator_optimizer="lr=0.001"
    )
    assert result.status == 0, result
    assert "lr=0.001" in config_of(tmp_path / "alone")["generator_optimizer"]


@pytest.mark.parametrize("name", ["run-distributed.sh", "run-standalone.sh"])
def test_every_argument_is_written_as_mdgan_takes_it(name: str, tmp_path: Path) -> None:
    """A flag, or a key of `--set` if the setting has no flag."""
    shows = tmp_path / "python"
    shows.write_text("#!/usr/bin/env bash\nprintf '%s\\n' \"$@\"\n")
    shows.chmod(0o700)
    texts = [(SCRIPTS / each).read_text() for each in (name, "shared-args.sh")]
    arguments = set(re.findall(r"^(\w+)=\$\{\1:-", "".join(texts), re.MULTILINE)) - {"python"}
    assert {"dataset", "seed"} < arguments
    given = dict.fromkeys(arguments, "1")
    ranks = ["0..3"] if name == "run-distributed.sh" else []
    ran = finish(start([str(SCRIPTS / name), *ranks], tmp_path, python=str(shows), **given))
    assert ran.status == 0, ran
    settings = {**registry.declared_settings(), **LaunchSettings.declared()}
    expected = [
        f"{flag(each)!s} 1" if settings[each].has_flag else f"--set {each}=1" for each in arguments
    ]
    _, _, command, *words = ran.output.split()
    written = [" ".join(pair) for pair in zip(words[::2], words[1::2], strict=True)]
    assert command == name.removeprefix("run-").removesuffix(".sh").replace("distributed", "train")
    assert sorted(written) == sorted([*expected, *(f"--ranks {each}" for each in ranks)])


def test_ranks_are_asked_for(tmp_path: Path) -> None:
    result = script("run-distributed.sh", cwd=tmp_path)
    assert result.status == 2
    assert result.errors.startswith("usage: run-distributed.sh RANKS")
