"""Runs processes, and measures their memory."""

import json
import sys
from pathlib import Path
from typing import NamedTuple

from tests.forks import ForkedCommand
from tests.processes import environment, finish, start_anew


class Ended(NamedTuple):
    """How a process ended, and the most memory that it had."""

    status: int
    text: str
    peak_mb: int


_MEASURE = """
import json, resource, subprocess, sys
ended = subprocess.run(
    sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
print(json.dumps([ended.returncode, ended.stdout.decode(errors="replace"), peak]))
"""
"""A fork begins with the memory of its parent, which must be small for that."""


def measured(folder: Path, *arguments: str) -> Ended:
    """Runs `mdgan` in its own process."""
    command = ForkedCommand(arguments, folder, environment())
    output, errors = command.communicate(200)
    return Ended(command.wait(), output + errors, command.peak_mb)


def measured_anew(folder: Path, *command: str) -> Ended:
    """Runs a program in a process that has imported nothing."""
    ended = finish(start_anew([sys.executable, "-c", _MEASURE, *command], folder), 200)
    return Ended(*json.loads(ended.output))
