"""Feeds a function with inputs that reach new lines of mdgan.

Run as `python -m tests.fuzz.run_atheris MODULE:FUNCTION SECONDS FOLDER`. The function takes bytes
and raises if anything is wrong. The folder holds inputs to begin with, and gets those that reach
something new. Ends with another status than 0 when the function has raised.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import atheris


def main(target: str, seconds: str, folder: str) -> None:
    """Runs one target until the time is up."""
    module, _, name = target.partition(":")
    with atheris.instrument_imports(include=["mdgan"]):
        function: Callable[[bytes], Any] = getattr(import_module(module), name)

    def feed(data: bytes) -> None:
        function(data)

    limits = [f"-max_total_time={seconds}", "-timeout=20", "-max_len=8192"]
    where = f"-artifact_prefix={folder}/failing-"
    atheris.Setup([sys.argv[0], *limits, where, folder], feed)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
