"""Errors in a user's own models during a run: it fails at once, and its last line says why."""

import time
from pathlib import Path

import pytest

from tests.claims.registry import claim
from tests.processes import read_events, read_status
from tests.processes import run as run_command

FILE = """
from torch import nn

from mdgan.data.dataset_file import load

_digits = load("digits", None)
Partitioner, HeldOut = _digits.partitioner, _digits.held_out
SHAPE, Z_DIM = (1, 8, 8), 16
calls = dict.fromkeys(("G", "D"), 0)


class Failing(nn.Sequential):
    def forward(self, x):
        calls["WHOSE"] += 1
        if calls["WHOSE"] > 60:
            HOW
        return super().forward(x)


class Generator(G):
    def __init__(self):
        super().__init__(nn.Linear(16, 64), nn.Tanh(), nn.Unflatten(1, (1, 8, 8)))


class Discriminator(D):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 1))
"""
FLAGS = [
    *("train", "--datasets-dir", ".", "--dataset", "own", "--world-size", "3", "--out", "run"),
    *("--iterations", "200", "--threads", "1", "--batch-size", "8", "--sample-interval", "0"),
    *("--eval-interval", "0"),
]
BUG = 'raise KeyError("my bug")'
NAN = 'return super().forward(x) * float("nan")'
NAN_SAID = ": the discriminator returns NaN, or is given NaN by the generator"


def write_file(folder: Path, whose: str, how: str) -> None:
    bases = {"G": "nn.Sequential", "D": "nn.Sequential", whose: "Failing"}
    text = FILE.replace("WHOSE", whose).replace("HOW", how)
    for network, base in bases.items():
        text = text.replace(f"({network})", f"({base})")
    (folder / "own.py").write_text(text)


@pytest.mark.parametrize(
    ("transport", "whose", "how", "says"),
    [
        ("tcp", "D", BUG, "KeyError: 'my bug' (own.py:16)"),
        ("memory", "G", BUG, "KeyError: 'my bug' (own.py:16)"),
        pytest.param(*("tcp", "G", BUG, "KeyError: 'my bug' (own.py:16)"), marks=pytest.mark.slow),
        pytest.param(
            *("memory", "D", BUG, "KeyError: 'my bug' (own.py:16)"), marks=pytest.mark.slow
        ),
        pytest.param("tcp", "D", NAN, NAN_SAID, marks=pytest.mark.slow),
        ("memory", "D", NAN, NAN_SAID),
    ],
)
@claim("exits", "0 done, 1 failed")
def test_a_bug_ends_the_run_and_is_on_the_last_line(
    tmp_path: Path, transport: str, whose: str, how: str, says: str
) -> None:
    write_file(tmp_path, whose, how)
    began = time.monotonic()
    result = run_command(*FLAGS, "--transport", transport, cwd=tmp_path)
    assert time.monotonic() - began < 250  # and not the 300 s for a worker to come back
    assert result.status == 1, result
    last = result.errors.splitlines()[-1]
    assert "mdgan: " in last, result
    assert says in last, result
    assert read_status(tmp_path / "run")["state"] == "failed"
    assert not read_events(tmp_path / "run", "shut out")  # it waits for no strike
