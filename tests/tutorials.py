"""Tutorials, walked as their readers walk them: block by block, in a folder that is empty at first.

Of a page's fenced blocks, one with a title is a file that the reader writes, `bash` goes to a
shell, `python` into a cell of a notebook, and a block without a language quotes what was printed.
`sh` is for other machines, and is not run.
"""

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests import forks
from tests.processes import MDGAN, REPOSITORY, environment, finish, start, start_anew

TUTORIALS = REPOSITORY / "docs" / "tutorials"
_BLOCK = re.compile(r'^```(\w*)(?: title="(.*?)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_MEASURED = re.compile(r"\d\.\d|\d (?:h|min|s|ms|it/s|B|kB|MB|GB)\b")
_QUANTITY = r"(?:(?:h|min)(?: \d+ (?:min|s))?|m?s|[kMG]?B)\b"
_PART = re.compile(rf"…|\s+|\b(?=[a-f]*\d)[0-9a-f]{{6,12}}\b|\d[\d,.]*(?: {_QUANTITY})?")
_BLOCK_SECONDS = 200


class Block(NamedTuple):
    """A fenced block: its language, the name of the file that it is, and its text."""

    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [Block(*parts) for parts in _BLOCK.findall(page.read_text(encoding="utf-8"))]


def not_said(quoted: str, output: str) -> list[str]:
    """The lines of a block that nothing printed here fits.

    `…` stands for anything, and spaces for any spaces. In a line with a measurement (a decimal, a
    time, bytes) numbers may be others, since they depend on the machine.
    """
    lines = [line for line in quoted.splitlines() if line.strip(" …")]
    return [line for line in lines if not re.search(_expression(line), output, re.MULTILINE)]


def _expression(line: str) -> str:
    is_measured = _MEASURED.search(line) is not None
    pieces, end = [], 0
    for match in _PART.finditer(line.strip()):
        pieces += [re.escape(line.strip()[end : match.start()]), _fits(match[0], is_measured)]
        end = match.end()
    return "".join([*pieces, re.escape(line.strip()[end:])])


def _fits(part: str, is_measured: bool) -> str:
    """The pattern that a part of a printed line must match."""
    if part == "…":
        return ".*"
    if part.isspace():
        return r"[^\S\n]+"
    if not is_measured:
        return re.escape(part)
    if re.fullmatch(r"[0-9a-f]{6,12}", part) and not part.isdigit():
        return "[0-9a-f]+"
    # A minute and some seconds may be seconds elsewhere.
    return rf"[\d,.]+ {_QUANTITY}" if " " in part else r"[\d,.]+"


def walk(page: Path, folder: Path) -> None:
    """Follows a tutorial: everything works, and prints what the page quotes."""
    output = ""
    shell = _shell(folder)
    with _notebook(folder) as notebook:
        for block in blocks(page):
            if block.title:
                (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
                (folder / block.title).write_text(block.text, encoding="utf-8")
            elif block.language in ("bash", "python"):
                output += {"bash": shell, "python": notebook}[block.language](block.text)
            elif not block.language:
                missing = not_said(block.text, output)
                assert not missing, "\n".join(["not said:", *missing, "--- said", output])


def _shell(folder: Path) -> Callable[[str], str]:
    """What runs commands in a new shell each time, whose `mdgan` need not import torch.

    Once the reader has installed a package, it must: what was imported before does not know it.
    """
    finish(start([*MDGAN, "--version"], folder))  # the process that it forks from is there
    programs = folder.parent / "programs"
    packages = folder.parent / "packages"
    programs.mkdir()
    packages.mkdir()
    program = programs / "mdgan"
    program.write_text(f"#!{sys.executable}\nfrom tests.forks import serve\n\nserve()\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    changes = {
        "PATH": os.pathsep.join(
            [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "PYTHONPATH": os.pathsep.join([str(packages), str(REPOSITORY)]),
        # What the reader installs goes into its own folder, and from no network.
        "PIP_TARGET": str(packages),
        "PIP_NO_DEPS": "true",
        "PIP_NO_INDEX": "true",
        "PIP_NO_BUILD_ISOLATION": "false",  # pip's word for the flag being there
        "PIP_DISABLE_PIP_VERSION_CHECK": "true",
        forks.SESSION: str(forks.session()),
    }

    def run(commands: str) -> str:
        if any(packages.iterdir()):
            program.unlink(missing_ok=True)
        shell = start_anew(["bash", "-e", "-o", "pipefail", "-c", commands], folder, **changes)
        result = finish(shell, _BLOCK_SECONDS)
        assert result.status == 0, f"{commands}{result}"
        assert "Traceback" not in result.errors, result
        return result.errors + result.output

    return run


@contextmanager
def _notebook(folder: Path) -> Iterator[Callable[[str], str]]:
    """What runs cells in one kernel, which is started for the first."""
    started: list[Any] = []

    def run(cell: str) -> str:
        from jupyter_client.manager import start_new_kernel

        if not started:
            variables = environment(PYTHONPATH=str(REPOSITORY))
            started.extend(start_new_kernel(cwd=str(folder), env=variables))
        outputs: list[str] = []
        hook = partial(_take, outputs)
        answer = started[1].execute_interactive(cell, timeout=_BLOCK_SECONDS, output_hook=hook)
        shown = "".join(outputs)
        assert answer["content"]["status"] == "ok", f"{cell}\n{shown}"
        return shown

    try:
        yield run
    finally:
        if started:
            manager, client = started
            client.stop_channels()
            manager.shutdown_kernel(now=True)
            manager.cleanup_resources()


def _take(outputs: list[str], message: dict[str, Any]) -> None:
    """Adds what a cell shows as text."""
    content = message["content"]
    data = content.get("data", {}).get("text/plain", "")
    outputs.append(content.get("text") or "\n".join([data, *content.get("traceback", [])]))
