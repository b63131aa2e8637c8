"""The commands and promises of the README and the documentation."""

import re
import shlex
from pathlib import Path

import click
import pytest

from mdgan.cli import cli
from tests.processes import REPOSITORY, run_here
from tests.unit.dataset_formats import write_image_folder

README = REPOSITORY / "README.md"
CONTRIBUTING = REPOSITORY / "CONTRIBUTING.md"
PAGES = [
    *(README, CONTRIBUTING, REPOSITORY / "CHANGELOG.md"),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    *sorted((REPOSITORY / "examples").glob("*.md")),
]
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)

NOT_OURS = {
    *("--nproc-per-node", "--help", "--index-url"),  # torchrun's, click's, pip's
    *("--logdir", "--backend-store-uri"),  # TensorBoard's, MLflow's
    # Of Slurm, Docker and torchrun:
    *("--nodes", "--ntasks", "--ntasks-per-node", "--gpus-per-task", "--requeue", "--no-kill"),
    *("--open-mode", "--kill-on-bad-exit", "--user", "--rm", "--build-arg", "--gpus"),
    *("--nnodes", "--max-restarts", "--rdzv-backend", "--rdzv-endpoint", "--head"),
    # Of benchmarks:
    *(
        "--attacks",
        "--before",
        "--hides",
        "--first-seed",
        "--rules",
        "--clients",
        "--fraction",
        "--rounds",
    ),
    *(
        "--batch-sizes",
        "--weak-only",
        "--without-tls",
        "--megabits",
        "--work",
        "--repeats",
        "--seeds",
        "--folder",
        "--source",
        "--honest-seeds",
        "--riders",
        "--partitions",
    ),
}


OTHER_PROGRAMS = ("torchrun", "kubectl", "docker")
"""Commands of these have flags of their own before those of mdgan."""


def shell_lines(page: Path) -> list[str]:
    """The lines of a page's blocks of shell commands, without comments."""
    blocks = re.findall(r"```(?:bash|sh)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [line.split(" # ")[0].strip() for block in blocks for line in block.splitlines()]


def options_of(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def all_options(command: click.Command) -> set[str]:
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return options_of(command).union(*map(all_options, below))


def test_the_readme_is_short() -> None:
    assert len(README.read_bytes()) <= 9_000


def test_the_demo_trains_what_the_readme_shows(tmp_path: Path) -> None:
    (command,) = re.findall(
        r"mdgan (train .*) --out \$\$run", (REPOSITORY / "Makefile").read_text()
    )
    ran = run_here(*command.split(), "--dry-run", cwd=tmp_path)
    (line,) = re.findall(r"^  trains +(.*)$", ran.output, re.MULTILINE)
    assert f"\n{line}\n" in README.read_text(encoding="utf-8")


def test_a_user_can_train_on_pictures_of_their_own(tmp_path: Path) -> None:
    (line,) = (line for line in shell_lines(README) if "{rank}" in line)
    for rank in range(1, 5):
        write_image_folder(tmp_path / "photos" / str(rank), ["cats", "dogs"], 32, seed=rank)
    result = run_here(*shlex.split(line)[1:], "--dry-run", cwd=tmp_path)
    assert result.status == 0, result
    assert result.output.count(" 64 ") >= 4, "every worker reads its own 64"


@EACH_PAGE
def test_commands_have_the_flags_that_a_page_gives_them(page: Path) -> None:
    for line in shell_lines(page):
        words = shlex.split(line.replace("…", "."))
        if "mdgan" not in words or words[0] in OTHER_PROGRAMS:
            continue
        command: click.Command = cli
        words = words[words.index("mdgan") + 1 :]
        while isinstance(command, click.Group) and words and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        assert command is not cli or words == ["--help"], line
        for word in words[: words.index("--")] if "--" in words else words:
            if word in ("&&", "|"):
                break
            if word.startswith("-"):
                assert word.partition("=")[0] in options_of(command) | NOT_OURS, line


@EACH_PAGE
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text))
    if page.name != "CHANGELOG.md":  # that names what was there in earlier versions
        assert flags <= all_options(cli) | NOT_OURS
    makefile = (REPOSITORY / "Makefile").read_text()
    for target in re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in set(re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", text)):
        assert (page.parent / link).exists(), link
    folders = "mdgan|datasets|scripts|tests|benchmarks|examples|docs"
    for path in set(re.findall(rf"`((?:{folders})/[\w./-]*)`", text)):
        assert (REPOSITORY / path).exists(), path
    for name in set(re.findall(r"^::: (mdgan(?:\.\w+)+)|-m (benchmarks\.\w+)", text, re.MULTILINE)):
        path = REPOSITORY / "".join(name).replace(".", "/")
        files = (path.with_suffix(end) for end in (".py", ".pyi"))
        assert path.is_dir() or any(file.exists() for file in files), name


def test_every_command_is_in_getting_started() -> None:
    lines = shell_lines(REPOSITORY / "docs" / "getting-started.md")
    shown = {line.split()[1] for line in lines if line.startswith("mdgan ")}
    assert shown | {"standby"} == cli.commands.keys()  # that one needs several machines


def test_every_room_is_in_the_picture_of_the_house() -> None:
    rooms = set(re.findall(r"\| `mdgan/(\w+)/` \|", CONTRIBUTING.read_text(encoding="utf-8")))
    assert rooms == {path.parent.name for path in (REPOSITORY / "mdgan").glob("*/__init__.py")}
