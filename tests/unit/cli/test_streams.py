"""Streams that are closed, or that lack characters, stop no command."""

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.marks import mostly_slow

MDGAN = f"{sys.executable} -m mdgan"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}


def shell(command: str, changes: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["sh", "-c", command],
        env={**os.environ, **changes},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("closed", mostly_slow([">&-", "<&-", ">&- 2>&- <&-"], [">&- 2>&- <&-"]))
def test_closed_streams(closed: str) -> None:
    done = shell(f"{MDGAN} --version {closed}", {})
    assert (done.returncode, done.stderr) == (0, "")


def test_output_without_the_characters() -> None:
    program = "from mdgan.cli.logs import prepare_streams as p; p(); print('8', chr(215), '8')"
    done = shell(f'{sys.executable} -c "{program}"', ASCII)
    assert (done.returncode, done.stdout, done.stderr) == (0, "8 ? 8\n", "")
