"""Streams that are closed, or that lack characters, stop no command."""

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}


def shell(command: str, changes: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    mdgan = f"{sys.executable} -m mdgan"
    return subprocess.run(
        ["sh", "-c", command.replace("mdgan", mdgan)],
        env={**os.environ, **changes},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("closed", [">&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams(closed: str) -> None:
    done = shell(f"mdgan --version {closed}", {})
    assert (done.returncode, done.stderr) == (0, "")


def test_output_without_the_characters() -> None:
    done = shell("mdgan train --help", ASCII)
    assert (done.returncode, done.stderr) == (0, "")
    assert "max(2, ?log2 N?)" in done.stdout
