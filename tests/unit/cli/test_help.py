"""What `--help` shows, the answers to mistyped flags, and what shells complete."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mdgan.cli import cli
from mdgan.cli.help import Command
from mdgan.families import registry
from mdgan.settings.declare import GROUPS
from mdgan.spelling import flag
from tests.processes import MDGAN, REPOSITORY, finish, run_here, start


def help_of(*command: str, columns: int = 80, by: str = "--help") -> list[str]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", str(columns))
        done = run_here(*command, by, cwd=REPOSITORY)
    assert done.status == 0, done
    return done.output.splitlines()


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("name", ["", *cli.commands])
def test_help_fits_the_terminal_and_begins_with_examples(name: str, columns: int) -> None:
    lines = help_of(*filter(None, [name]), columns=columns)
    assert [line for line in lines if len(line) > columns and "$ " not in line] == []
    if name:
        (begin,) = [number for number, line in enumerate(lines) if line == "Examples:"]
        assert lines[begin + 1].startswith(f"  mdgan {name}")


def flags_of(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if line.startswith("  -")]


def test_help_shows_the_usual_flags_and_another_all() -> None:
    usual, everything = help_of("train"), help_of("train", by="--help-all")
    assert 30 < len(flags_of(usual)) <= 40
    assert len(usual) <= 105, "two screens"
    assert len(flags_of(usual)) < len(flags_of(everything))
    assert len(set(flags_of(everything))) == len(flags_of(everything))
    assert set(flags_of(usual)) < set(flags_of(everything))
    headings = [line[:-1] for line in usual if line and line[0] != " " and line[-1] == ":"]
    assert headings == ["Examples", *GROUPS.values(), "Other options"]
    text = " ".join(" ".join(everything).split())
    for part in ("paper: κ", "paper: J_gen", "paper: E;", "Keys of files and of --set:"):
        assert part in text
    assert "not with --updates arrival --aggregation, --stale, --deadline" in text
    assert "needs --augment ada ada_target" in text


@pytest.mark.parametrize("name", ["standalone", "join", "standby"])
def test_commands_with_few_flags_show_them_all(name: str) -> None:
    lines = help_of(name)
    assert "--threads" in flags_of(lines)
    assert "--help-all" not in flags_of(lines) or name == "standalone"


def test_every_setting_has_a_flag_or_is_a_key() -> None:
    lines = help_of("train", by="--help-all")
    keys = {line.split()[0] for line in lines if line[:2] == "  " and line[2:3].isalpha()}
    for name, item in registry.declared_settings().items():
        assert item.group in GROUPS, name
        assert (flag(name) in flags_of(lines)) == item.has_flag, name
        assert (name in keys) >= (not item.has_flag), name


def test_commands_come_in_the_order_of_use_with_an_example_each() -> None:
    lines = help_of()
    begin = lines.index("Commands, in the order of use:")
    named = [line.split()[0] for line in lines[begin + 1 :] if line[2:3].strip()]
    assert named == list(cli.commands)
    assert named.index("plan") < named.index("train") < named.index("report")
    for name in named:
        assert any(line.strip().startswith(f"$ mdgan {name}") for line in lines), name


def test_examples_are_commands_that_mdgan_understands() -> None:
    for name, command in cli.commands.items():
        assert isinstance(command, Command)
        for example in command.examples:
            words = example.split()
            assert words[:2] == ["mdgan", name]
            command.make_context(name, words[2:])


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("--learning-rate", "Did you mean --generator-optimizer or --discriminator-optimizer?"),
        ("--workers", "Did you mean --world-size?"),
        ("--epochs", "Did you mean --iterations?"),
        ("--itertions", "--iterations"),
        ("--master-adr", "--master-addr"),
    ],
)
def test_a_mistyped_flag_is_answered_with_near_ones(tmp_path: Path, flag: str, meant: str) -> None:
    result = run_here("train", flag, "1", cwd=tmp_path)
    assert result.status == 2
    assert result.errors.count("\n") == 1
    assert f"No such option '{flag}'" in result.errors
    assert meant in result.errors


def test_chaos_says_where_the_flags_of_training_stand(tmp_path: Path) -> None:
    result = run_here("chaos", "--faults", "2", "--world-size", "4", cwd=tmp_path)
    assert result.status == 2
    says = "--world-size: is a flag of mdgan train; write those behind --, as in `mdgan chaos -- "
    assert says in result.errors


def test_a_file_with_names_of_other_programs_is_answered_with_ours(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"epochs": 5}')
    result = run_here("train", "--config", "a.json", cwd=tmp_path)
    assert "unknown key 'epochs'; did you mean 'iterations'?" in result.errors


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["digits"], "digits: data are named by flags; write --dataset digits"),
        (["pics"], "pics: data are named by flags; write --dataset folder --data-dir pics"),
        (["./x/y"], "write --dataset folder --data-dir ./x/y"),
        (
            ["--set", "lr=0.1"],
            "lr=0.1: is called --generator-optimizer or --discriminator-optimizer here",
        ),
        (["--set", "epochs=3"], "is called --iterations here"),
    ],
    ids=str,
)
def test_what_others_would_type_is_answered_with_what_to_write(
    tmp_path: Path, given: list[str], says: str
) -> None:
    (tmp_path / "pics").mkdir()
    result = run_here("train", *given, cwd=tmp_path)
    assert result.status == 2, result
    assert result.errors.count("\n") == 1
    assert says in result.errors


COMPLETE = """
eval "$(_MDGAN_COMPLETE=bash_source mdgan)"
complete_here() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _mdgan_completion mdgan
    echo "${COMPREPLY[*]}"
}
complete_here mdgan train --dataset ""
complete_here mdgan train --datasets-dir my --dataset m
complete_here mdgan report ""
complete_here mdgan sample runs/s
complete_here mdgan train --algorithm f
complete_here mdgan st
complete_here mdgan train --check
"""


COMPLETED = {
    "train --dataset ": "breast-cancer celeba cifar10 digits folder mnist table volumes",
    "train --datasets-dir my --dataset m": "mine mnist",
    "report ": "runs/first runs/second",
    "sample runs/s": "runs/second",
    "train --algorithm f": "fl-gan fegan",
    "st": "standalone standby",
    "train --check": "--checkpoint-interval",
}


def write_names(folder: Path) -> None:
    for name in ("runs/first", "runs/second", "runs/empty", "my", "bin"):
        (folder / name).mkdir(parents=True)
    for name in ("first", "second"):
        (folder / "runs" / name / "config.json").write_text("{}")
    (folder / "my" / "mine.py").touch()


def test_names_of_data_sets_runs_and_algorithms_are_completed(tmp_path: Path) -> None:
    write_names(tmp_path)
    for typed, completed in COMPLETED.items():
        question = {"_MDGAN_COMPLETE": "bash_complete", "COMP_WORDS": f"mdgan {typed}"}
        done = finish(start([*MDGAN], tmp_path, **question, COMP_CWORD=str(1 + typed.count(" "))))
        assert done.errors == ""
        assert " ".join(line.partition(",")[2] for line in done.output.splitlines()) == completed


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_names_of_data_sets_runs_and_algorithms(tmp_path: Path) -> None:
    write_names(tmp_path)
    program = tmp_path / "bin" / "mdgan"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m mdgan "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", COMPLETE],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [*COMPLETED.values()]
